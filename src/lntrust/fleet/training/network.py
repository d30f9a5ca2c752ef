"""The method's network, made of live neighbours: `ask` asks them, and who does not answer is left out."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.world import NodeWorld
from lntrust.learners import Population
from lntrust.network import Network, Questions, Replies
from lntrust.network.questions import Route

_HELLO_AGAIN = 1.0  # seconds at least until everybody is greeted again


class LiveNetwork(Network):
    """Node 0 asks neighbours 1…d. What has passed stands in the node's books."""

    def __init__(
        self,
        settings: NodeSettings,
        world: NodeWorld,
        population: Callable[[], Population],
        data: NodeData,
        circle: Neighbours,
        books: TrafficCounters,
        publish: Callable[[int], None],
    ) -> None:
        self._settings, self._node_world, self._data = settings, world, data
        self._own_population, self._circle, self._publish = population, circle, publish
        self.ledger = books.ledger
        self.edges = torch.from_numpy(world.edges)
        self.round = 0
        self.misbehaviour = {}
        self.probed: dict[str, int] = {}  # the model's version that each was last probed at
        trust = settings.trust
        self._changes = trust.calibrate or trust.look_back is not None
        self._due = False
        self._met_at = -math.inf

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """Ask the neighbours of these edges about examples of the node's own; 0 for who did not answer."""
        self.tell()
        route = Route(questions, self.edges, edges)
        names = [self._settings.neighbours[e].name for e in route.edge.tolist()]
        x = self._data.inputs[questions.ids.numpy()]
        limits = self._settings.limits
        if questions.source == "validation":
            self._circle.meet(only_new=True)
        chosen = set(self._circle.chosen())
        wanted = [name for name in names if name in chosen] if len(x) else []
        heard, _ = self._circle.ask(
            wanted, x, phase, timeout=limits.patience, round_=self.round, retries=limits.retries
        )
        if questions.source != "validation" and self._settings.network.clock == "own":
            # Trust was learned on the model that was probed; an older one has no weight.
            heard = {name: r for name, r in heard.items() if r.version >= self.probed.get(name, 0)}
        C = len(self._settings.input.classes)
        probabilities = torch.zeros(len(names), len(x), C, dtype=self._own_population().dtype)
        for row, name in enumerate(names):
            if name in heard:
                probabilities[row] = torch.from_numpy(heard[name].probabilities)
        if questions.source == "validation":
            if time.monotonic() - self._met_at >= _HELLO_AGAIN:
                # Not before they were asked: a hello would tell them that this is a probe.
                self._circle.meet()
                self._met_at = time.monotonic()
            self._note_degrees()
            # Who was not asked this time is known by what it said last.
            rest = {name: version for name, version in self.probed.items() if name not in names}
            self.probed = rest | {name: reply.version for name, reply in heard.items()}
        sound = torch.tensor([name in heard for name in names], dtype=torch.bool)
        return Replies(route, probabilities.flatten(0, 1), sound)

    def _note_degrees(self) -> None:
        for number, each in enumerate(self._settings.neighbours):
            self._node_world.known_degrees[1 + number] = self._circle.members[each.name].degree

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        return self._own_population().predict_own(ids)

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

    def send(self, edges: Tensor, tensors: Mapping[str, Tensor], kind: Any, phase: str) -> dict[str, Tensor]:
        raise LNTrustError("live nodes send no parameters: they answer questions, and nothing else")
