"""The network inside one process: `ask`, and `send` with its kin, are the only ways to reach another node.

It carries nothing over a wire, and charges exactly what the wire would carry: the sizes are the
codec's, for the messages that live nodes exchange.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.segments import sum_by
from lntrust.learners import Population
from lntrust.network.answer_cache import WIDE, AnswerCache
from lntrust.network.codec import Size, Spec, size
from lntrust.network.encodings import ReplyEncoding
from lntrust.network.ledger import Ledger
from lntrust.network.questions import Questions, Replies, Route, Source
from lntrust.world import World

Sent = Literal["parameters", "anchors", "reply"]
Naming = Literal["inputs", "ids", "handle"]
_STAY = ("shard", "validation")  # sources that are the same at every question: they can have a handle
# A graph with more than one in so many of all edges is averaged over as a full matrix.
_FULL = 32


@dataclass(frozen=True)
class WireFormat:
    """How a method's questions and their replies travel, where it does not leave that to the study."""

    query: Naming | None = None  # how a query names its examples; none: as the study's network.query says
    reply: str = "float32"  # the name of a ReplyEncoding


class Network:
    """Synchronous: every reply comes from the models as they stand when `ask` is called."""

    def __init__(
        self, world: World, population: Population, wire_format: WireFormat | None = None, wide: float = WIDE
    ) -> None:
        self._world, self._population, self._wide = world, population, wide
        format_ = wire_format or WireFormat()
        self._encoding = ReplyEncoding(format_.reply)
        self._naming: Naming = format_.query or world.study.network.query
        self._charging = True
        self.ledger = Ledger(world.edges)
        self.edges: Int[Tensor, "E 2"] = torch.from_numpy(world.edges).to(population.device)
        # Edges are sorted by (asker, answerer); the way back of edge e is edge back[e].
        self._back = np.lexsort((world.edges[:, 0], world.edges[:, 1]))
        parts = [w.partition for w in world.worlds]
        pools = [np.union1d(p.pool, p.shard.values).astype(np.int64) for p in parts]
        self._pool = AnswerCache(population, pools, wide)
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

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """Each asker's questions to its neighbours (all, or those of `edges`); their predictions."""
        if edges is None and questions.route:
            route = questions.route[0]
        else:
            route = Route(questions, self.edges, edges)
            questions.route.extend([route] if edges is None else [])
        probabilities, sound = self._checked(self._answers(questions, route), route)
        if self._charging:
            edge = np.arange(len(self.edges)) if edges is None else edges.cpu().numpy()
            self._charge(edge, route.counts, questions.source, phase)
        return Replies(route, probabilities, sound)

    def send(
        self, edges: Int[Tensor, "q"], tensors: Mapping[str, Shaped[Tensor, "n *s"]], kind: Sent, phase: str
    ) -> dict[str, Shaped[Tensor, "q *s"]]:
        """Each edge's first node sends its rows of these tensors to the second, who gets a copy.

        `edges` may lie on the CPU, where the ledger is: then no GPU is waited for.
        """
        sender = self.edges[edges.to(self.edges.device, non_blocking=True), 0]
        self.charge(edges, tensors, kind, phase)
        return {name: t[sender] for name, t in tensors.items()}  # an indexed tensor is a copy

    def charge(
        self, edges: Int[Tensor, "q"], tensors: Mapping[str, Shaped[Tensor, "m *s"]], kind: Sent, phase: str
    ) -> None:
        """Book one row of these tensors on every edge. A method that computes what arrives where it arrives,
        from rows that senders made for one edge each, calls it by itself."""
        if self._charging and len(edges):
            spec = {name: (tuple(t.shape[1:]), _dtype(t)) for name, t in tensors.items()}
            self.ledger.book(edges.cpu().numpy(), phase, kind, size(spec))

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
        self.charge(edges, {"parameters": parameters, **beside}, "parameters", phase)
        n = len(parameters)
        sender, receiver = self.edges[edges].unbind(1)
        # A full matrix multiplies every row by 0 at least, which would carry a broken model (NaN) everywhere.
        if len(edges) * _FULL > n * n and bool(parameters.isfinite().all()):
            matrix = parameters.new_zeros(n, n)
            matrix[receiver, sender] = weights
            return matrix @ parameters
        return sum_by(receiver, parameters[sender] * weights[:, None], n)

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """For questions that no deployed system would ask, or whose messages are booked elsewhere."""
        self._charging, before = False, self._charging
        try:
            yield
        finally:
            self._charging = before

    def _answers(self, questions: Questions, route: Route) -> Float[Tensor, "P C"]:
        """What the answerers say. Each (model, example) is computed once, however many ask."""
        if questions.source in ("pool", "shard") and self._pool.pays(route):
            return self._pool.answers(questions, route)
        if route.answers is None:
            ids = questions.ids.cpu().numpy()
            ends = np.concatenate([[0], np.cumsum(questions.counts)])[:: self._world.seeds.n]
            examples = [np.unique(ids[a:b]) for a, b in pairwise(ends)]
            cache = AnswerCache(self._population, examples, self._wide)
            if cache.pays(route):
                route.answers = cache.answers
            else:
                asked = route.answerer[route.of_edge], questions.ids[route.question]
                told = self._population.asked(*asked)
                route.answers = lambda *_: told()
        return route.answers(questions, route)

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        """What every node says itself about examples of its shard. Nothing travels."""
        return self._pool.own(ids)

    @contextmanager
    def frozen_models(self) -> Iterator[None]:
        """While nobody learns: answers on the pool are computed once, however often it is asked about."""
        self._pool.keep(True)
        try:
            yield
        finally:
            self._pool.keep(False)

    def _checked(
        self, probabilities: Float[Tensor, "P C"], route: Route
    ) -> tuple[Float[Tensor, "P C"], Bool[Tensor, "q"]]:
        """Let misbehaving nodes misbehave, then refuse every reply that is not made of probabilities: 0."""
        for node in self.misbehaviour:
            for k in torch.nonzero(route.answerer == node).flatten().tolist():
                rows = slice(int(route.offsets[k]), int(route.offsets[k + 1]))
                probabilities[rows] = self._twisted(node, probabilities[rows])
        sound = route.all_of(probability_rows(probabilities))
        if self._charging:  # what an evaluation overhears is nobody's loss
            self._faulty.index_add_(0, route.edge, (~sound).long())
        return self._sound_only(probabilities, sound[route.of_edge]), sound

    def heard(self, own: Float[Tensor, "n U C"]) -> Float[Tensor, "n U C"]:
        """What the neighbours of each node would hear if these were its answers; 0 for what is unsound."""
        out = own.clone() if self.misbehaviour else own
        for node in self.misbehaviour:
            out[node] = self._twisted(node, own[node])
        return self._sound_only(out, probability_rows(out))

    def _sound_only(self, said: Float[Tensor, "*s C"], sound: Bool[Tensor, "*s"]) -> Float[Tensor, "*s C"]:
        """As it is heard. Where all is sound nothing is left out: to know that, one would wait for a GPU."""
        if said.is_cuda or not bool(sound.all()):
            said = torch.where(sound[..., None], said, 0.0)
        return self._encoding.heard(said)

    def _twisted(self, node: int, answer: Float[Tensor, "m C"]) -> Float[Tensor, "m C"]:
        """What a misbehaving node makes of its answer; NaN, no probabilities, if that has another shape."""
        said = self.misbehaviour[node](answer.clone())
        return torch.full_like(answer, torch.nan) if said is None or said.shape != answer.shape else said

    def _charge(self, edge: Int[ndarray, "q"], counts: Int[ndarray, "q"], source: Source, phase: str) -> None:
        """Book the query on each edge and the reply on its way back. Nothing asked, nothing sent."""
        edge, counts = edge[counts > 0], counts[counts > 0]
        if self._naming == "handle" and source in _STAY:
            self._deposit(edge, source, phase)
        for m in np.unique(counts).tolist():
            some = edge[counts == m]
            self.ledger.book(some, phase, "query", self._query(m, source))
            self.ledger.book(self._back[some], phase, "reply", self._reply(m))

    def _query(self, examples: int, source: Source) -> Size:
        how = self._naming
        if source == "pool" or (how == "ids" and source == "shard"):
            return size({"ids": ((examples,), "uint32")})
        if how == "handle" and source in _STAY:
            return size({"handle": ((1,), "int64"), "positions": ((examples,), "uint32")})
        return size({"inputs": self._inputs(examples)})

    def _deposit(self, edge: Int[ndarray, "q"], source: Source, phase: str) -> None:
        """The first time an asker names a set to an answerer, the whole set travels under a handle."""
        lengths = getattr(self._world.partition, source).lengths
        for e in edge.tolist():
            if (e, source) not in self._deposited:
                self._deposited.add((e, source))
                inputs = self._inputs(int(lengths[self._world.edges[e, 0]]))
                deposit = size({"handle": ((1,), "int64"), "inputs": inputs})
                self.ledger.book_one(e, phase, "query", deposit)

    def _inputs(self, examples: int) -> Spec:
        return (examples, *self._world.input_shape), self._world.input_dtype

    def _reply(self, examples: int) -> Size:
        return size(self._encoding.specs(examples, len(self._world.classes)))

    def deployment_bytes(self, members: int) -> int:
        """What one deployed question to `members` neighbours costs, framing included."""
        return members * (self._query(1, "deployment").total + self._reply(1).total)

    def state(self) -> dict[str, Tensor]:
        out = {f"ledger/{name}": t for name, t in self.ledger.state().items()}
        out["faulty"] = self._faulty
        for source in _STAY:
            held = sorted(e for e, s in self._deposited if s == source)
            out[f"deposited/{source}"] = torch.tensor(held, dtype=torch.int64)
        return out

    def load(self, state: dict[str, Tensor]) -> None:
        booked = {n.removeprefix("ledger/"): t for n, t in state.items() if n.startswith("ledger/")}
        self.ledger.load(booked)
        self._faulty.copy_(state["faulty"])
        self._deposited = {(e, source) for source in _STAY for e in state[f"deposited/{source}"].tolist()}


def probability_rows(answers: Float[Tensor, "*s C"]) -> Bool[Tensor, "*s"]:
    """Which rows are finite, not negative, and sum to one (within 1e-3: a reply may be rounded)."""
    # NaN fails both comparisons, and infinity the second.
    return (answers.amin(-1) >= 0) & ((answers.sum(-1) - 1.0).abs() < 1e-3)


def _dtype(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16":
        raise LNTrustError("tensors travel as integers or as float16, float32 or float64, not bfloat16")
    return name
