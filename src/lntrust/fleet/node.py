"""A live node: beside a model, with doors to neighbours and clients.

>>> with Node.from_file("NODE.toml") as node:  # doctest: +SKIP
...     node.predict(x).probabilities
"""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

import lntrust
from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import all_at_once, one_by_one
from lntrust.fleet.status import Prediction, Which
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
from lntrust.fleet.status import NeighbourStatus, Status
from lntrust.fleet.training.data import as_inputs, load_data
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.loop import TrainingLoop
from lntrust.fleet.training.state import seen_in, take_state
from lntrust.world.data.datasets import check_finite


class Node:
    """Learns, asks its neighbours, and answers. Start it, and close it in the end."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self._books = TrafficCounters([each.name for each in settings.neighbours])
        taken = take_state(settings.life.state, settings.name)
        data = load_data(settings, seen_in(taken))
        lockstep = settings.network.clock == "lockstep"
        self._shelf = SnapshotStore(lockstep, settings.limits.patience)
        if settings.peers:
            expiry(settings.network.certificates)  # what is wrong with it is said before a model is made
        learner = LiveLearner(settings, data)
        self._duplicates = DuplicateNames()
        self._door: Door | None = None
        desk = QueryHandler(settings, self._books, self._shelf.at, self._facts, self._duplicates)
        self._door = self._opened(desk) if settings.peers else None
        try:
            self._circle = Neighbours(settings, self._books, self._door, self._facts)
            self._life = TrainingLoop(settings, data, learner, self._circle, self._books, self._shelf, taken)
        except BaseException:
            self._close_doors()
            raise
        self._began = time.monotonic()

    @classmethod
    def from_file(cls, path: str | Path, *, train: bool = True) -> Self:
        """The node that a NODE.toml describes, running. `train = False`: only answering, as it last was."""
        return cls(load_node(path)).start(train=train)

    def start(self, *, train: bool = True) -> Self:
        """Begin to live: learn, and ask."""
        event("node started", name=self.settings.name, round=self._life.done, pid=os.getpid())
        if train:
            self._life.start()
        return self

    def close(self) -> None:
        """Save, and be gone."""
        self._life.stop()
        self._close_doors()
        event("node stopped", name=self.settings.name, round=self._life.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- answering --------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Of the node's own model."""
        return self._shelf.latest.version

    @property
    def ready(self) -> bool:
        return not self._shelf.empty

    @property
    def failing(self) -> bool:
        """Whether the last try to train, or to probe, has failed."""
        return self._life.trouble.error is not None

    def predict(self, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> Prediction:
        """What the node says about these inputs: with those it trusts, or by itself."""
        inputs = as_inputs(np.asarray(x), self.settings.input)
        check_finite("inputs", inputs)  # neighbours would refuse them
        answer = self._predicted(inputs, which)
        self._books.count("clients", which)
        return answer

    def _predicted(self, inputs: Shaped[ndarray, "m *s"], which: Which) -> Prediction:
        snapshot, trust, me = self._shelf.latest, self._life.trust, self.settings.name
        own = snapshot.predict(inputs)
        alone = Prediction(own, {me: 1.0}, {me: snapshot.version}, {})
        if which == "self" or not trust.together or not self.settings.data.deployed:
            return alone
        certainty, seconds = self.settings.trust.certainty, self.settings.limits.deadline
        if certainty is not None and self.settings.trust.typical_margin and trust.typical_margin is not None:
            certainty = certainty * trust.typical_margin
        if certainty is None or not len(inputs):
            return all_at_once(trust, alone, inputs, self._ask, seconds)
        return one_by_one(trust, alone, inputs, self._ask, seconds, certainty)

    def _ask(
        self, names: Sequence[str], x: Shaped[ndarray, "m *s"], seconds: float
    ) -> tuple[dict[str, Reply], dict[str, Failure]]:
        return self._circle.ask(names, x, DEPLOY, timeout=seconds)

    def replace(self, model: Any) -> None:
        """Another model in the place of the node's own, from now on: an nn.Module or a classifier.

        Training goes on with it, neighbours hear it, and trust is learned anew. Returns when it is in place.
        """
        self._life.replace(model)

    # -- telling ----------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        version = 0 if self._shelf.empty else self._shelf.latest.version
        most = int(self.settings.limits.burst)
        session = "" if self._door is None else self._door.session
        return wire.facts(self.settings.input, len(self.settings.neighbours), version, most, session)

    def status(self) -> dict[str, Any]:
        """All that can be told about the node; see `lntrust.fleet.status`."""
        life, trust, books = self._life, self._life.trust, self._books
        status: Status = {
            "name": self.settings.name,
            "lntrust": lntrust.__version__,
            "model_version": self.version,
            "phase": life.phase,
            "round": life.done,
            "rounds": life.rounds,
            "error": life.trouble.error,
            "training_failures": life.trouble.failures,
            "uptime": time.monotonic() - self._began,
            "strength": trust.strength,
            "together": trust.together,
            "validation": trust.validation,
            "trust": trust.weights,
            "neighbours": self._neighbours(),
            "queries": {"in": books.counted("queries in"), "out": books.counted("queries out")},
            "bytes": books.bytes_by_kind(),
            "retries": books.counted("retries"),
            "refusals": books.counted("refusals"),
            "failures": books.counted("failures"),
            "clients": books.counted("clients"),
            "certificate": self._certificate(),
            "saved": life.saved,
        }
        return dict(status)

    def _neighbours(self) -> dict[str, NeighbourStatus]:
        present, states, trust = self._circle.present, self._circle.states(), self._life.trust
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
                "instances": self._circle.instances(name),
            }
            for name, each in self._circle.members.items()
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

    # -- doors ------------------------------------------------------------------------------------

    def _opened(self, desk: QueryHandler) -> Door:
        s = self.settings
        # In lockstep a question of the future waits in a thread: there must be one for everybody.
        workers = s.limits.workers + (2 * len(s.peers) if s.network.clock == "lockstep" else 0)
        return Door(
            place_of(s), desk, workers=workers, waiting=s.limits.waiting, busy=desk.busy,
            duplicates=self._duplicates,
        )  # fmt: skip

    def _close_doors(self) -> None:
        if self._door is not None:
            self._door.close()
        if hasattr(self, "_circle"):
            self._circle.close()


def place_of(settings: NodeSettings) -> Place:
    """Where a node stands, for its door. Its certificate must be its own."""
    folder, network = settings.network.certificates, settings.network
    if (name := name_in(folder)) != settings.name:
        raise LNTrustError(f"{folder / 'node.pem'}: is {name}'s certificate; this node is {settings.name}")
    peers = tuple(Peer(each.name, each.address) for each in settings.peers)
    return Place(settings.name, network.listen, folder, peers, multicast=network.multicast)
