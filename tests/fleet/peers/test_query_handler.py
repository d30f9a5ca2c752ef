"""The desk: who is answered, who is refused and why; and all of it is counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_nodes import SHAPE, blobs, settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.query_handler import HELLO_FIRST, QueryHandler
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.learner import LiveLearner, Snapshot
from lntrust.network.codec import PROTOCOL, Message, decode, encode

X = blobs(3, 5)[0]
HERE = [{"name": "b"}, {"name": "c"}, {"name": "s", "url": "http://h/v2/models/m"}]


class Office:
    """A desk with its books, a model, and somebody who asks."""

    def __init__(self, **changes: Any) -> None:
        self.settings = settings(neighbours=HERE, **changes)
        self.books = TrafficCounters([each.name for each in self.settings.neighbours])
        self.snapshot = LiveLearner(self.settings, load_data(self.settings)).snapshot(4)
        self.shelf = SnapshotStore(self.settings.network.clock == "lockstep", 0.05)
        self.shelf.put(self.snapshot, 0)
        self.desk = QueryHandler(self.settings, self.books, self.shelf.at, self.facts)

    def facts(self) -> dict[str, Any]:
        return wire.facts(self.settings.input, 3, 4)

    def say(self, asker: str, message: Message) -> Message:
        return decode(self.desk(asker, encode(message)))

    def hello(self, asker: str = "b", **others: Any) -> Message:
        return self.say(asker, wire.hello({**self.facts(), **others}))

    def refusals(self) -> dict[str, int]:
        return self.books.counted("refusals")


@pytest.fixture
def office() -> Office:
    return Office()


def test_hello_first_then_the_models_own_answer(office: Office) -> None:
    with pytest.raises(LNTrustError, match=HELLO_FIRST):
        office.say("b", wire.question(X, 0))
    greeting = office.hello()
    assert greeting.kind == "reply"
    assert wire.told(greeting) == office.facts()
    answer = office.say("b", wire.question(X, 7))
    assert (answer.round, answer.version) == (7, 4)
    np.testing.assert_array_equal(wire.heard(answer, len(X), 3), office.snapshot.predict(X))
    with pytest.raises(LNTrustError, match=HELLO_FIRST):
        office.say("c", wire.question(X, 0))  # one's hello is not another's
    assert office.books.counted("queries in") == {"b": 3, "c": 1}
    assert office.refusals() == {"hello": 2}


def test_who_has_changed_is_a_stranger_again(office: Office) -> None:
    office.hello()
    with pytest.raises(LNTrustError, match=r"class 0 is 'ant' here and 'bee' there"):
        office.hello(classes=["bee", "ant", "cat"])
    with pytest.raises(LNTrustError, match=HELLO_FIRST):
        office.say("b", wire.question(X, 0))
    office.hello()
    office.say("b", wire.question(X, 0))
    assert office.refusals() == {"mismatch": 1, "hello": 1}


def test_questions_of_another_shape(office: Office) -> None:
    office.hello()
    for wrong in (X[0], X.astype(np.float64), X[:, :, :2]):
        with pytest.raises(LNTrustError, match=r"must be float32\[m, 1, 4, 4\]"):
            office.say("b", wire.question(wrong, 0))
    assert office.refusals() == {"shape": 3}


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_inputs_that_are_not_finite(office: Office, number: float) -> None:
    office.hello()
    x = X.copy()
    x[3, 0, 1, 2] = number
    with pytest.raises(LNTrustError, match=rf"^inputs: row 3, column 0, 1, 2 is {number}; all must be f"):
        office.say("b", wire.question(x, 0))
    assert office.refusals() == {"input": 1}
    office.say("b", wire.question(X, 0))


def test_a_model_that_fails_on_an_input(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    office.hello()

    def fail(x: object) -> Any:
        raise ValueError("no\nsuch\nnumber" * 1000)

    office.shelf.put(Snapshot(5, lambda x: x, fail), 0)
    with pytest.raises(LNTrustError, match=r"^inputs: this node's model fails on them$"):
        office.say("b", wire.question(X, 0))
    assert office.refusals() == {"unsound": 1}
    (record,) = caplog.records
    assert len(record.__dict__["fields"]["error"]) < 500
    assert record.exc_info is None


def test_a_quota_is_each_ones_own() -> None:
    office = Office(limits={"rate": 1e-3, "burst": 7})
    for name in ("b", "c"):
        office.hello(name)
    with pytest.raises(LNTrustError, match="quota: 8 examples can be asked about never at once"):
        office.say("b", wire.question(np.zeros((8, *SHAPE), np.float32), 0))
    office.say("b", wire.question(X, 0))  # five of seven
    with pytest.raises(LNTrustError, match=r"quota: 5 examples can be asked about in \d+\.\d s"):
        office.say("b", wire.question(X, 0))
    office.say("c", wire.question(X, 0))
    office.say("b", wire.question(X[:2], 0))  # what is left
    office.hello("b")  # a hello is about no example
    assert office.refusals() == {"quota": 2}


def old_protocol() -> bytes:
    data = bytearray(encode(wire.question(X, 0)))
    place = data.rindex(np.array([PROTOCOL, 0, 0, 0], dtype="<i8").tobytes())
    data[place] = 77
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message", "reason"),
    [
        (lambda: b"", "not safetensors", "malformed"),
        (lambda: b"\xff" * 100, "not safetensors", "malformed"),
        (lambda: encode(wire.question(X, 0))[:-5], "not safetensors", "malformed"),
        (lambda: old_protocol(), "speaks protocol 77; this node speaks", "protocol"),
        (lambda: encode(Message("query", {wire.HELLO: np.zeros(3, np.uint8)})), "not JSON", "malformed"),
    ],
)
def test_what_is_no_message(office: Office, data: Callable[[], bytes], message: str, reason: str) -> None:
    office.hello()
    with pytest.raises(LNTrustError, match=message):
        office.desk("b", data())
    assert office.refusals() == {reason: 1}
    office.say("b", wire.question(X, 0))  # and it is still met


def test_what_is_neither_question_nor_hello(office: Office) -> None:
    office.hello()
    for message in (Message("query", {}), Message("parameters", {"w": X}), wire.reply(X[:, 0, 0], 0, 0)):
        with pytest.raises(LNTrustError, match="a question needs a tensor 'inputs'"):
            office.say("b", message)
    assert office.refusals() == {"shape": 3}


def test_in_lockstep_a_round_that_does_not_come() -> None:
    office = Office(network={"clock": "lockstep", "number": 0})
    office.hello()
    question = encode(wire.question(X, 0))
    for beside in (None, wire.beside(0), wire.beside(wire.NOW)):
        office.desk("b", question, beside)
    with pytest.raises(LNTrustError, match="round 3 has not come; the last one is 0"):
        office.desk("b", question, wire.beside(3))
    for beside in (b"", b"soon", b"9" * 5000):
        with pytest.raises(LNTrustError, match="must be a round, in digits"):
            office.desk("b", question, beside)
    assert office.refusals() == {"round": 4}


def test_who_finds_the_door_busy_is_counted(office: Office) -> None:
    office.desk.busy("c")
    assert office.refusals() == {"busy": 1}
    assert office.books.counted("queries in") == {"c": 1}


def test_every_byte_is_booked(office: Office) -> None:
    greeting, question = encode(wire.hello(office.facts())), encode(wire.question(X, 0))
    out = len(office.desk("b", greeting)) + len(office.desk("b", question))
    traffic = office.books.traffic()
    assert sum(traffic["in"].values()) == len(greeting) + len(question)
    assert sum(traffic["out"].values()) == out
    phases = {phase for phase, _, _ in office.books.ledger}
    assert phases == {"hello", "served"}


def test_nothing_asked_nothing_answered(office: Office) -> None:
    office.hello()
    answer = office.say("b", wire.question(X[:0], 0))
    assert wire.heard(answer, 0, 3).shape == (0, 3)
