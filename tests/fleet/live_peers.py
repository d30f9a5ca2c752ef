"""Peers inside a test: doors, query handlers and neighbours, with real sessions over TLS on loopback."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import small_nodes
import zenoh
from fleets import Forked, free_port, wait_until

from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.limits import State
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.peers.transport import Answer, Door
from lntrust.fleet.peers.zenoh_config import Place, configuration
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.learner import Snapshot
from lntrust.network.codec import decode


def echo(asker: str, question: bytes) -> bytes:
    return f"to {asker}: ".encode() + question


def is_hello(data: bytes) -> bool:
    return wire.HELLO in decode(data).tensors


class RawPeer:
    """A neighbour that speaks Zenoh without a door: it may do what a door does not. Close it in the end."""

    def __init__(self, place: Place, **changes: Any) -> None:
        self.name, text = place.name, json.dumps(configuration(place) | changes)
        self.session = zenoh.open(zenoh.Config.from_json5(text))
        self._declared: list[Any] = []

    def appear(self) -> None:
        self._token = self.session.liveliness().declare_token(f"lntrust/{self.name}/alive")

    def leave(self) -> None:
        self._token.undeclare()

    def answer(self, asker: str, how: Callable[[zenoh.Query], None]) -> None:
        self._declared.append(self.session.declare_queryable(f"lntrust/{self.name}/ask/{asker}", how))


class Peers:
    """Certified nodes who know each other, each with a port; closed when `ends` is."""

    def __init__(self, ends: ExitStack, folder: Path, names: str | list[str]) -> None:
        self.ends, self.authority = ends, Authority.open(folder)
        self.ports = {name: free_port() for name in names}
        for name in names:
            self.authority.issue(name, ["127.0.0.1"])

    def place(self, name: str, certificates: Path | None = None, peers: str | None = None) -> Place:
        known = (n for n in peers or self.ports if n != name)
        listening = {n: f"127.0.0.1:{self.ports[n]}" for n in known}
        return Place(
            name, f"127.0.0.1:{self.ports[name]}", certificates or self.authority.folder / name, listening
        )

    def door(self, place: str | Place, answer: Answer = echo, **options: Any) -> Door:
        door = Door(self.place(place) if isinstance(place, str) else place, answer, **options)
        self.ends.callback(door.close)
        return door

    def raw(self, name: str, **changes: Any) -> RawPeer:
        peer = RawPeer(self.place(name), **changes)
        self.ends.callback(peer.session.close)
        return peer

    def process(self, name: str) -> Forked:
        """A door that echoes, in a process of its own."""
        child = Forked(_stand, self.place(name), log=self.authority.folder / "log")
        self.ends.callback(child.kill)
        return child


def _stand(place: Place) -> None:
    door = Door(place, lambda asker, question: f"{place.name} to {asker}: ".encode() + question)
    threading.Event().wait()
    door.close()


class Asking(Peers):
    """A node `me` and its neighbours: a query handler answers for each, or what a test puts into `answers`.

    Others are given by their limits; None: the test brings this neighbour itself.
    """

    def __init__(
        self, ends: ExitStack, folder: Path, shape: tuple[int, ...], limits: dict[str, Any],
        others: dict[str, dict[str, Any] | None],
    ) -> None:  # fmt: skip
        super().__init__(ends, folder, ["me", *others])
        self.shape, self.traffic = shape, TrafficCounters(list(others))
        self.answers, self.doors = dict[str, Answer](), dict[str, Door]()
        for name, theirs in others.items():
            if theirs is not None:
                self.answers[name] = self._handler(self.settings(name, theirs))
                self.doors[name] = self.door(name, lambda *question, name=name: self.answers[name](*question))
        mine = self.settings("me", limits)
        self.me = self.door("me", lambda *_: b"")
        facts = wire.facts(mine.input, len(others), 0)
        self.neighbours = Neighbours(mine, self.traffic, self.me, lambda: facts)
        self.ends.callback(self.neighbours.close)
        assert self.me.wait_for(self.answers, 60)

    def settings(self, name: str, limits: dict[str, Any] | None = None) -> NodeSettings:
        known = [{"name": n, "address": address} for n, address in self.place(name).peers.items()]
        wanted = {"shape": self.shape, "classes": ["no", "yes"]}
        return small_nodes.settings(name=name, input=wanted, neighbours=known, limits=limits or {})

    def _handler(self, theirs: NodeSettings) -> QueryHandler:
        p = np.array([0.25, 0.75], dtype=np.float32)
        snapshot = Snapshot(1, lambda x: x, lambda x: np.tile(p, (len(x), 1)))
        facts = wire.facts(theirs.input, 1, 1, int(theirs.limits.burst))
        names = [each.name for each in theirs.neighbours]
        return QueryHandler(theirs, TrafficCounters(names), lambda _: snapshot, lambda: facts)

    def hang(self, name: str) -> threading.Event:
        """From now on this one answers hellos only, and questions when the event is set."""
        handler, go_on = self.answers[name], threading.Event()
        self.ends.callback(go_on.set)

        def answer(asker: str, data: bytes) -> bytes:
            assert is_hello(data) or go_on.wait(60)
            return handler(asker, data)

        self.answers[name] = answer
        return go_on

    def state(self, name: str) -> State:
        """Of its breaker."""
        return self.neighbours.members[name].breaker.state(time.monotonic())

    def reopen(self, name: str) -> None:
        """It goes, and comes again."""
        self.doors[name].close()
        wait_until(lambda: name not in self.me.present)
        self.doors[name] = self.door(name, lambda *question: self.answers[name](*question))
        assert self.me.wait_for([name], 60)


MakeAsking = Callable[..., Asking]
