"""The query handler: who is answered, who is refused and why; and all of it is counted."""

import logging
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray
from small_nodes import SHAPE, blobs, settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.learner import LiveLearner, Snapshot
from lntrust.network.codec import PROTOCOL, Message, decode, encode, size
from lntrust.network.encodings import ReplyEncoding

X = blobs(3, 5)[0]
FACTS = wire.facts(settings().input, 3, 4)
NEIGHBOURS = [{"name": "b"}, {"name": "c"}, {"name": "s", "url": "http://h/v2/models/m"}]


def changed(place: tuple[int, ...], number: float) -> ndarray:
    x = X.copy()
    x[place] = number
    return x


class Handling:
    """A query handler with its counters, a model, and somebody who asks."""

    def __init__(self, **changes: Any) -> None:
        self.settings = settings(neighbours=NEIGHBOURS, **changes)
        self.traffic = TrafficCounters([each.name for each in self.settings.neighbours])
        self.snapshot = LiveLearner(self.settings, load_data(self.settings)).snapshot(4)
        self.snapshots = SnapshotStore(self.settings.network.clock == "lockstep", 0.05)
        self.snapshots.put(self.snapshot, 0)
        self.handler = QueryHandler(self.settings, self.traffic, self.snapshots.at, lambda: FACTS)

    def answer(self, p: ndarray) -> None:
        """From now on the model says this."""
        self.snapshots.put(Snapshot(7, lambda x: x, lambda x: p[: len(x)]), 0)

    def say(self, asker: str, message: Message) -> Message:
        return decode(self.handler(asker, encode(message)))

    def hello(self, asker: str = "b", **others: Any) -> Message:
        return self.say(asker, wire.hello({**FACTS, **others}))

    def refusals(self) -> dict[str, int]:
        return self.traffic.counted("refusals")


@pytest.fixture
def handling() -> Handling:
    return Handling()


@pytest.fixture
def greeted(handling: Handling) -> Handling:
    handling.hello()
    return handling


def test_hello_first_then_the_models_own_answer(handling: Handling) -> None:
    """And who has changed is a stranger again."""
    with pytest.raises(LNTrustError, match=wire.HELLO_FIRST):
        handling.say("b", wire.question(X))
    greeting = handling.hello()
    assert greeting.kind == "reply"
    assert wire.facts_in(greeting) == FACTS
    for count in (len(X), 0):
        answer = handling.say("b", wire.question(X[:count], 7))
        assert (answer.round, answer.version) == (7, 4)
        p = wire.probabilities_in(answer, count, 3)
        np.testing.assert_array_equal(p, handling.snapshot.predict(X)[:count])
    with pytest.raises(LNTrustError, match=wire.HELLO_FIRST):
        handling.say("c", wire.question(X))  # one's hello is not another's
    with pytest.raises(LNTrustError, match=r"class 0 is 'ant' here and 'bee' there"):
        handling.hello(classes=["bee", "ant", "cat"])
    with pytest.raises(LNTrustError, match=wire.HELLO_FIRST):
        handling.say("b", wire.question(X))
    handling.handler.busy("c")  # as the door says
    assert handling.traffic.counted("queries in") == {"b": 6, "c": 2}
    assert handling.refusals() == {"hello": 3, "mismatch": 1, "busy": 1}


def test_two_that_only_ask_are_noticed_by_their_hellos(handling: Handling) -> None:
    duplicates = handling.handler.duplicates
    for session in ("one", "two", "", 7, "x" * 1000):
        handling.hello("b", session=session)
    assert duplicates.count("b", time.monotonic()) == 1
    handling.hello("b", session="one")
    assert duplicates.count("b", time.monotonic()) == 2


def test_a_model_that_fails_on_an_input(greeted: Handling, caplog: pytest.LogCaptureFixture) -> None:
    def fail(x: object) -> Any:
        raise ValueError("no\nsuch\nnumber" * 1000)

    greeted.snapshots.put(Snapshot(5, lambda x: x, fail), 0)
    with pytest.raises(LNTrustError, match=r"^inputs: this node's model fails on them$"):
        greeted.say("b", wire.question(X))
    assert greeted.refusals() == {"unsound": 1}
    (record,) = caplog.records
    assert len(record.__dict__["fields"]["error"]) < 500
    assert record.exc_info is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.5, 7.0])
def test_what_is_no_probability_is_not_made_to_look_like_one(greeted: Handling, wrong: float) -> None:
    p = np.full((5, 3), 1 / 3, dtype=np.float32)
    p[2, 1] = wrong
    greeted.answer(p)
    for encoding in ("top2", "float32"):
        with pytest.raises(LNTrustError, match=r"^inputs: this node's answers are no probabilities"):
            greeted.say("b", wire.question(X, 0, ReplyEncoding(encoding)))
    assert greeted.refusals() == {"unsound": 2}


@pytest.mark.parametrize("name", ["float32", "uint8", "top1", "top2", "top50"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_it_replies_in_the_encoding_asked_for(name: str, precision: str) -> None:
    p = np.array([[0.2, 0.8, 0], [1, 0, 0], [0.5, 0.25, 0.25], [0.4, 0.4, 0.2]], dtype=np.float32)
    """And every byte is counted."""
    encoding, handling = ReplyEncoding(name), Handling(training={"precision": precision})
    handling.answer(p)
    greeting, question = encode(wire.hello(FACTS)), encode(wire.question(X[:4], 0, encoding))
    greeted, data = handling.handler("b", greeting), handling.handler("b", question)
    assert set(decode(data).tensors) == set(encoding.specs(4, 3))
    exact = encoding.heard(torch.from_numpy(p).to(getattr(torch, precision))).float().numpy()
    np.testing.assert_array_equal(wire.probabilities_in(decode(data), 4, 3, encoding), exact)
    traffic = handling.traffic.bytes_by_kind()
    assert sum(traffic["in"].values()) == len(greeting) + len(question)
    assert sum(traffic["out"].values()) == len(greeted) + len(data)
    served = {(phase, kind): rows for phase, kind, rows in handling.traffic.ledger}["served", "reply"]
    assert served[0, :2].sum() == len(data)
    assert served[0, 0] == size(encoding.specs(4, 3)).payload


# -- quotas ---------------------------------------------------------------------------------------


def test_a_quota_is_each_ones_own() -> None:
    handling = Handling(limits={"rate": 1e-3, "burst": 7})
    for name in ("b", "c"):
        handling.hello(name)
    with pytest.raises(LNTrustError, match="quota: 8 examples can be asked about never at once"):
        handling.say("b", wire.question(np.zeros((8, *SHAPE), np.float32)))
    handling.say("b", wire.question(X))  # five of seven
    with pytest.raises(LNTrustError, match=r"quota: 5 examples can be asked about in \d+\.\d s"):
        handling.say("b", wire.question(X))
    handling.say("c", wire.question(X))
    handling.say("b", wire.question(X[:2]))  # what is left
    handling.hello("b")  # a hello is about no example
    assert handling.refusals() == {"quota": 2}


CROWDED = Message("query", {f"t{k}": np.zeros(0, np.uint8) for k in range(999)})


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (encode(wire.hello(FACTS)), True),
        (encode(wire.hello({**FACTS, "classes": ["bee", "ant", "cat"]})), False),
        (encode(wire.question(X[:0])), True),
        (encode(wire.question(X[:, :, :2])), True),
        (encode(wire.question(changed((0, 0, 0, 0), np.nan))), True),
        (encode(Message("query", {wire.INPUTS: X}, version=-2)), True),
        (encode(Message("query", {})), True),
        (b"\xff" * 100, True),
        (encode(CROWDED), True),
    ],
    ids=["hello", "another's hello", "empty", "shape", "NaN", "form", "nothing", "garbage", "crowded"],
)
def test_every_message_counts(
    greeted: Handling, data: bytes, good: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one about no example; and it uses up neither another neighbour's quota nor that of examples."""
    greeted.hello("c")
    with caplog.at_level(logging.INFO, "lntrust.fleet"):
        for _ in range(500):
            with suppress(LNTrustError):
                greeted.handler("b", data)
    assert greeted.refusals()["quota"] > 100
    assert len(caplog.records) <= 6, "a log that others can fill is no log"
    greeted.say("c", wire.question(X))
    if good:
        greeted.say("b", wire.question(X))


# -- what is no question --------------------------------------------------------------------------


OLD = encode(wire.question(X))
OLD = OLD.replace(np.array([PROTOCOL, 0, 0, 0], "<i8").tobytes(), np.array([77, 0, 0, 0], "<i8").tobytes())
NO_INPUTS, SHAPE_WANTED = "a question needs a tensor 'inputs'", r"must be float32\[m, 1, 4, 4\]"


@pytest.mark.parametrize(
    ("data", "message", "reason"),
    [
        (b"", "not safetensors", "malformed"),
        (b"\xff" * 100, "not safetensors", "malformed"),
        (encode(wire.question(X))[:-5], "not safetensors", "malformed"),
        (CROWDED, r"its header has \d+ bytes; at most 4096 are read", "malformed"),
        (OLD, "speaks protocol 77; this node speaks", "protocol"),
        (Message("query", {wire.HELLO: np.zeros(3, np.uint8)}), "not JSON", "malformed"),
        (Message("query", {}), NO_INPUTS, "shape"),
        (Message("parameters", {"w": X}), NO_INPUTS, "shape"),
        (wire.reply(X[:, 0, 0], 0, 0), NO_INPUTS, "shape"),
        (wire.question(X[0]), SHAPE_WANTED, "shape"),
        (wire.question(X.astype(np.float64)), SHAPE_WANTED, "shape"),
        (wire.question(X[:, :, :2]), SHAPE_WANTED, "shape"),
        (wire.question(changed((3, 0, 1, 2), np.nan)), "^inputs: row 3, column 0, 1, 2 is nan; all", "input"),
        (wire.question(changed((0, 0, 1, 2), -np.inf)), "^inputs: row 0, column 0, 1, 2 is -inf", "input"),
        (Message("query", {wire.INPUTS: X}, version=-2), "form -2 are unknown here; known are 0", "form"),
        (Message("query", {wire.INPUTS: X}, version=2**62), f"form {2**62} are unknown here", "form"),
    ],
)
def test_what_is_no_question(greeted: Handling, data: Any, message: str, reason: str) -> None:
    with pytest.raises(LNTrustError, match=message):
        greeted.handler("b", data if isinstance(data, bytes) else encode(data))
    assert greeted.refusals() == {reason: 1}
    greeted.say("b", wire.question(X))  # its hello still counts


def test_in_lockstep_a_round_that_does_not_come() -> None:
    handling = Handling(network={"clock": "lockstep", "number": 0})
    handling.hello()
    question = encode(wire.question(X))
    for attachment in (None, b"0", b"-1"):
        handling.handler("b", question, attachment)
    with pytest.raises(LNTrustError, match="round 3 has not come; the last one is 0"):
        handling.handler("b", question, b"3")
    for attachment in (b"", b"soon", b"9" * 5000):
        with pytest.raises(LNTrustError, match="must be a round, in digits"):
            handling.handler("b", question, attachment)
    assert handling.refusals() == {"round": 4}
