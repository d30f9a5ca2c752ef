"""Neighbours that misbehave politely: nothing they do is wrong by itself."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, until
from test_neighbours import Street
from test_query_handler import Office, X

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom
from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers import transport
from lntrust.fleet.peers.doubles import Doubles
from lntrust.fleet.peers.limits import Breaker, State
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.transport import Door, Peer, Place, RefusedError
from lntrust.network.codec import Message, decode, encode

WIDE = (4000,)  # one input is longer than a hello
WIDE_X = np.zeros((1, *WIDE), np.float32)


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path / "fleet")
    yield street
    street.stack.close()


def wait(what: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def flap(circle: Neighbours, door: Door) -> None:
    """Go and come back, by the token of presence alone."""
    name = door.place.name
    before = circle.appearances(name)
    *others, token = door._declared
    token.undeclare()
    wait(lambda: name not in circle.present)
    again = door._session.liveliness().declare_token(f"lntrust/{name}/alive")
    door._declared = [*others, again]
    wait(lambda: circle.appearances(name) > before)


# -- coming and going -----------------------------------------------------------------------------


def test_one_that_comes_and_goes_is_left_alone_all_the_same(street: Street) -> None:
    circle = street.circle({"hung": {"hangs": threading.Event()}}, WIDE, failures=3, pause=60)
    kinds: Counter[str] = Counter()
    for _ in range(12):
        _, failed = circle.ask(["hung"], WIDE_X, "deploy", timeout=0.4)
        kinds[failed["hung"].kind] += 1
        flap(circle, street.doors["hung"])
    assert kinds == {"silent": 4, "breaker": 8}, "three failures, and one try because it came anew"


def test_one_that_comes_back_well_is_asked_at_once(street: Street) -> None:
    hangs = threading.Event()
    circle = street.circle({"hung": {"hangs": hangs}}, WIDE, failures=1, pause=60)
    assert circle.ask(["hung"], WIDE_X, "deploy", timeout=0.4)[1]["hung"].kind == "silent"
    hangs.set()
    assert circle.ask(["hung"], WIDE_X, "deploy", timeout=5)[1]["hung"].kind == "breaker"
    flap(circle, street.doors["hung"])
    assert set(circle.ask(["hung"], WIDE_X, "deploy", timeout=5)[0]) == {"hung"}
    assert circle.states()["hung"] is State.CLOSED


def test_a_pause_goes_on_growing_over_appearances() -> None:
    breaker = Breaker(failures=1, pause=1, longest=60)
    breaker.failed(0.0)
    breaker.appeared(0.5)
    assert breaker.admits(0.5)
    breaker.failed(0.5)  # two seconds now
    breaker.appeared(0.6)
    assert not breaker.admits(2.4)
    assert breaker.admits(2.6)
    breaker.failed(2.6)
    breaker.appeared(61.0)  # four seconds have long passed, and it is tried as ever
    assert breaker.admits(61.0)
    breaker.failed(61.0)
    breaker.appeared(61.5)
    assert breaker.admits(61.5), "a minute after the last time"
    assert not breaker.admits(61.5), "one question"


# -- no, and slowly -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pause", "timeout", "kinds"), [(0.0, 20.0, {"input": 8}), (4.0, 5.0, {"refused": 2, "breaker": 6})]
)
def test_to_refuse_inputs_is_no_failure_unless_it_takes_long(
    street: Street, pause: float, timeout: float, kinds: dict[str, int]
) -> None:
    how = {"refuses": "inputs: this node's model fails on them", "after": pause}
    circle = street.circle({"picky": how}, (4,), failures=2, pause=60)
    circle.greet(["picky"], 20)
    x = np.zeros((8, 4), np.float32)
    told = Counter(circle.ask(["picky"], x, "deploy", timeout=timeout)[1]["picky"].kind for _ in range(8))
    assert told == kinds


def test_to_refuse_inputs_takes_no_failure_back(street: Street) -> None:
    """One that says so now and then would never be left alone, whatever else it does."""
    hangs = threading.Event()
    how = {"refuses": "inputs: no", "hangs": hangs}
    circle = street.circle({"sly": how}, WIDE, failures=2, pause=60)
    circle.greet(["sly"], 20)
    kinds = []
    for silent in (True, False, True):
        hangs.clear() if silent else hangs.set()
        _, failed = circle.ask(["sly"], WIDE_X, "deploy", timeout=0.5 if silent else 20)
        kinds.append(failed["sly"].kind)
        hangs.set()
    assert kinds == ["silent", "input", "silent"]
    assert circle.states()["sly"] is State.OPEN


def test_refused_questions_do_not_stay_open(street: Street) -> None:
    """One that refuses and never ends what it was asked: each would be held for minutes."""
    circle = street.circle({"good": {}}, (4,))
    door = circle._door
    assert door is not None
    street.doors["good"]._answered = lambda query: kept.append(query.reply_err(b"inputs: no") or query)  # type: ignore[method-assign]
    kept: list[Any] = []
    for _ in range(100):
        with pytest.raises(RefusedError, match="inputs: no"):
            door.ask("good", b"x", 20)
        street.doors["good"]._inside.clear()
    wait(lambda: door._open["good"] < 20)


# -- later, and later -----------------------------------------------------------------------------


def test_one_that_says_nothing_but_later_is_waited_for_no_more(street: Street) -> None:
    refuses = "quota: 8 examples can be asked about in 0.3 s"
    circle = street.circle({"later": {"refuses": refuses}}, (4,), failures=2, pause=60)
    x = np.zeros((8, 4), np.float32)
    kinds = [circle.ask(["later"], x, "distil", timeout=5, retries=1)[1]["later"].kind for _ in range(8)]
    assert kinds == ["quota", "put off", "put off", *["breaker"] * 5]
    assert circle.states()["later"] is State.OPEN
    assert circle._books.counted("retries") == {"later": 1}, "it was waited for once"


def test_one_that_says_later_first_costs_no_more_than_the_patience_for_it(street: Street) -> None:
    """It answers who asks again, every time; that is no reason to wait at every question."""
    circle = street.circle({"later": {}}, (4,), patience=1.0)
    desk, asked = street.doors["later"]._answer, Counter[str]()

    def later(asker: str, data: bytes) -> bytes:
        asked["questions"] += wire.HELLO not in decode(data).tensors
        if asked["questions"] % 2:
            raise LNTrustError("quota: 8 examples can be asked about in 0.8 s")
        return desk(asker, data)

    circle.greet(["later"], 20)
    street.doors["later"]._answer = later
    x = np.zeros((8, 4), np.float32)
    heard = [set(circle.ask(["later"], x, "distil", timeout=20, retries=1)[0]) for _ in range(2)]
    assert heard == [{"later"}, set()], "a second of waiting is spent"
    assert circle._books.counted("retries") == {"later": 1}


def test_one_that_ignores_hellos_is_greeted_seldom(street: Street) -> None:
    circle = street.circle({"mute": {}}, (4,))
    greeted = []
    street.doors["mute"]._answer = lambda *_: greeted.append(None) or time.sleep(1)  # type: ignore[func-returns-value, return-value]
    for _ in range(3):
        circle.meet(timeout=0.2, only_new=True)
        circle.meet(timeout=0.2)
    assert len(greeted) == 1
    flap(circle, street.doors["mute"])
    circle.meet(timeout=0.2)
    wait(lambda: len(greeted) == 2)


# -- a quota for everything -----------------------------------------------------------------------

CROWDED = encode(Message("query", {f"t{k}": np.zeros(0, dtype=np.uint8) for k in range(13_000)}))


def test_a_header_that_takes_long_to_read_is_not_read() -> None:
    """Neither a neighbour's question nor its answer: it would cost more to read than to send."""
    with pytest.raises(LNTrustError, match=r"its header has \d+ bytes; at most 4096 are read"):
        wire.read(CROWDED)


@pytest.mark.parametrize(
    "message",
    [
        lambda office: encode(wire.hello(office.facts())),
        lambda office: encode(wire.hello({**office.facts(), "classes": ["bee", "ant", "cat"]})),
        lambda office: encode(wire.question(X[:0], 0)),
        lambda office: encode(wire.question(X[:, :, :2], 0)),
        lambda office: encode(wire.question(X.astype(np.float64), 0)),
        lambda office: encode(Message("query", {})),
        lambda office: b"\xff" * 100,
        lambda office: CROWDED,
    ],
    ids=["hello", "another's hello", "empty", "other shape", "other dtype", "nothing", "garbage", "crowded"],
)
def test_every_message_counts(message: Callable[[Office], bytes], caplog: pytest.LogCaptureFixture) -> None:
    office = Office()
    office.hello("b")
    office.hello("c")
    data, reasons = message(office), Counter[str]()
    with caplog.at_level(logging.INFO, "lntrust.fleet"):
        for _ in range(1000):
            try:
                office.desk("b", data)
            except LNTrustError as error:
                reasons[str(error)] += 1
    assert office.refusals()["quota"] > 500
    assert len(caplog.records) <= 3, "a log that others can fill is no log"
    office.say("c", wire.question(X, 0))  # another neighbour's quota is its own
    if "say hello first" not in reasons and office.refusals().get("mismatch", 0) == 0:
        office.say("b", wire.question(X, 0))  # and so is that of examples


def test_a_hello_too_much_makes_no_stranger(street: Street) -> None:
    """One whose hellos are refused for their number was met before, and is asked as ever."""
    circle = street.circle({"good": {}}, (4,))
    x = np.zeros((1, 4), np.float32)
    for _ in range(150):
        circle.greet(["good"], 5)
    assert circle.members["good"].refused is None
    assert set(circle.ask(["good"], x, "deploy", timeout=5)[0]) == {"good"}


def test_events_of_one_neighbour_are_told_seldom(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    seldom = Seldom(10.0, lambda: now)
    with caplog.at_level(logging.INFO, "lntrust.fleet"):
        for name in ("b", "b", "c", "b"):
            seldom.event("it rains", neighbour=name)
        now = 10.0
        seldom.event("it rains", neighbour="b")
    told: list[Any] = [record.__dict__["fields"] for record in caplog.records]
    assert told == [{"neighbour": "b"}, {"neighbour": "c"}, {"neighbour": "b", "untold": 2}]


# -- a little at a time ---------------------------------------------------------------------------


def test_one_that_takes_one_input_at_once_makes_no_storm(street: Street) -> None:
    circle = street.circle({"tiny": {"burst": 1, "rate": 1e6}, "good": {}}, (4,))
    x = np.zeros((179, 4), np.float32)
    circle.ask(["tiny", "good"], x[:1], "deploy", timeout=5)  # they meet
    before = circle._books.counted("queries out")["tiny"]
    heard, failed = circle.ask(["tiny", "good"], x, "probe", timeout=20)
    assert set(heard) == {"good"}
    assert failed["tiny"].kind == "few"
    assert "takes 1 inputs at once: 179 messages for 179; at most 32" in failed["tiny"].text
    assert circle._books.counted("queries out")["tiny"] == before
    assert set(circle.ask(["tiny"], x[:1], "deploy", timeout=5)[0]) == {"tiny"}, "it is well"


# -- one name, two nodes --------------------------------------------------------------------------


def test_a_second_one_of_a_name_is_noticed(tmp_path: Path) -> None:
    """The authority has made a second certificate for b; what is shown is shown by a, whom both know."""
    fleet = Fleet.of(tmp_path, "ab", everybody={"http": {"listen": "off"}})
    a, b = (fleet.members[name] for name in "ab")
    Authority(tmp_path / "certificates").renew("b")
    other = tmp_path / "certificates" / "b"
    assert (other / "node.key").read_bytes() != (b.folder / "node.key").read_bytes()
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("lntrust.fleet").addHandler(handler)
    with Node.from_file(a.folder) as node, Node.from_file(b.folder):
        until(node, lambda status: status["neighbours"]["b"]["probed"])
        assert node.status()["neighbours"]["b"]["instances"] == 1
        place = Place("b", "127.0.0.1:0", other, (Peer("a", a.listen),))
        second = Door(place, lambda *_: b"")
        try:
            until(node, lambda status: status["neighbours"]["b"]["instances"] == 2)
            wait(lambda: any("one name" in record.getMessage() for record in records))
        finally:
            second.close()
            logging.getLogger("lntrust.fleet").removeHandler(handler)


def test_one_that_was_started_again_is_no_second(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "ab", everybody={"http": {"listen": "off"}})
    with Node.from_file(fleet.members["a"].folder) as node:
        for _ in range(2):
            with Node.from_file(fleet.members["b"].folder):
                until(node, lambda status: status["neighbours"]["b"]["probed"])
            until(node, lambda status: not status["neighbours"]["b"]["probed"])
        assert node.status()["neighbours"]["b"]["instances"] == 1
        assert len(node._doubles._heard["b"]) == 2


def test_two_that_only_ask_are_noticed_by_their_hellos() -> None:
    office, doubles = Office(), Doubles()
    office.desk = QueryHandler(office.settings, office.books, office.shelf.at, office.facts, doubles)
    for session in ("one", "two", "", 7, "x" * 1000):
        office.hello("b", session=session)
    assert doubles.count("b") == 1
    office.hello("b", session="one")
    assert doubles.count("b") == 2


def test_who_is_heard_in_turn_is_two() -> None:
    doubles = Doubles()
    assert doubles.count("b", 0.0) == 0
    for now, session in enumerate(["one", "one", "two", "two"]):
        doubles.heard("b", session, float(now))
    assert doubles.count("b", 4.0) == 1, "started again"
    doubles.heard("b", "one", 5.0)
    assert doubles.count("b", 5.0) == 2
    assert doubles.count("c", 5.0) == 0
    assert doubles.count("b", 5000.0) == 0, "long ago"
    for number in range(10_000):
        doubles.heard("b", str(number), 6.0)
    assert len(doubles._heard["b"]) <= 16


def test_a_flood_is_not_heard_for_a_while_and_then_again(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even to refuse costs time. Who has been refused a thousand times is not asked to stop once more."""
    monkeypatch.setattr(transport, "_DEAF", 3.0)
    circle = street.circle({"good": {}}, (4,))
    me, x = circle._door, np.zeros((1, 4), np.float32)
    assert me is not None
    reasons: Counter[str] = Counter()

    def unheard() -> bool:
        for pending in [me.begin("good", b"\xff" * 100, 2.0) for _ in range(16)]:
            try:
                pending.result()
            except LNTrustError as error:
                reasons[type(error).__name__] += 1
        return reasons["NoAnswerError"] > 100

    wait(unheard)
    assert reasons["RefusedError"] > 900
    wait(lambda: set(circle.ask(["good"], x, "deploy", timeout=2)[0]) == {"good"})
