"""A live node: beside a model, with doors to neighbours and clients.

>>> with Node.from_file("NODE.toml") as node:  # doctest: +SKIP
...     node.predict(x).probabilities
"""

import os
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

import lntrust
from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import Prediction, Which, answer_together
from lntrust.fleet.logs import event
from lntrust.fleet.operations.certificates import NodeCertificate
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import DEPLOY, TrafficCounters
from lntrust.fleet.peers.transport import Door
from lntrust.fleet.peers.zenoh_config import Place
from lntrust.fleet.settings import NodeSettings, load_node
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
        self._snapshots = SnapshotStore(settings.network.clock == "lockstep", settings.limits.patience)
        place = place_of(settings) if settings.peers else None  # its faults are told before a model is made
        learner = LiveLearner(settings, data)
        with ExitStack() as doors:
            self._door: Door | None = None  # until it is open: somebody may say hello before
            if place is not None:
                handler = QueryHandler(settings, self._traffic, self._snapshots.at, self._facts)
                # In lockstep a question of the future waits in a thread: there must be one for everybody.
                more = 2 * len(place.peers) if settings.network.clock == "lockstep" else 0
                self._door = Door(
                    place, handler, workers=settings.limits.workers + more, waiting=settings.limits.waiting,
                    busy=handler.busy, duplicates=handler.duplicates,
                )  # fmt: skip
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
        return self._snapshots.version

    @property
    def failing(self) -> bool:
        """Whether the last try to train, or to probe, has failed."""
        return self._training.error is not None

    def predict(self, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> Prediction:
        """What the node says about these inputs: with those it trusts, or by itself."""
        inputs = as_inputs(np.asarray(x), self.settings.input)
        check_finite("inputs", inputs)  # neighbours would refuse them
        s, snapshot, trust = self.settings, self._snapshots.latest, self._training.trust
        answer = Prediction(snapshot.predict(inputs), {s.name: 1.0}, {s.name: snapshot.version}, {})
        if which == "ensemble" and trust.together and s.data.deployed:
            certainty, ask = s.trust.certainty, partial(self._neighbours.ask, phase=DEPLOY)
            if certainty is not None and s.trust.typical_margin and trust.typical_margin is not None:
                certainty *= trust.typical_margin
            answer = answer_together(trust, answer, inputs, ask, s.limits.deadline, certainty)
        self._traffic.count("clients", which)
        return answer

    def replace(self, model: Any) -> None:
        """Another model in the place of the node's own, from now on: an nn.Module or a classifier.

        Training goes on with it, neighbours hear it, and trust is learned anew. Returns when it is in place.
        """
        self._training.replace(model)

    # -- about itself -----------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        s = self.settings
        session = "" if self._door is None else self._door.session
        return wire.facts(s.input, len(s.neighbours), self.version, int(s.limits.burst), session)

    def status(self) -> dict[str, Any]:
        """All that can be told about the node, as JSON has it."""
        training, trust, traffic = self._training, self._training.trust, self._traffic
        return {
            "name": self.settings.name,
            "lntrust": lntrust.__version__,
            "model_version": self.version,
            "phase": training.phase,  # stage 1, stage 2, deployed
            "round": training.done,
            "rounds": training.rounds,
            "error": training.error,  # why training fails, if it does; it is tried again
            "training_failures": training.failures,  # since the node started
            "uptime": time.monotonic() - self._began,
            "strength": trust.strength,  # λ_eff, after the training gate; none before the first probe
            "together": trust.together,  # the deployment gate: whether clients are answered with the ensemble
            "validation": trust.validation,  # accuracy of `self` and of the `ensemble` on V_i
            "trust": trust.weights,  # α, the node itself included
            "neighbours": self._neighbour_statuses(),
            "queries": {"in": traffic.counted("queries in"), "out": traffic.counted("queries out")},
            "bytes": traffic.bytes_by_kind(),  # in and out, by kind, payload; and framing
            "retries": traffic.counted("retries"),  # by neighbour
            "refusals": traffic.counted("refusals"),  # questions refused here, by reason
            "failures": traffic.counted("failures"),  # answers not had, by reason
            "clients": traffic.counted("clients"),  # requests answered, by model
            "certificate": self._certificate(),
            "saved": training.saved,
        }

    def _neighbour_statuses(self) -> dict[str, dict[str, Any]]:
        present, trust, now = self._neighbours.present, self._training.trust, time.monotonic()
        return {
            name: {
                "present": name in present,
                "state": each.breaker.state(now).value,  # of the breaker
                "trust": trust.weights.get(name, 0.0),  # α_ij in the deployed ensemble
                "probed": name in trust.probed,  # whether it answered the last probe
                "version": each.version,
                "age": None if each.replied_at is None else now - each.replied_at,
                "round_trip": each.round_trip,
                "refused": each.refused,
                "instances": self._neighbours.instances(name),
            }
            for name, each in self._neighbours.members.items()
        }

    def _certificate(self) -> dict[str, Any]:
        if self._door is None:
            return {"expires": None, "seconds_left": None}
        left = (self._door.expires - datetime.now(UTC)).total_seconds()
        return {"expires": self._door.expires.isoformat(), "seconds_left": left}


def place_of(settings: NodeSettings) -> Place:
    """Where a node stands, for its door. Its certificate must be its own."""
    folder, network = settings.network.certificates, settings.network
    if (name := NodeCertificate(folder).name) != settings.name:
        raise LNTrustError(f"{folder / 'node.pem'}: is {name}'s certificate; this node is {settings.name}")
    peers = {each.name: each.address for each in settings.peers}
    return Place(settings.name, network.listen, folder, peers, multicast=network.multicast)
