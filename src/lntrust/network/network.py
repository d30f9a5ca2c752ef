"""The network inside one process: `ask`, and `send` with its kin, are the only ways to reach another node.

It carries nothing over a wire, and charges exactly what the wire would carry: the sizes are the
codec's, for the messages that live nodes exchange.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from torch import Tensor

from lntrust.errors import LNTrustError
from lntrust.learners import Population
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
_WIDE = 0.25


@dataclass(frozen=True)
class Questions:
    """What each node asks about: node i asks `ids[offsets[i]:offsets[i+1]]` of every neighbour."""

    ids: Int[Tensor, "T"]
    offsets: Int[Tensor, "n+1"]
    source: Source

    @classmethod
    def of(cls, ids: Int[Tensor, "n B"], source: Source) -> "Questions":
        """The same number of examples from every node."""
        n, B = ids.shape
        return cls(ids.flatten(), torch.arange(n + 1, device=ids.device) * B, source)

    @classmethod
    def ragged(cls, lists: Ragged, source: Source, device: torch.device) -> "Questions":
        values, offsets = torch.from_numpy(lists.values), torch.from_numpy(lists.offsets)
        return cls(values.to(device), offsets.to(device), source)


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
        self._deposited: set[tuple[int, str]] = set()
        self.round = 0
        # Nodes that answer others wrongly, for tests and studies of faults: what they make of a reply
        # [m, C]. None stands for no answer at all. A node always hears itself rightly.
        self.misbehaviour: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self.faulty = np.zeros(len(world.edges), dtype=np.int64)  # replies refused, by edge of the query

    # -- asking and sending -----------------------------------------------------------------------------

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """Each asker's questions to its neighbours (all, or those of `edges`); their predictions."""
        edge = torch.arange(len(self.edges), device=self.edges.device) if edges is None else edges
        asker, answerer = self.edges[edge].unbind(1)
        counts = (questions.offsets[1:] - questions.offsets[:-1])[asker]
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        of_edge = torch.repeat_interleave(torch.arange(len(edge), device=edge.device), counts)
        inside = torch.arange(len(of_edge), device=edge.device) - offsets[of_edge]
        question = questions.offsets[asker][of_edge] + inside
        probabilities = self._answers(answerer[of_edge], questions.ids[question])
        sound = self._check(probabilities, edge, offsets, of_edge)
        if self._charging:
            self._charge(edge.cpu().numpy(), counts.cpu().numpy(), questions.source, phase)
        return Replies(edge, offsets, probabilities, question, sound)

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
            self.ledger.book(edges.cpu().numpy(), phase, kind, [size(spec)] * len(edges))

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """For questions that no deployed system would ask, or whose messages are booked elsewhere."""
        self._charging, before = False, self._charging
        try:
            yield
        finally:
            self._charging = before

    # -- inside -----------------------------------------------------------------------------------

    def _answers(self, node: Int[Tensor, "P"], example: Int[Tensor, "P"]) -> Float[Tensor, "P C"]:
        population = self._population
        distinct, place = torch.unique(example, return_inverse=True)
        if len(example) < _WIDE * population.n * len(distinct):
            return population.predict(node, example)
        return population.predict_all(distinct)[node, place]

    def _check(
        self,
        probabilities: Float[Tensor, "P C"],
        edge: Int[Tensor, "q"],
        offsets: Int[Tensor, "q+1"],
        of_edge: Int[Tensor, "P"],
    ) -> Bool[Tensor, "q"]:
        """Let misbehaving nodes misbehave, then refuse every reply that is not made of probabilities."""
        sound = torch.ones(len(edge), dtype=torch.bool, device=edge.device)
        for node, twist in self.misbehaviour.items():
            for k in torch.nonzero(self.edges[edge, 1] == node).flatten().tolist():
                rows = slice(int(offsets[k]), int(offsets[k + 1]))
                answer = twist(probabilities[rows].clone())
                if answer is None or answer.shape != probabilities[rows].shape:
                    sound[k] = False
                else:
                    probabilities[rows] = answer
        bad_rows = ~probability_rows(probabilities)
        if bool(bad_rows.any()):
            sound[of_edge[bad_rows]] = False
        if not bool(sound.all()):
            if self._charging:  # what an evaluation overhears is nobody's loss
                self.faulty[edge[~sound].cpu().numpy()] += 1
            probabilities[~sound[of_edge]] = 0.0
        return sound

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
        different = {int(m): (self._query(int(m), source), self._reply(int(m))) for m in np.unique(counts)}
        self.ledger.book(edge, phase, "query", [different[m][0] for m in counts.tolist()])
        self.ledger.book(self._back[edge], phase, "reply", [different[m][1] for m in counts.tolist()])

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
                self.ledger.book(np.array([e]), phase, "query", [size(spec)])

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
        out["faulty"] = torch.from_numpy(self.faulty.copy())
        for source in ("shard", "validation"):
            held = sorted(e for e, s in self._deposited if s == source)
            out[f"deposited/{source}"] = torch.tensor(held, dtype=torch.int64)
        return out

    def load(self, state: dict[str, Tensor]) -> None:
        prefix = "ledger/"
        self.ledger.load({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})
        self.faulty = state["faulty"].numpy().copy()
        self._deposited = {
            (e, source) for source in ("shard", "validation") for e in state[f"deposited/{source}"].tolist()
        }


def probability_rows(answers: Float[Tensor, "*s C"]) -> Bool[Tensor, "*s"]:
    """Which rows are finite, not negative, and sum to one (within 1e-3: a reply may be rounded)."""
    fine = torch.isfinite(answers).all(-1) & (answers >= 0).all(-1)
    return fine & ((answers.sum(-1) - 1.0).abs() < 1e-3)


def _dtype(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16":
        raise LNTrustError("tensors travel as integers or as float16, float32 or float64, not bfloat16")
    return name
