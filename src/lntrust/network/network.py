"""The network inside one process: `ask`, and `send` with its kin, are the only ways to reach another node.

It carries nothing over a wire, and charges exactly what the wire would carry: the sizes are the
codec's, for the messages that live nodes exchange.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from torch import Tensor

from lntrust.errors import LNTrustError
from lntrust.learners import Population
from lntrust.learners.population import Plan, Public
from lntrust.network.codec import Size, Spec, size
from lntrust.network.ledger import Ledger
from lntrust.segments import sum_by
from lntrust.world import Ragged, World

# Where the examples of a question come from decides how a query may name them. What everybody is known to
# have, the pool, goes by id; a shard, drawn from it, may go by id if the study says that neighbours have the
# pool too; the others are private and travel as inputs.
Source = Literal["pool", "shard", "validation", "batch", "deployment"]
Sent = Literal["parameters", "anchors", "reply"]
# A graph with more than one in so many of all edges is averaged over as a full matrix.
_FULL = 32
# Above this share of all (model, example) pairs, one wide product is cheaper than the asked pairs.
_WIDE = 0.1


@dataclass(frozen=True)
class Questions:
    """What each node asks about: node i asks `ids[offsets[i]:offsets[i+1]]` of every neighbour."""

    ids: Int[Tensor, "T"]
    offsets: Int[Tensor, "n+1"]
    source: Source
    counts: Int[ndarray, "n"]  # how many each node asks about
    # How questions that are asked again, of all neighbours, are laid out: found once.
    route: list["_Route"] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(cls, ids: Int[Tensor, "n B"], source: Source) -> "Questions":
        """The same number of examples from every node."""
        n, B = ids.shape
        return cls(ids.flatten(), torch.arange(n + 1, device=ids.device) * B, source, np.full(n, B))

    @classmethod
    def ragged(cls, lists: Ragged, source: Source, device: torch.device) -> "Questions":
        values, offsets = torch.from_numpy(lists.values), torch.from_numpy(lists.offsets)
        return cls(values.to(device), offsets.to(device), source, lists.lengths)

    @property
    def each(self) -> int | None:
        """How many every node asks about, if all ask about equally many."""
        alike = len(self.counts) > 0 and bool((self.counts == self.counts[0]).all())
        return int(self.counts[0]) if alike else None


@dataclass
class _Route:
    """Whom to ask what, edge after edge."""

    edge: Int[Tensor, "q"]
    asker: Int[Tensor, "q"]
    answerer: Int[Tensor, "q"]
    counts: Int[ndarray, "q"]
    offsets: Int[Tensor, "q+1"]
    of_edge: Int[Tensor, "P"]
    question: Int[Tensor, "P"]
    plan: Plan | None = None


@dataclass(frozen=True)
class Replies:
    """Soft predictions, edge after edge: reply k to edge[k] is rows offsets[k]:offsets[k+1]."""

    edge: Int[Tensor, "q"]  # rows of the world's edges
    offsets: Int[Tensor, "q+1"]
    probabilities: Float[Tensor, "P C"]  # p_j(x), row by row
    question: Int[Tensor, "P"]  # the row of Questions.ids that each answers
    sound: Bool[Tensor, "q"]  # whether each reply is made of probability vectors; if not, it is all 0

    def regular(self) -> Float[Tensor, "q B C"]:
        """As one tensor, where every node asked about equally many examples."""
        B = len(self.question) // max(1, len(self.edge))
        return self.probabilities.view(len(self.edge), B, self.probabilities.shape[-1])


class Network:
    """Synchronous: every reply comes from the models as they stand when `ask` is called."""

    def __init__(self, world: World, population: Population) -> None:
        self._world = world
        self._population = population
        self._charging = True
        self.ledger = Ledger(world.edges)
        self.edges: Int[Tensor, "E 2"] = torch.from_numpy(world.edges).to(population.device)
        # Edges are sorted by (asker, answerer); the way back of edge e is edge back[e].
        self._back = (
            np.lexsort((world.edges[:, 0], world.edges[:, 1])) if len(world.edges) else np.zeros(0, int)
        )
        self._pool, self._place = self._pools()
        self._public: Public | None = None  # the pool as the learners see it, once somebody has asked
        self._deposited: set[tuple[int, str]] = set()
        self.round = 0
        # Nodes that answer others wrongly, for tests and studies of faults: what they make of a reply
        # [m, C]. None stands for no answer at all. A node always hears itself rightly.
        self.misbehaviour: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self._faulty = torch.zeros(len(world.edges), dtype=torch.int64, device=population.device)

    @property
    def faulty(self) -> Int[ndarray, "E"]:
        """Replies refused so far, by edge of the query."""
        return self._faulty.cpu().numpy()

    # -- asking and sending -----------------------------------------------------------------------------

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """Each asker's questions to its neighbours (all, or those of `edges`); their predictions."""
        if edges is None and questions.route:
            route = questions.route[0]
        else:
            route = self._routed(questions, edges)
            questions.route.extend([route] if edges is None else [])
        probabilities, sound = self._checked(self._answers(questions, route), route)
        if self._charging:
            edge = np.arange(len(self.edges)) if edges is None else edges.cpu().numpy()
            self._charge(edge, route.counts, questions.source, phase)
        return Replies(route.edge, route.offsets, probabilities, route.question, sound)

    def send(
        self,
        edges: Int[Tensor, "q"],
        tensors: Mapping[str, Shaped[Tensor, "n *s"]],
        kind: Sent,
        phase: str,
    ) -> dict[str, Shaped[Tensor, "q *s"]]:
        """Each edge's first node sends its rows of these tensors to the second, who gets a copy."""
        sender = self.edges[edges, 0]
        self._book(edges, tensors, kind, phase)
        return {name: t[sender] for name, t in tensors.items()}  # an indexed tensor is a copy

    def charge(
        self, edges: Int[Tensor, "q"], tensors: Mapping[str, Shaped[Tensor, "q *s"]], kind: Sent, phase: str
    ) -> None:
        """Book tensors that senders have made for each edge apart, row k for edges[k]: a method that has
        computed what arrives, where it arrives, says so here."""
        self._book(edges, tensors, kind, phase)

    def average(
        self,
        edges: Int[Tensor, "q"],
        weights: Float[Tensor, "q"],
        parameters: Float[Tensor, "n P"],
        phase: str,
        **beside: Shaped[Tensor, "n *s"],
    ) -> Float[Tensor, "n P"]:
        """Each edge's first node sends its parameters to the second, who adds up weight · parameters.

        What travels beside them (a sample count, say) may have decided the weights. Row i is node i's sum;
        0 where nothing arrives. The copies that `send` would make are never made.
        """
        self._book(edges, {"parameters": parameters, **beside}, "parameters", phase)
        n = len(parameters)
        sender, receiver = self.edges[edges].unbind(1)
        # A full matrix multiplies every row by 0 at least, which would carry a broken model (NaN) everywhere.
        if len(edges) * _FULL > n * n and bool(parameters.isfinite().all()):
            matrix = parameters.new_zeros(n, n)
            matrix[receiver, sender] = weights
            return matrix @ parameters
        return sum_by(receiver, parameters[sender] * weights[:, None], n)

    def _book(self, edges: Tensor, tensors: Mapping[str, Tensor], kind: Sent, phase: str) -> None:
        if self._charging and len(edges):
            spec = {name: (tuple(t.shape[1:]), _dtype(t)) for name, t in tensors.items()}
            self.ledger.book(edges.cpu().numpy(), phase, kind, size(spec))

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """For questions that no deployed system would ask, or whose messages are booked elsewhere."""
        self._charging, before = False, self._charging
        try:
            yield
        finally:
            self._charging = before

    # -- inside -----------------------------------------------------------------------------------

    def _pools(self) -> tuple[Int[Tensor, "worlds U"], Int[Tensor, "worlds N"]]:
        """The pool of every world, padded to one length, and where each example stands in it; −1: nowhere."""
        worlds, device = self._world.worlds, self._population.device
        pools = [np.union1d(w.partition.pool, w.partition.shard.values).astype(np.int64) for w in worlds]
        size, N = max(map(len, pools)), len(worlds[0].labels)
        ids, place = np.zeros((len(pools), size), np.int64), np.full((len(pools), N), -1)
        for s, pool in enumerate(pools):
            ids[s, : len(pool)] = pool
            place[s, pool] = np.arange(len(pool))
        return torch.from_numpy(ids).to(device), torch.from_numpy(place).to(device)

    def _routed(self, questions: Questions, edges: Int[Tensor, "q"] | None) -> _Route:
        """The rows of each edge's questions. Nothing waits for a GPU where all nodes ask equally much."""
        device, B = self.edges.device, questions.each
        edge = torch.arange(len(self.edges), device=device) if edges is None else edges
        asker, answerer = self.edges[edge].unbind(1)
        q = torch.arange(len(edge), device=device)
        if B is not None:
            inside = torch.arange(B, device=device)
            parts = (torch.arange(len(edge) + 1, device=device) * B, q[:, None].expand(-1, B).reshape(-1))
            question = (asker[:, None] * B + inside).flatten()
            return _Route(edge, asker, answerer, np.full(len(edge), B), *parts, question)
        counts = (questions.offsets[1:] - questions.offsets[:-1])[asker]
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        of_edge = torch.repeat_interleave(q, counts)
        inside = torch.arange(len(of_edge), device=device) - offsets[of_edge]
        question = questions.offsets[asker][of_edge] + inside
        return _Route(edge, asker, answerer, counts.cpu().numpy(), offsets, of_edge, question)

    def _answers(self, questions: Questions, route: _Route) -> Float[Tensor, "P C"]:
        """What the answerers say. Each (model, example) is computed once, however many ask."""
        population, asked = self._population, len(route.question)
        if questions.source in ("pool", "shard") and asked >= _WIDE * population.n * self._pool.shape[1] > 0:
            world = population.seeds.world(questions.ids.device)
            owner = torch.repeat_interleave(world, questions.offsets.diff(), output_size=len(questions.ids))
            place = self._place[owner, questions.ids]
            if not place.is_cuda and bool((place < 0).any()):
                raise LNTrustError(f"a question of source {questions.source!r} is not about the pool")
            self._public = self._public or population.bring(self._pool)
            nodes, places = route.answerer[route.of_edge], place[route.question]
            return population.predict_public(self._public, nodes, places)
        if route.plan is None:
            nodes, examples = route.answerer[route.of_edge], questions.ids[route.question]
            if len(population.seeds) == 1:
                distinct, place = torch.unique(examples, return_inverse=True)
                if asked >= _WIDE * population.n * len(distinct):
                    return population.predict_all(distinct)[nodes, place]
            route.plan = population.plan(nodes, examples)
        return population.answer(route.plan)

    def _checked(
        self, probabilities: Float[Tensor, "P C"], route: _Route
    ) -> tuple[Float[Tensor, "P C"], Bool[Tensor, "q"]]:
        """Let misbehaving nodes misbehave, then refuse every reply that is not made of probabilities: 0."""
        silent = []
        for node, twist in self.misbehaviour.items():
            for k in torch.nonzero(route.answerer == node).flatten().tolist():
                rows = slice(int(route.offsets[k]), int(route.offsets[k + 1]))
                answer = twist(probabilities[rows].clone())
                if answer is None or answer.shape != probabilities[rows].shape:
                    silent.append(k)
                else:
                    probabilities[rows] = answer
        wrong = (~probability_rows(probabilities)).long()
        sound = torch.zeros_like(route.edge).index_add_(0, route.of_edge, wrong) == 0
        if silent:
            sound[silent] = False
        if self._charging:  # what an evaluation overhears is nobody's loss
            self._faulty.index_add_(0, route.edge, (~sound).long())
        # Where all are sound nothing has to be done; but to know that, one would wait for a GPU.
        if probabilities.is_cuda or not bool(sound.all()):
            probabilities = torch.where(sound[route.of_edge][:, None], probabilities, 0.0)
        return probabilities, sound

    def heard(self, own: Float[Tensor, "n U C"]) -> Float[Tensor, "n U C"]:
        """What the neighbours of each node would hear if these were its answers; 0 for what is unsound."""
        out = own
        if self.misbehaviour:
            out = own.clone()
            for node, twist in self.misbehaviour.items():
                answer = twist(own[node].clone())
                fits = answer is not None and answer.shape == own[node].shape
                out[node] = answer if answer is not None and fits else 0.0
        return torch.where(probability_rows(out)[..., None], out, 0.0)

    def _charge(self, edge: Int[ndarray, "q"], counts: Int[ndarray, "q"], source: Source, phase: str) -> None:
        """Book the query on each edge and the reply on its way back. Nothing asked, nothing sent."""
        edge, counts = edge[counts > 0], counts[counts > 0]
        if self._world.study.network.query == "handle" and source in ("shard", "validation"):
            self._deposit(edge, source, phase)
        for m in np.unique(counts).tolist():
            some = edge[counts == m]
            self.ledger.book(some, phase, "query", self._query(m, source))
            self.ledger.book(self._back[some], phase, "reply", self._reply(m))

    def _query(self, examples: int, source: Source) -> Size:
        how = self._world.study.network.query
        if source == "pool" or (how == "ids" and source == "shard"):
            return size({"ids": ((examples,), "uint32")})
        if how == "handle" and source in ("shard", "validation"):
            return size({"handle": ((1,), "int64"), "positions": ((examples,), "uint32")})
        return size({"inputs": self._inputs(examples)})

    def _deposit(self, edge: Int[ndarray, "q"], source: Source, phase: str) -> None:
        """The first time an asker names a set to an answerer, the whole set travels under a handle."""
        p = self._world.partition
        lengths = (p.shard if source == "shard" else p.validation).lengths
        for e in edge.tolist():
            if (e, source) not in self._deposited:
                self._deposited.add((e, source))
                spec = {
                    "handle": ((1,), "int64"),
                    "inputs": self._inputs(int(lengths[self._world.edges[e, 0]])),
                }
                self.ledger.book(np.array([e]), phase, "query", size(spec))

    def _inputs(self, examples: int) -> Spec:
        return (examples, *self._world.input_shape), self._world.input_dtype

    def _reply(self, examples: int) -> Size:
        return size({"probabilities": ((examples, len(self._world.classes)), "float32")})

    def deployment_bytes(self, members: int) -> int:
        """What one deployed question to `members` neighbours costs, framing included."""
        return members * (self._query(1, "deployment").total + self._reply(1).total)

    # -- keeping ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        out = {f"ledger/{name}": t for name, t in self.ledger.state().items()}
        out["faulty"] = self._faulty
        for source in ("shard", "validation"):
            held = sorted(e for e, s in self._deposited if s == source)
            out[f"deposited/{source}"] = torch.tensor(held, dtype=torch.int64)
        return out

    def load(self, state: dict[str, Tensor]) -> None:
        prefix = "ledger/"
        self.ledger.load({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})
        self._faulty.copy_(state["faulty"])
        self._deposited = {
            (e, source) for source in ("shard", "validation") for e in state[f"deposited/{source}"].tolist()
        }


def probability_rows(answers: Float[Tensor, "*s C"]) -> Bool[Tensor, "*s"]:
    """Which rows are finite, not negative, and sum to one (within 1e-3: a reply may be rounded)."""
    # NaN fails both comparisons, and infinity the second.
    return (answers.amin(-1) >= 0) & ((answers.sum(-1) - 1.0).abs() < 1e-3)


def _dtype(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16":
        raise LNTrustError("tensors travel as integers or as float16, float32 or float64, not bfloat16")
    return name
