"""Whatever bytes a neighbour sends: a reason or an answer comes out, and nothing else happens."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import small_nodes
from fleets import Fleet
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from live_peers import is_hello
from numpy import ndarray
from rogue import Rogue

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.peers.transport import Door
from lntrust.fleet.settings import InputSettings
from lntrust.fleet.training.learner import Snapshot
from lntrust.network.codec import Message, decode, encode
from lntrust.network.encodings import ReplyEncoding

INPUT = InputSettings(shape=(8, 8), dtype="uint8", classes=tuple("0123456789"))
SETTINGS = small_nodes.settings(
    input=INPUT.model_dump(),
    neighbours=[{"name": "b"}],
    limits={"rate": 1e9, "burst": 1e9, "failures": 10_000, "patience": 0.5},
    trust={"reply": "top3"},
)
FACTS = wire.facts(INPUT, 1, 7)
X = np.zeros((3, 8, 8), dtype=np.uint8)

NUMBERS = st.integers(-(2**63), 2**63 - 1)
DTYPES = st.sampled_from(["uint8", "int64", "float16", "float32", "float64", "bool"])
SHAPES = st.one_of(
    st.lists(st.integers(0, 4), max_size=5).map(tuple), st.sampled_from([(3, 8, 8), (3, 10), (3, 3)])
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def tensors(draw: st.DrawFn) -> ndarray:
    shape, dtype = draw(SHAPES), np.dtype(draw(DTYPES))
    size = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size)) if size <= 400 else bytes(size)
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype=dtype).reshape(shape)


# Facts with something else in them; or not even that.
ABOUT = (
    st.dictionaries(st.sampled_from(list(FACTS)), JSON, max_size=3).map(lambda other: FACTS | other) | JSON
)
HELLOS = ABOUT.map(lambda about: np.frombuffer(json.dumps(about).encode(), dtype=np.uint8))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Well formed, and not what was expected."""
    names = st.sampled_from([wire.INPUTS, wire.PROBABILITIES, "codes", "classes", "other", "é\n"])
    held = draw(st.dictionaries(names, tensors(), max_size=3))
    if draw(st.booleans()):
        held[wire.HELLO] = draw(HELLOS | tensors())
    kind = draw(st.sampled_from(["query", "reply", "parameters", "anchors"]))
    return Message(kind, held, draw(NUMBERS), draw(st.one_of(NUMBERS, st.integers(-2, 12))))


P = np.full((3, 10), 0.1, dtype=np.float32)
QUESTION, HELLO = encode(wire.question(X, 0)), encode(wire.hello(FACTS))
REPLY, CODES = (encode(wire.reply(P, 0, 7, ReplyEncoding(name))) for name in ("float32", "top3"))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Some bytes of a valid message are others, or are not there, or are too many."""
    data = bytearray(draw(st.sampled_from([QUESTION, HELLO, REPLY, CODES])))
    place = st.integers(0, len(data) - 1)
    for at, byte in draw(st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=4)):
        data[at] = byte
    return bytes(data[: draw(st.just(len(data)) | place)]) + draw(st.binary(max_size=8))


PAYLOADS = st.one_of(st.binary(max_size=300), messages().map(encode), mutated(), mutated(), mutated())


def header(tensors: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text + body


# What hypothesis would hardly think of: claims of a size that is not there, and text within text.
CLAIMS = [
    header({"inputs": {"dtype": "U8", "shape": [2**40, 8, 8], "data_offsets": [0, 2**46]}}),
    header({"inputs": {"dtype": "U8", "shape": [0, 2**62], "data_offsets": [0, 0]}}),
    header({"inputs": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}}),
    header({"inputs": {"dtype": "U8", "shape": [1] * 65, "data_offsets": [0, 1]}}, b"x"),
    header({"x" * 100_000: {"dtype": "z" * 100_000, "shape": [], "data_offsets": [0, 0]}}),
    (2**63).to_bytes(8, "little"),
    b"",
]


def deep(depth: int) -> bytes:
    text = b'{"protocol":' + b"[" * depth + b"]" * depth + b"}"
    return encode(Message("query", {wire.HELLO: np.frombuffer(text, dtype=np.uint8)}))


def handler() -> QueryHandler:
    snapshot = Snapshot(7, lambda x: x, lambda x: np.full((len(x), 10), 0.1, dtype=np.float32))
    return QueryHandler(SETTINGS, TrafficCounters(["b"]), lambda _: snapshot, lambda: FACTS)


@given(PAYLOADS, st.booleans())
@settings(max_examples=250)
def test_the_handler_answers_or_refuses(data: bytes, met: bool) -> None:
    at, refusal = handler(), ""
    if met:
        at("b", HELLO)
    try:
        answer = decode(at("b", data))
        assert answer.kind == "reply"
        assert met or wire.HELLO in answer.tensors
    except LNTrustError as error:
        refusal = str(error)
    assert len(refusal) < 1000
    assert len(at("b", HELLO)) > 0  # it is as it was


@pytest.mark.parametrize("data", [*CLAIMS, *(deep(depth) for depth in (10, 500, 980, 990, 1000, 30_000))])
def test_the_handler_refuses_claims(data: bytes) -> None:
    at = handler()
    at("b", HELLO)
    tracemalloc.start()
    try:
        with pytest.raises(LNTrustError) as refusal:
            at("b", data)
        assert tracemalloc.get_traced_memory()[1] < (16 << 20)
    finally:
        tracemalloc.stop()
    assert len(str(refusal.value)) < 1000


class Fuzzer(Rogue):
    """Answers with the bytes that it is given."""

    said = b""
    greets = False  # whether it does so to a hello, too

    def answer(self, asker: str, *data: bytes) -> bytes:
        return super().answer(asker, *data) if is_hello(data[0]) and not self.greets else self.said


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Neighbours, Fuzzer]]:
    """Neighbours that are one, and the one."""
    fleet = Fleet.of(tmp_path_factory.mktemp("fuzz"), "ab")
    door = Door(fleet.place("a"), handler())
    neighbours = Neighbours(SETTINGS, TrafficCounters(["b"]), door, lambda: FACTS)
    with Fuzzer(fleet.place("b"), fleet.members["b"].settings) as fuzzer:
        neighbours.wait_for_all(60)
        yield neighbours, fuzzer
    neighbours.close()
    door.close()


@given(said=PAYLOADS, greets=st.booleans())
@example(said=CLAIMS[0], greets=False)
@example(said=REPLY, greets=False)
@example(said=CODES, greets=False)
@example(said=CLAIMS[4], greets=True)
@example(said=deep(980), greets=True)
@example(said=deep(30_000), greets=True)
@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_hello_is_borne_and_a_reply_is_probabilities_or_a_failure(
    pair: tuple[Neighbours, Fuzzer], said: bytes, greets: bool
) -> None:
    neighbours, fuzzer = pair
    fuzzer.said, fuzzer.greets = said, greets
    neighbours.meet(60)
    refused = neighbours.members["b"].refused
    replies, failed = neighbours.ask(["b"], X, "probe", timeout=60)
    assert set(replies) | set(failed) == {"b"}
    for reply in replies.values():
        assert reply.probabilities.shape == (3, 10)
        assert (reply.probabilities >= 0).all()
        np.testing.assert_allclose(reply.probabilities.sum(1), 1, atol=2e-3)
    for failure in failed.values():
        assert failure.kind in (("malformed", "unsound", "refused") if refused is None else ("mismatch",))
        assert len(failure.text) < 1000, len(failure.text)
