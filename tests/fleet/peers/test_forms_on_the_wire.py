"""Replies in other forms than float32: asked for by number, checked as if everybody lied."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy import ndarray
from small_nodes import settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.query_handler import QueryHandler
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.training.learner import Snapshot
from lntrust.network.codec import Message, decode, encode, size
from lntrust.network.encodings import ReplyEncoding

FORMS = st.sampled_from(["uint8", "top1", "top2", "top3", "top300"]).map(ReplyEncoding)
X = np.zeros((4, 1, 4, 4), dtype=np.float32)


def rows(m: int, C: int) -> st.SearchStrategy[ndarray]:
    """Probabilities, some of them 0."""
    numbers = hnp.arrays(np.float64, (m, C), elements=st.floats(0, 1)).map(lambda p: np.round(p, 3))
    return numbers.map(lambda p: ((p + 1e-9) / (p + 1e-9).sum(1, keepdims=True)).astype(np.float32))


def desk(p: ndarray, **changes: Any) -> QueryHandler:
    mine = settings(neighbours=[{"name": "b"}], **changes)
    facts = wire.facts(mine.input, 1, 7)
    snapshot = Snapshot(7, lambda x: x, lambda x: p[: len(x)])
    at = QueryHandler(mine, TrafficCounters(["b"]), lambda _: snapshot, lambda: facts)
    at("b", encode(wire.hello(facts)))
    return at


@given(FORMS, st.sampled_from([2, 3, 10, 300]), st.integers(0, 4), st.data())
def test_what_is_heard_is_what_a_simulation_hears(
    form: ReplyEncoding, C: int, m: int, data: st.DataObject
) -> None:
    p = data.draw(rows(m, C))
    message = decode(encode(wire.reply(p, 3, 9, form)))
    assert (message.round, message.version) == (3, 9)
    got = wire.heard(message, m, C, form)
    np.testing.assert_array_equal(got, form.heard(torch.from_numpy(p)).numpy())
    assert wire.are_probabilities(got)
    expected = size(form.specs(m, C))
    assert len(encode(wire.reply(p, 3, 9, form))) == expected.total


@given(FORMS, st.integers(-1, 2**40))
def test_a_question_for_another_form_is_not_a_byte_longer(form: ReplyEncoding, round_: int) -> None:
    plain, other = wire.question(X, round_), wire.question(X, round_, form)
    assert encode(plain) == encode(Message("query", {wire.INPUTS: X}, round=round_)), "as it always was"
    assert len(encode(plain)) == len(encode(other))
    assert wire.wanted_form(decode(encode(other))) == form
    assert wire.wanted_form(decode(encode(plain))) == ReplyEncoding()


@st.composite
def parts(draw: st.DrawFn) -> dict[str, ndarray]:
    """Tensors with the right names, and often the right shapes, with anything in them."""
    names = st.sampled_from(["codes", "classes", "probabilities", "other"])
    dtypes = st.sampled_from(["uint8", "uint8", "int16", "int64", "float32", "bool"])
    shapes = st.sampled_from([(3, 10), (3, 3), (3, 3), (3, 2), (2, 3), (3,), (0,), (), (3, 3, 1)])
    out = {}
    for name in draw(st.lists(names, unique=True, max_size=3)):
        dtype = np.dtype(draw(dtypes))
        small = dtype.kind in "iu" and draw(st.booleans())
        elements = st.integers(0, 12) if small else None
        out[name] = draw(hnp.arrays(dtype, draw(shapes), elements=elements))
    return out


@given(
    parts(),
    st.sampled_from(["uint8", "top3", "top10", "float32"]).map(ReplyEncoding),
    st.sampled_from(["reply", "query"]),
)
def test_garbage_is_refused_or_made_of_probabilities(
    held: dict[str, ndarray], form: ReplyEncoding, kind: Any
) -> None:
    message = decode(encode(Message(kind, held)))
    try:
        p = wire.heard(message, 3, 10, form)
    except LNTrustError:
        return
    assert kind == "reply"
    assert p.shape == (3, 10)
    assert p.dtype == np.float32
    assert "probabilities" in held or wire.are_probabilities(p)
    p += 0  # it can be written to


def told(**held: Any) -> Message:
    return Message("reply", {name: np.array(*each) for name, each in held.items()})


@pytest.mark.parametrize(
    ("message", "form", "why"),
    [
        (told(codes=([[1, 2]], "uint8")), "top2", "a reply of form top2 needs a tensor 'classes'"),
        (told(classes=([[1, 2]], "uint8")), "top2", "needs a tensor 'codes'"),
        (told(codes=([[1, 2]], "uint8")), "uint8", r"codes are uint8\[1, 2\]; must be uint8\[1, 3\]"),
        (told(codes=([[1, 2, 3]], "int16")), "uint8", r"codes are int16\[1, 3\]; must be uint8\[1, 3\]"),
        (told(codes=([[0, 0, 0]], "uint8")), "uint8", "codes are all 0"),
        (told(codes=([[0, 0]], "uint8"), classes=([[0, 1]], "uint8")), "top2", "codes are all 0"),
        (told(codes=([[9, 1]], "uint8"), classes=([[0, 3]], "uint8")), "top2", "not all among 0…2"),
        (told(codes=([[9, 1]], "uint8"), classes=([[2, 2]], "uint8")), "top2", "named more than once"),
        (told(codes=([[9, 1]], "uint8"), classes=([[2, 1]], "int16")), "top2", "classes are int16"),
        (told(probabilities=([[1, 0, 0]], "float64")), "top2", "reply is float64"),
        (told(other=([1], "uint8")), "float32", "needs a tensor 'probabilities'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(message: Message, form: str, why: str) -> None:
    with pytest.raises(LNTrustError, match=why):
        wire.heard(message, 1, 3, ReplyEncoding(form))


def test_class_numbers_below_0_are_none_of_ours() -> None:
    message = told(codes=([[9, 1]], "uint8"), classes=([[2, -1]], "int16"))
    with pytest.raises(LNTrustError, match="not all among 0…299"):
        wire.heard(message, 1, 300, ReplyEncoding("top2"))


def test_float32_is_understood_whatever_was_asked_for() -> None:
    p = np.array([[0.25, 0.75, 0]], dtype=np.float32)
    np.testing.assert_array_equal(wire.heard(wire.reply(p, 0, 0), 1, 3, ReplyEncoding("top1")), p)


# -- the desk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "uint8", "top1", "top2", "top50"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_desk_answers_in_the_form_asked_for(name: str, precision: str) -> None:
    p = np.array([[0.2, 0.8, 0], [1, 0, 0], [0.5, 0.25, 0.25], [0.4, 0.4, 0.2]], dtype=np.float32)
    form, at = ReplyEncoding(name), desk(p, training={"precision": precision})
    data = at("b", encode(wire.question(X, 0, form)))
    assert set(decode(data).tensors) == set(form.specs(4, 3))
    exact = torch.from_numpy(p).to(getattr(torch, precision))
    np.testing.assert_array_equal(wire.heard(decode(data), 4, 3, form), form.heard(exact).float().numpy())
    served = {(phase, kind): book for phase, kind, book in at._books.ledger}["served", "reply"]
    assert served[0, :2].sum() == len(data)
    assert served[0, 0] == size(form.specs(4, 3)).payload


@pytest.mark.parametrize("number", [-2, 10_000, 2**62, -(2**63)])
def test_an_unknown_form_is_refused_by_name(number: int) -> None:
    at = desk(np.full((4, 3), 1 / 3, dtype=np.float32))
    with pytest.raises(LNTrustError, match=f"replies of form {number} are unknown here; known are 0"):
        at("b", encode(Message("query", {wire.INPUTS: X}, version=number)))
    assert at._books.counted("refusals") == {"form": 1}


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.5, 7.0])
def test_what_is_no_probability_is_not_made_to_look_like_one(wrong: float) -> None:
    p = np.full((4, 3), 1 / 3, dtype=np.float32)
    p[2, 1] = wrong
    at = desk(p)
    for form in ("top2", "float32"):
        with pytest.raises(LNTrustError, match=r"^inputs: this node's answers are no probabilities"):
            at("b", encode(wire.question(X, 0, ReplyEncoding(form))))
    assert at._books.counted("refusals") == {"unsound": 2}
