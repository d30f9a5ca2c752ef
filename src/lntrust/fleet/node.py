"""A live node: beside a model, with doors to neighbours and clients.

>>> with Node.from_file("NODE.toml") as node:  # doctest: +SKIP
...     node.predict(x).probabilities
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

import lntrust
from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import answer_together
from lntrust.fleet.logs import event
from lntrust.fleet.operations.certificates import expiry, name_in
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.limits import DuplicateNames
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import DEPLOY, TrafficCounters
from lntrust.fleet.peers.transport import Door
from lntrust.fleet.peers.zenoh_config import Peer, Place
from lntrust.fleet.settings import NodeSettings, load_node
from lntrust.fleet.status import NeighbourStatus, Prediction, Status, Which
from lntrust.fleet.training.data import as_inputs, load_data
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.loop import TrainingLoop
from lntrust.fleet.training.state import load_state
from lntrust.world.data.datasets import check_finite


class Node:
    """Learns, asks its neighbours, and answers. Start it, and close it in the end."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self._traffic = TrafficCounters([each.name for each in settings.neighbours])
        saved, torn = load_state(settings.life.state, settings.name)
        data = load_data(settings, None if saved is None else saved.seen)
        lockstep = settings.network.clock == "lockstep"
        self._snapshots = SnapshotStore(lockstep, settings.limits.patience)
        if settings.peers:
            expiry(settings.network.certificates)  # what is wrong with it is said before a model is made
        learner = LiveLearner(settings, data)
        with ExitStack() as doors:
            self._door: Door | None = None
            if settings.peers:
                self._door = self._open_door()
                doors.callback(self._door.close)
            self._neighbours = Neighbours(settings, self._traffic, self._door, self._facts)
            doors.callback(self._neighbours.close)
            self._training = TrainingLoop(
                settings, data, learner, self._neighbours, self._traffic, self._snapshots, saved, torn
            )
            self._doors = doors.pop_all()
        self._began = time.monotonic()

    @classmethod
    def from_file(cls, path: str | Path, *, train: bool = True) -> Self:
        """The node that a NODE.toml describes, running. `train = False`: only answering, as it last was."""
        return cls(load_node(path)).start(train=train)

    def start(self, *, train: bool = True) -> Self:
        """Begin to learn, and to ask."""
        event("node started", name=self.settings.name, round=self._training.done, pid=os.getpid())
        if train:
            self._training.start()
        return self

    def close(self) -> None:
        """Save, and be gone."""
        self._training.stop()
        self._doors.close()
        event("node stopped", name=self.settings.name, round=self._training.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- answering --------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Of the node's own model."""
        return self._snapshots.latest.version

    @property
    def ready(self) -> bool:
        return not self._snapshots.empty

    @property
    def failing(self) -> bool:
        """Whether the last try to train, or to probe, has failed."""
        return self._training.errors.last is not None

    def predict(self, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> Prediction:
        """What the node says about these inputs: with those it trusts, or by itself."""
        inputs = as_inputs(np.asarray(x), self.settings.input)
        check_finite("inputs", inputs)  # neighbours would refuse them
        answer = self._predict(inputs, which)
        self._traffic.count("clients", which)
        return answer

    def _predict(self, inputs: Shaped[ndarray, "m *s"], which: Which) -> Prediction:
        snapshot, trust, me = self._snapshots.latest, self._training.trust, self.settings.name
        own = snapshot.predict(inputs)
        alone = Prediction(own, {me: 1.0}, {me: snapshot.version}, {})
        if which == "self" or not trust.together or not self.settings.data.deployed:
            return alone
        certainty, seconds = self.settings.trust.certainty, self.settings.limits.deadline
        if certainty is not None and self.settings.trust.typical_margin and trust.typical_margin is not None:
            certainty = certainty * trust.typical_margin
        return answer_together(trust, alone, inputs, self._ask, seconds, certainty)

    def _ask(
        self, names: Sequence[str], x: Shaped[ndarray, "m *s"], seconds: float
    ) -> tuple[dict[str, Reply], dict[str, Failure]]:
        return self._neighbours.ask(names, x, DEPLOY, timeout=seconds)

    def replace(self, model: Any) -> None:
        """Another model in the place of the node's own, from now on: an nn.Module or a classifier.

        Training goes on with it, neighbours hear it, and trust is learned anew. Returns when it is in place.
        """
        self._training.replace(model)

    # -- about itself -----------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        version = 0 if self._snapshots.empty else self._snapshots.latest.version
        most = int(self.settings.limits.burst)
        session = "" if self._door is None else self._door.session
        return wire.facts(self.settings.input, len(self.settings.neighbours), version, most, session)

    def status(self) -> dict[str, Any]:
        """All that can be told about the node; see `lntrust.fleet.status`."""
        training, trust, traffic = self._training, self._training.trust, self._traffic
        status: Status = {
            "name": self.settings.name,
            "lntrust": lntrust.__version__,
            "model_version": self.version,
            "phase": training.phase,
            "round": training.done,
            "rounds": training.rounds,
            "error": training.errors.last,
            "training_failures": training.errors.count,
            "uptime": time.monotonic() - self._began,
            "strength": trust.strength,
            "together": trust.together,
            "validation": trust.validation,
            "trust": trust.weights,
            "neighbours": self._neighbour_statuses(),
            "queries": {"in": traffic.counted("queries in"), "out": traffic.counted("queries out")},
            "bytes": traffic.bytes_by_kind(),
            "retries": traffic.counted("retries"),
            "refusals": traffic.counted("refusals"),
            "failures": traffic.counted("failures"),
            "clients": traffic.counted("clients"),
            "certificate": self._certificate(),
            "saved": training.saved,
        }
        return dict(status)

    def _neighbour_statuses(self) -> dict[str, NeighbourStatus]:
        present, states, trust = self._neighbours.present, self._neighbours.states(), self._training.trust
        now = time.monotonic()
        return {
            name: {
                "present": name in present,
                "state": states[name].name.lower().replace("_", " "),
                "trust": trust.weights.get(name, 0.0),
                "probed": name in trust.probed,
                "version": each.version,
                "age": None if each.replied_at is None else now - each.replied_at,
                "round_trip": each.round_trip,
                "refused": each.refused,
                "instances": self._neighbours.instances(name),
            }
            for name, each in self._neighbours.members.items()
        }

    @property
    def expired(self) -> bool:
        """Whether its certificate has run out: then it is alone."""
        return self._door is not None and datetime.now(UTC) > self._door.expires

    def _certificate(self) -> dict[str, Any]:
        if self._door is None:
            return {"expires": None, "seconds_left": None}
        left = (self._door.expires - datetime.now(UTC)).total_seconds()
        return {"expires": self._door.expires.isoformat(), "seconds_left": left}

    def _open_door(self) -> Door:
        """The door for neighbours."""
        s, duplicates = self.settings, DuplicateNames()
        handler = QueryHandler(s, self._traffic, self._snapshots.at, self._facts, duplicates)
        # In lockstep a question of the future waits in a thread: there must be one for everybody.
        workers = s.limits.workers + (2 * len(s.peers) if s.network.clock == "lockstep" else 0)
        return Door(
            place_of(s), handler, workers=workers, waiting=s.limits.waiting, busy=handler.busy,
            duplicates=duplicates,
        )  # fmt: skip


def place_of(settings: NodeSettings) -> Place:
    """Where a node stands, for its door. Its certificate must be its own."""
    folder, network = settings.network.certificates, settings.network
    if (name := name_in(folder)) != settings.name:
        raise LNTrustError(f"{folder / 'node.pem'}: is {name}'s certificate; this node is {settings.name}")
    peers = tuple(Peer(each.name, each.address) for each in settings.peers)
    return Place(settings.name, network.listen, folder, peers, multicast=network.multicast)
