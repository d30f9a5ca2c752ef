"""Asking neighbours: a slow one keeps nobody waiting, and one that says "enough" is waited for."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import free_port

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.limits import State
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.peers.transport import Door, Peer, Place
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.learner import Snapshot
from lntrust.network.codec import decode

SHAPE = (1000, 1000)  # float32: one input fits into a message, and no second


class Street:
    """A node that asks, and neighbours with doors and desks of their own, in one process."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.open(folder)
        self.stack = ExitStack()
        self.doors: dict[str, Door] = {}

    def circle(
        self, neighbours: dict[str, dict[str, Any]], shape: tuple[int, ...], **limits: Any
    ) -> Neighbours:
        for name in ("me", *neighbours):
            self.authority.issue(name, ["127.0.0.1"])
        ports = {name: free_port() for name in neighbours}
        known = [{"name": n, "address": f"127.0.0.1:{port}"} for n, port in ports.items()]
        mine = self.settings("me", shape, known, limits)
        for name, options in neighbours.items():
            self.open(name, ports[name], shape, options)
        peers = tuple(Peer(each["name"], each["address"]) for each in known)
        door = Door(
            Place("me", f"127.0.0.1:{free_port()}", self.authority.folder / "me", peers), lambda *_: b""
        )
        self.stack.callback(door.close)
        circle = Neighbours(
            mine, TrafficCounters(list(neighbours)), door, lambda: wire.facts(mine.input, len(known), 0)
        )
        self.stack.callback(circle.close)
        circle.wait_for_all(10)
        return circle

    def open(self, name: str, port: int, shape: tuple[int, ...], options: dict[str, Any]) -> None:
        hangs: threading.Event | None = options.pop("hangs", None)
        refuses: str | None = options.pop("refuses", None)
        after: float = options.pop("after", 0.0)
        theirs = self.settings(name, shape, [{"name": "me"}], options)
        p = np.array([0.25, 0.75], dtype=np.float32)
        snapshot = Snapshot(1, lambda x: x, lambda x: np.tile(p, (len(x), 1)))
        facts = wire.facts(theirs.input, 1, 1, int(theirs.limits.burst))
        desk = QueryHandler(theirs, TrafficCounters(["me"]), lambda _: snapshot, lambda: facts)

        def answer(asker: str, data: bytes) -> bytes:
            if hangs is not None and len(data) > 10_000:  # a hello is shorter
                hangs.wait(20)
            if refuses is not None and wire.HELLO not in decode(data).tensors:
                time.sleep(after)
                raise LNTrustError(refuses)
            return desk(asker, data)

        place = Place(name, f"127.0.0.1:{port}", self.authority.folder / name, (Peer("me"),))
        self.doors[name] = Door(place, answer)
        self.stack.callback(self.doors[name].close)
        if hangs is not None:
            self.stack.callback(hangs.set)

    def settings(
        self, name: str, shape: tuple[int, ...], neighbours: list[dict[str, Any]], limits: dict[str, Any]
    ) -> NodeSettings:
        return NodeSettings.model_validate(
            {
                "name": name,
                "input": {"shape": shape, "classes": ["no", "yes"]},
                "model": {"kind": "linear"},
                "data": {"labelled": "data.npz", "probe_with": "none", "shard": "none"},
                "neighbours": neighbours,
                "limits": limits,
            }
        )


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path / "fleet")
    yield street
    street.stack.close()


def test_one_that_hangs_costs_the_others_nothing_however_much_is_asked(street: Street) -> None:
    """Three messages to each: the first one of the hung neighbour takes all the time that there is."""
    circle = street.circle({"good": {}, "hung": {"hangs": threading.Event()}}, SHAPE)
    heard, failed = circle.ask(["good", "hung"], np.zeros((3, *SHAPE), np.float32), "deploy", timeout=3)
    assert heard["good"].probabilities.shape == (3, 2)
    assert failed["hung"].kind == "silent"


def test_no_more_is_asked_at_once_than_a_neighbour_takes(street: Street) -> None:
    circle = street.circle({"small": {"burst": 10, "rate": 1000}}, (4,))
    x = np.zeros((25, 4), np.float32)
    heard, _ = circle.ask(["small"], x[:5], "deploy", timeout=5)  # they meet, and it says how much it takes
    heard, failed = circle.ask(["small"], x, "distil", timeout=5, retries=2)
    assert failed == {}
    assert heard["small"].probabilities.shape == (25, 2)


def test_one_that_has_had_enough_is_well(street: Street) -> None:
    """A client's question is answered without it; it is not left alone for that."""
    circle = street.circle({"strict": {"burst": 8, "rate": 0.001}}, (4,), failures=1)
    x = np.zeros((8, 4), np.float32)
    assert set(circle.ask(["strict"], x, "deploy", timeout=5)[0]) == {"strict"}
    since = time.monotonic()
    heard, failed = circle.ask(["strict"], x, "distil", timeout=5, retries=3)
    assert heard == {}
    assert failed["strict"].kind == "quota"
    assert time.monotonic() - since < 2, "to wait for it would take hours"
    assert circle.states()["strict"] is State.CLOSED


def test_a_closed_door_is_no_answer(street: Street) -> None:
    circle = street.circle({"good": {}}, (4,))
    x = np.zeros((1, 4), np.float32)
    assert set(circle.ask(["good"], x, "deploy", timeout=5)[0]) == {"good"}
    street.stack.close()
    try:
        heard, _ = circle.ask(["good"], x, "deploy", timeout=1)
    except LNTrustError:
        return
    assert heard == {}
