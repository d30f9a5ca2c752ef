"""The method's network on a live node: it asks real neighbours, and leaves out those that do not answer."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.fleet.logs import event
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.world import NodeWorld
from lntrust.learners import Population
from lntrust.network import Questions, Replies
from lntrust.network.questions import Route

_OUT_OF_TURN = 2.0  # seconds at least between two refreshes because a neighbour came
_HELLO_AGAIN = 1.0  # seconds at least until everybody is greeted again
_FAULTY = ("unsound", "malformed")  # failures that are a reply, and none that can be used


@dataclass
class LiveNetwork:
    """Node 0 asks neighbours 1…d, in the order of NODE.toml. An `AnswerNetwork` of methods.base."""

    settings: NodeSettings
    world: NodeWorld
    data: NodeData
    neighbours: Neighbours
    population: Callable[[], Population]  # as it is now
    publish_model: Callable[[int], None]
    round: int = 0
    probed: dict[str, int] = field(default_factory=dict)  # the model's version that each was last probed at
    _greeted_at: float = -math.inf

    def __post_init__(self) -> None:
        self.edges = torch.from_numpy(self.world.edges)
        self.faulty: Int[ndarray, "E"] = np.zeros(len(self.edges), dtype=np.int64)  # since the node started

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """Ask the neighbours of these edges about the node's own examples; 0 where no answer came."""
        route, limits = Route(questions, self.edges, edges), self.settings.limits
        names = [self.settings.neighbours[e].name for e in route.edge.tolist()]
        x, probes = self.data.inputs[questions.ids.numpy()], questions.source == "validation"
        if probes:
            self.neighbours.meet(only_new=True)
        chosen = self.neighbours.chosen()
        wanted = [name for name in names if name in chosen] if len(x) else []
        heard, failed = self.neighbours.ask(
            wanted, x, phase, timeout=limits.patience, round_=self.round, retries=limits.retries
        )
        if not probes and self.settings.network.clock == "own":
            # Trust was learned on the model that was probed; an older one has no weight.
            heard = {name: r for name, r in heard.items() if r.version >= self.probed.get(name, 0)}
        C, dtype = len(self.settings.input.classes), self.population().dtype
        probabilities = torch.zeros(len(names), len(x), C, dtype=dtype)
        for row, (e, name) in enumerate(zip(route.edge.tolist(), names, strict=True)):
            if name in heard:
                probabilities[row] = torch.from_numpy(heard[name].probabilities)
            self.faulty[e] += name in failed and failed[name].kind in _FAULTY
        if probes:
            self._greet()
            self.probed = {name: reply.version for name, reply in heard.items()}
        sound = torch.tensor([name in heard for name in names], dtype=torch.bool)
        return Replies(route, probabilities.flatten(0, 1), sound)

    def _greet(self) -> None:
        """Learn how many neighbours the neighbours have. After a probe: a hello before would announce it."""
        if time.monotonic() - self._greeted_at >= _HELLO_AGAIN:
            self.neighbours.meet()
            self._greeted_at = time.monotonic()
        for number, each in enumerate(self.settings.neighbours):
            self.world.known_degrees[1 + number] = self.neighbours.members[each.name].degree

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        return self.population().predict_own(ids)

    @contextmanager
    def frozen_models(self) -> Iterator[None]:
        """The supervised steps of a round are done: this is the model that neighbours hear."""
        self.publish(self.round)
        yield

    def publish(self, round_: int) -> None:
        """From now on neighbours hear the model as it is, as that of this round."""
        self.round = round_
        self.publish_model(round_)


class NeighbourWatch:
    """Tells when to probe out of turn: a neighbour has come, has come back, or has an older model.

    One that gives cause again and again is believed less and less often.
    """

    def __init__(self, neighbours: Neighbours, longest: float) -> None:
        self._neighbours, self._longest = neighbours, longest
        self._believed: dict[str, tuple[float, float]] = {}  # from when a neighbour may cause a refresh again
        self._probed_at: dict[str, int] = {}  # when each was probed, in its comings and goings

    def wait_for_first(self, seconds: float, stopping: threading.Event) -> None:
        """Until a first neighbour is there, or the time is over."""
        deadline = time.monotonic() + seconds
        while not (met := self._neighbours.somebody()) and time.monotonic() < deadline:
            if stopping.wait(0.1):
                break
        if not met:
            event("nobody is there", level=logging.WARNING, note="stage 2 begins alone")

    def note_probed(self, names: Iterable[str]) -> None:
        """These have just been probed."""
        self._probed_at = {name: self._neighbours.changes(name) for name in names}

    def sees_change(self, probed: Mapping[str, int], since: float) -> bool:
        """Whether a neighbour is new, was away, or has an older model than the one that was probed."""
        now, others, change = time.monotonic(), self._neighbours, False
        if now - since < _OUT_OF_TURN:
            return False
        for name in others.chosen() & others.present:
            version, appearance = others.members[name].version, others.changes(name)
            is_new = name not in probed or appearance != self._probed_at.get(name, appearance)
            is_older = not is_new and version is not None and version < probed[name]
            until, pause = self._believed.get(name, (0.0, _OUT_OF_TURN))
            if now >= until and (is_new or is_older):
                change = True
                self._believed[name] = (now + pause, min(2 * pause, self._longest))
        return change
