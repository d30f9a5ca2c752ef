"""The method's network on a live node: it asks real neighbours, and leaves out those that do not answer."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.world import NodeWorld
from lntrust.learners import Population
from lntrust.network import Questions, Replies
from lntrust.network.questions import Route

_HELLO_AGAIN = 1.0  # seconds at least until everybody is greeted again
_FAULTY = ("unsound", "malformed")  # failures that are a reply, and none that can be used


class LiveNetwork:
    """Node 0 asks neighbours 1…d, in the order of NODE.toml. An `AnswerNetwork` (methods.protocols)."""

    def __init__(
        self,
        settings: NodeSettings,
        world: NodeWorld,
        population: Callable[[], Population],
        data: NodeData,
        neighbours: Neighbours,
        publish: Callable[[int], None],
    ) -> None:
        self._settings, self._world, self._data = settings, world, data
        self._population, self._neighbours, self._publish = population, neighbours, publish
        self.edges = torch.from_numpy(world.edges)
        self.faulty: Int[ndarray, "E"] = np.zeros(len(world.edges), dtype=np.int64)  # since the node started
        self.round = 0
        self.probed: dict[str, int] = {}  # the model's version that each was last probed at
        trust = settings.trust
        self._changes = trust.calibrate or trust.look_back is not None
        self._due = False
        self._greeted_at = -math.inf

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """Ask the neighbours of these edges about the node's own examples; 0 where no answer came."""
        self.tell()
        route, limits = Route(questions, self.edges, edges), self._settings.limits
        names = [self._settings.neighbours[e].name for e in route.edge.tolist()]
        x, probes = self._data.inputs[questions.ids.numpy()], questions.source == "validation"
        if probes:
            self._neighbours.meet(only_new=True)
        chosen = set(self._neighbours.chosen())
        wanted = [name for name in names if name in chosen] if len(x) else []
        heard, failed = self._neighbours.ask(
            wanted, x, phase, timeout=limits.patience, round_=self.round, retries=limits.retries
        )
        self.faulty[route.edge.numpy()] += [name in failed and failed[name].kind in _FAULTY for name in names]
        if not probes and self._settings.network.clock == "own":
            # Trust was learned on the model that was probed; an older one has no weight.
            heard = {name: r for name, r in heard.items() if r.version >= self.probed.get(name, 0)}
        C = len(self._settings.input.classes)
        probabilities = torch.zeros(len(names), len(x), C, dtype=self._population().dtype)
        for row, name in enumerate(names):
            if name in heard:
                probabilities[row] = torch.from_numpy(heard[name].probabilities)
        if probes:
            self._greet()
            # Those that were not asked this time are known by what they said last.
            rest = {name: version for name, version in self.probed.items() if name not in names}
            self.probed = rest | {name: reply.version for name, reply in heard.items()}
        sound = torch.tensor([name in heard for name in names], dtype=torch.bool)
        return Replies(route, probabilities.flatten(0, 1), sound)

    def _greet(self) -> None:
        """Learn how many neighbours the neighbours have. After a probe: a hello before would announce it."""
        if time.monotonic() - self._greeted_at >= _HELLO_AGAIN:
            self._neighbours.meet()
            self._greeted_at = time.monotonic()
        for number, each in enumerate(self._settings.neighbours):
            self._world.known_degrees[1 + number] = self._neighbours.members[each.name].degree

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        return self._population().predict_own(ids)

    @contextmanager
    def frozen_models(self) -> Iterator[None]:
        """The supervised steps of a round are done: this is the model that neighbours hear."""
        self.announce(self.round)
        yield
        self.tell()

    def announce(self, round_: int) -> None:
        """The model of this round is made. If a refresh may still change what it answers (a temperature, a
        look back), it is published when somebody is asked: then those who ask it hear the same."""
        self.round, self._due = round_, True
        if not self._changes:
            self.tell()

    def tell(self) -> None:
        """Publish what was announced, if that is not done."""
        if self._due:
            self._due = False
            self._publish(self.round)
