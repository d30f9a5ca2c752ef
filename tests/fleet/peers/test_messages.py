"""What nodes say to each other: questions that fit, and differences that are named."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy import ndarray
from small_nodes import settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.transport import LIMIT
from lntrust.fleet.settings import DTYPES, InputSettings
from lntrust.network.codec import PROTOCOL, Message, decode, encode, size

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
    assert wire.told(message) == mine
    assert message.version == version
    assert wire.degree_of(wire.told(message)) == degree
    assert wire.mismatch(mine, wire.told(message)) is None


@given(inputs, inputs, st.booleans())
def test_both_find_a_difference_or_neither(one: InputSettings, other: InputSettings, near: bool) -> None:
    if near:  # so that the classes are looked at
        other = one.model_copy(update={"classes": other.classes})
    a, b = wire.facts(one, 1, 1), wire.facts(other, 2, 2)
    here, there = wire.mismatch(a, b), wire.mismatch(b, a)
    assert (here is None) == (there is None) == (one == other)
    if here is not None and there is not None:
        assert here.split()[0] == there.split()[0], "and it is the same one"


@given(inputs, st.randoms())
def test_permuted_classes_are_named(one: InputSettings, random: Any) -> None:
    shuffled = list(one.classes)
    random.shuffle(shuffled)
    assume(tuple(shuffled) != one.classes)
    other = one.model_copy(update={"classes": tuple(shuffled)})
    told = wire.mismatch(wire.facts(one, 1, 1), wire.facts(other, 1, 1))
    place = next(i for i, (a, b) in enumerate(zip(one.classes, shuffled, strict=True)) if a != b)
    assert told == (
        f"classes are in another order: class {place} is {one.classes[place]!r} here and "
        f"{shuffled[place]!r} there"
    )


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("protocol", 2, f"protocol is {PROTOCOL} here and 2 there"),
        ("input", "pixels", "input is 'input' here and 'pixels' there"),
        ("shape", [4, 4], "shape is [1, 4, 4] here and [4, 4] there"),
        ("dtype", "uint8", "dtype is 'float32' here and 'uint8' there"),
        ("dtype", None, "dtype is 'float32' here and None there"),
        ("classes", ["ant"], "classes are ['ant', 'bee', 'cat'] here and ['ant'] there"),
        ("classes", 3, "classes are ['ant', 'bee', 'cat'] here and 3 there"),
        ("classes", [["ant"], {}, None], "and [['ant'], {}, None] there"),
    ],
)
def test_a_difference_is_told_with_both_sides(field: str, value: Any, told: str) -> None:
    found = wire.mismatch(FACTS, {**FACTS, field: value})
    assert found is not None
    assert told in found


def test_a_stranger_cannot_make_a_message_long() -> None:
    found = wire.mismatch(FACTS, {**FACTS, "classes": ["x" * 10_000]})
    assert found is not None
    assert len(found) < 500


@pytest.mark.parametrize("degree", [None, -1, 1_000_000, 2.5, "3", [3]])
def test_a_degree_that_is_none_counts_as_0(degree: Any) -> None:
    assert wire.degree_of({"degree": degree}) == 0


@pytest.mark.parametrize(
    ("tensor", "told"),
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
def test_a_hello_that_is_none(tensor: ndarray, told: str) -> None:
    with pytest.raises(LNTrustError, match=f"hello: {told}"):
        wire.told(Message("query", {wire.HELLO: tensor}))
    with pytest.raises(LNTrustError, match="must be a tensor of bytes"):
        wire.told(Message("query", {}))


# -- asking ---------------------------------------------------------------------------------------


@given(inputs, st.integers(0, 5), st.integers(-1, 2**40), st.data())
def test_questions_and_replies_arrive_as_they_were(
    wanted: InputSettings, m: int, round_: int, data: st.DataObject
) -> None:
    x = data.draw(hnp.arrays(wanted.dtype, (m, *wanted.shape)))
    message = decode(encode(wire.question(x, round_)))
    assert message.round == round_
    got = wire.asked(message, wanted)
    assert got.dtype == x.dtype
    assert got.tobytes() == x.tobytes(), "to the bit, whatever the numbers are"
    p = data.draw(hnp.arrays(np.float32, (m, len(wanted.classes))))
    answer = decode(encode(wire.reply(p, round_, 9)))
    assert (answer.round, answer.version) == (round_, 9)
    assert wire.heard(answer, m, len(wanted.classes)).tobytes() == p.tobytes()


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.zeros((2, 4, 4), np.float32), r"inputs are float32\[2, 4, 4\]; must be float32\[m, 1, 4, 4\]"),
        (np.zeros((2, 1, 4, 4), np.float64), r"inputs are float64\[2, 1, 4, 4\]"),
        (np.zeros((), np.float32), r"inputs are float32\[\]"),
    ],
)
def test_questions_that_do_not_fit(x: ndarray, told: str) -> None:
    with pytest.raises(LNTrustError, match=told):
        wire.asked(wire.question(x, 0), settings().input)


def test_what_is_no_question_or_no_reply() -> None:
    p = np.zeros((2, 3), np.float32)
    with pytest.raises(LNTrustError, match="needs a tensor 'inputs'; this is a reply"):
        wire.asked(wire.reply(p, 0, 0), settings().input)
    with pytest.raises(LNTrustError, match="needs a tensor 'probabilities'"):
        wire.heard(wire.question(p, 0), 2, 3)
    for wrong in (p[:1], p[:, :2], p.astype(np.float64), p[0]):
        with pytest.raises(LNTrustError, match=r"reply is .*; must be float32\[2, 3\]"):
            wire.heard(wire.reply(wrong, 0, 0), 2, 3)


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


def test_the_largest_question_really_fits() -> None:
    wanted = InputSettings(shape=(3, 32, 32), dtype="uint8", classes=tuple(map(str, range(10))))
    m = wire.at_once(wanted)
    x = np.zeros((m, *wanted.shape), np.uint8)
    assert len(encode(wire.question(x, 2**62))) <= LIMIT
    assert len(encode(wire.question(np.concatenate([x, x[:1]]), 0))) > LIMIT
    assert len(encode(wire.reply(np.zeros((m, 10), np.float32), 2**62, 2**62))) <= LIMIT


def test_an_input_too_large_for_any_message() -> None:
    wanted = InputSettings(shape=(LIMIT,), dtype="uint8", classes=("a", "b"))
    with pytest.raises(
        LNTrustError, match=rf"input.shape \[{LIMIT}\]: \d+ bytes in a message; at most {LIMIT}"
    ):
        wire.at_once(wanted)
