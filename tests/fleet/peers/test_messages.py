"""What nodes say to each other: questions that fit, differences that are named, replies in any encoding."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy import ndarray
from small_nodes import settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.zenoh_config import LIMIT
from lntrust.fleet.settings import DTYPES, InputSettings
from lntrust.network.codec import PROTOCOL, Message, decode, encode, size
from lntrust.network.encodings import ReplyEncoding

names = st.lists(st.text("abcä'\"\\", min_size=1, max_size=4), min_size=2, max_size=6, unique=True)
inputs = st.builds(
    InputSettings,
    name=st.sampled_from(["input", "pixels"]),
    shape=st.lists(st.integers(1, 9), max_size=3).map(tuple),
    dtype=st.sampled_from(DTYPES),
    classes=names.map(tuple),
)
FACTS = wire.facts(settings().input, 3, 7)


# -- meeting --------------------------------------------------------------------------------------


@given(inputs, st.integers(0, 999_999), st.integers(0, 2**62))
def test_a_hello_arrives_as_it_was_said(wanted: InputSettings, degree: int, version: int) -> None:
    mine = wire.facts(wanted, degree, version)
    message = decode(encode(wire.hello(mine)))
    assert wire.facts_in(message) == mine
    assert message.version == version
    assert wire.mismatch(mine, wire.facts_in(message)) is None


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("protocol", 2, f"protocol is {PROTOCOL} here and 2 there"),
        ("input", "pixels", "input is 'input' here and 'pixels' there"),
        ("shape", [4, 4], "shape is [1, 4, 4] here and [4, 4] there"),
        ("dtype", "uint8", "dtype is 'float32' here and 'uint8' there"),
        ("dtype", None, "dtype is 'float32' here and None there"),
        ("classes", ["ant"], "classes are ['ant', 'bee', 'cat'] here and ['ant'] there"),
        ("classes", 3, "classes are ['ant', 'bee', 'cat'] here and 3 there"),
        ("classes", [["ant"], {}, None], "and [['ant'], {}, None] there"),
        ("classes", ["x" * 10_000], "…"),
        ("classes", ["ant", "cat", "bee"], "in another order: class 1 is 'bee' here and 'cat' there"),
    ],
)
def test_a_difference_is_named_with_both_sides(field: str, value: Any, expected: str) -> None:
    found = wire.mismatch(FACTS, {**FACTS, field: value})
    assert found is not None
    assert expected in found
    assert len(found) < 500


@pytest.mark.parametrize("wrong", [None, -1, 1 << 60, 2.5, "3" * 65, [3]])
def test_what_is_no_degree_number_or_session_counts_as_not_said(wrong: Any) -> None:
    hello = wire.hello({**FACTS, "degree": wrong, "most": wrong, "session": wrong})
    assert wire.facts_in(hello) == {**FACTS, "degree": 0, "most": wire.ANY, "session": ""}


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (np.zeros(3, dtype=np.int8), "must be a tensor of bytes"),
        (np.zeros((3, 3), dtype=np.uint8), "must be a tensor of bytes"),
        (np.zeros(100_000, dtype=np.uint8), "must be a tensor of bytes"),
        (np.zeros(0, dtype=np.uint8), "not JSON"),
        (np.full(10, 0xFF, dtype=np.uint8), "not JSON"),
        (np.frombuffer(b"[" * 60_000, dtype=np.uint8), "not JSON"),
        (np.frombuffer(b"[1]", dtype=np.uint8), "must be a JSON object"),
    ],
)
def test_a_hello_that_is_none(tensor: ndarray, expected: str) -> None:
    with pytest.raises(LNTrustError, match=f"hello: {expected}"):
        wire.facts_in(Message("query", {wire.HELLO: tensor}))
    with pytest.raises(LNTrustError, match="must be a tensor of bytes"):
        wire.facts_in(Message("query", {}))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("inputs: row 0, column 1 is nan; all must be finite", "input"),
        ("HTTP 400: input 'x': row 0 is nan", "input"),
        ("HTTP 422: no", "input"),
        ("HTTP 500: no", "refused"),
        ("HTTP 404: no", "refused"),
        ("inputs are float32[3]; must be float64[m, 8, 8]", "refused"),
        ("internal error: ValueError", "refused"),
    ],
)
def test_whose_failure_a_refusal_is(reason: str, kind: str) -> None:
    assert wire.failure_of(reason).kind == kind


# -- asking ---------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 80), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.one_of(st.integers(2, 20), st.integers(2, 5000)),
)
def test_as_many_as_fit_into_a_message_and_not_one_more(
    shape: tuple[int, ...], dtype: str, count: int
) -> None:
    wanted = InputSettings(shape=shape, dtype=dtype, classes=tuple(map(str, range(count))))
    m = wire.at_once(wanted)

    def largest(m: int) -> int:
        """Bytes of the larger of question and reply."""
        question = size({wire.INPUTS: ((m, *shape), dtype)}).total
        return max(question, size({wire.PROBABILITIES: ((m, count), "float32")}).total)

    assert largest(m) <= LIMIT
    # Headers are counted with room for the longest number of inputs, a few bytes more than they take.
    assert largest(m + 1) > LIMIT - 32


def test_an_input_too_large_for_any_message() -> None:
    wanted = InputSettings(shape=(LIMIT,), dtype="uint8", classes=("a", "b"))
    with pytest.raises(LNTrustError, match=rf"shape \[{LIMIT}\]: \d+ bytes in a message; at most {LIMIT}"):
        wire.at_once(wanted)


# -- encodings ------------------------------------------------------------------------------------

ENCODINGS = st.sampled_from(["uint8", "top1", "top2", "top3", "top300"]).map(ReplyEncoding)
X = np.zeros((4, 1, 4, 4), dtype=np.float32)


@pytest.mark.parametrize("C", [2, 3, 300])
@pytest.mark.parametrize("m", [0, 4])
@pytest.mark.parametrize("name", ["uint8", "top1", "top2", "top300"])
def test_a_reply_holds_what_it_holds_in_a_simulation(name: str, m: int, C: int) -> None:
    encoding = ReplyEncoding(name)
    p = np.random.default_rng(C).dirichlet(np.full(C, 0.1), m).astype(np.float32)  # some are nearly 0
    data = encode(wire.reply(p, 3, 9, encoding))
    got = wire.probabilities_in(decode(data), m, C, encoding)
    np.testing.assert_array_equal(got, encoding.heard(torch.from_numpy(p)).numpy())
    assert wire.are_probabilities(got)
    got += 0  # it can be written to
    assert len(data) == size(encoding.specs(m, C)).total


@given(ENCODINGS, st.integers(-1, 2**40))
def test_a_question_for_another_encoding_is_not_a_byte_longer(encoding: ReplyEncoding, round_: int) -> None:
    plain, other = wire.question(X, round_), wire.question(X, round_, encoding)
    assert encode(plain) == encode(Message("query", {wire.INPUTS: X}, round=round_)), "as it always was"
    assert len(encode(plain)) == len(encode(other))
    assert wire.encoding_in(decode(encode(other))) == encoding
    assert wire.encoding_in(decode(encode(plain))) == ReplyEncoding()


def reply(**held: Any) -> Message:
    return Message("reply", {name: np.array(*each) for name, each in held.items()})


@pytest.mark.parametrize(
    ("message", "encoding", "why"),
    [
        (reply(codes=([[1, 2]], "uint8")), "top2", "a reply of form top2 needs a tensor 'classes'"),
        (reply(classes=([[1, 2]], "uint8")), "top2", "needs a tensor 'codes'"),
        (reply(codes=([[1, 2]], "uint8")), "uint8", r"codes are uint8\[1, 2\]; must be uint8\[1, 3\]"),
        (reply(codes=([[1, 2, 3]], "int16")), "uint8", r"codes are int16\[1, 3\]; must be uint8\[1, 3\]"),
        (reply(codes=([[0, 0, 0]], "uint8")), "uint8", "codes are all 0"),
        (reply(codes=([[0, 0]], "uint8"), classes=([[0, 1]], "uint8")), "top2", "codes are all 0"),
        (reply(codes=([[9, 1]], "uint8"), classes=([[0, 3]], "uint8")), "top2", "not all among 0…2"),
        (reply(codes=([[9, 1]], "uint8"), classes=([[2, 2]], "uint8")), "top2", "named more than once"),
        (reply(codes=([[9, 1]], "uint8"), classes=([[2, 1]], "int16")), "top2", "classes are int16"),
        (reply(probabilities=([[1, 0, 0]], "float64")), "top2", r"are float64.*; must be float32\[1, 3\]"),
        (reply(probabilities=([1, 0, 0], "float32")), "float32", r"float32\[3\]; must be float32\[1, 3\]"),
        (reply(other=([1], "uint8")), "float32", "needs a tensor 'probabilities'"),
        (wire.question(np.eye(3, dtype=np.float32)[:1]), "float32", "needs a tensor 'probabilities'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_reply(message: Message, encoding: str, why: str) -> None:
    with pytest.raises(LNTrustError, match=why):
        wire.probabilities_in(message, 1, 3, ReplyEncoding(encoding))


def test_class_numbers_below_0_are_none_of_ours() -> None:
    message = reply(codes=([[9, 1]], "uint8"), classes=([[2, -1]], "int16"))
    with pytest.raises(LNTrustError, match="not all among 0…299"):
        wire.probabilities_in(message, 1, 300, ReplyEncoding("top2"))


def test_float32_is_understood_whatever_was_asked_for() -> None:
    p = np.array([[0.25, 0.75, 0]], dtype=np.float32)
    np.testing.assert_array_equal(wire.probabilities_in(wire.reply(p, 0, 0), 1, 3, ReplyEncoding("top1")), p)
