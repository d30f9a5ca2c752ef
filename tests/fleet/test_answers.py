"""A deployed node's answer: who is asked about what, and what becomes of it when some are silent."""

import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy import ndarray

from lntrust.fleet.answers import Prediction, Trust, answer_together
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.trust.blend import AskInTurn

ME = "me"


class Street:
    """Neighbours by name, what each says about input k (row k), and who was asked about which inputs when."""

    def __init__(self, seed: int, names: str, m: int = 6, C: int = 3) -> None:
        draws = np.random.default_rng(seed)
        self.said = {n: draws.dirichlet(np.full(C, 0.3), m).astype(np.float32) for n in (ME, *names)}
        votes = draws.dirichlet(np.ones(len(names) + 1)).astype(np.float32)
        self.trust = Trust(
            votes={n: np.asarray(v) for n, v in zip((ME, *names), votes, strict=True)},
            together=True,
            probed=dict.fromkeys(names, 5),
        )
        self.x = np.arange(m)[:, None]
        self.alone = Prediction(self.said[ME], {ME: 1.0}, {ME: 9}, {})
        self.asked: list[tuple[tuple[str, ...], list[int]]] = []
        self.granted: list[float] = []
        self.failing: dict[str, Failure] = {}
        self.versions: dict[str, int] = {}

    def ask(
        self, names: Sequence[str], x: ndarray, timeout: float
    ) -> tuple[dict[str, Reply], dict[str, Failure]]:
        self.asked.append((tuple(names), x[:, 0].tolist()))
        self.granted.append(timeout)
        if any(n in self.failing and self.failing[n].kind == "silent" for n in names):
            time.sleep(timeout)
        heard = {n: Reply(self.said[n][x[:, 0]], self.versions.get(n, 5)) for n in names}
        failed = {n: self.failing[n] for n in names if n in self.failing}
        return {n: h for n, h in heard.items() if n not in failed}, failed

    def answer(self, certainty: float | None = None, seconds: float = 5.0) -> Prediction:
        return answer_together(self.trust, self.alone, self.x, self.ask, seconds, certainty)

    def in_turn(self, certainty: float) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
        """As a simulation asks: the answer, how many neighbours each input needed, and their order."""
        total = sum(map(float, self.trust.votes.values()))
        alpha = {name: float(vote) / total for name, vote in self.trust.votes.items()}
        said = {n: torch.from_numpy(p).double() for n, p in self.said.items()}
        order = sorted((n for n in alpha if n != ME), key=lambda n: -alpha[n])
        count = torch.zeros(len(self.x), dtype=torch.int64)
        answer = AskInTurn(alpha[ME] * said[ME], alpha[ME], certainty)
        for name in order:
            asked = answer.asking
            count += asked
            answer.hear(asked[:, None] * alpha[name] * said[name], alpha[name])
        return answer.blend / answer.blend.sum(-1, keepdim=True), count, order


@given(
    st.integers(0, 10_000), st.sampled_from(["", "b", "bc", "bcde"]), st.sampled_from([0.0, 0.3, 0.7, 1.0])
)
def test_as_the_simulation_asks_in_turn(seed: int, names: str, certainty: float) -> None:
    street = Street(seed, names)
    got = street.answer(certainty)
    expected, needed, order = street.in_turn(certainty)
    np.testing.assert_allclose(got.probabilities, expected.numpy(), atol=1e-6)
    counts = np.zeros(len(street.x), dtype=int)
    for _, about in street.asked:
        counts[about] += 1
    assert counts.tolist() == needed.tolist()
    assert [who for who, _ in street.asked] == [(n,) for n in order[: len(street.asked)]]
    assert sum(got.weights.values()) == pytest.approx(1)
    assert set(got.weights) == set(got.versions) == {ME, *(n for who, _ in street.asked for n in who)}
    if certainty == 1.0:
        whole = street.answer()
        assert (got.probabilities.argmax(1) == whole.probabilities.argmax(1)).all(), "as of all together"


def undecided() -> Street:
    """All say the same of two classes, so that everybody has to be asked."""
    street = Street(3, "bcd")
    for p in street.said.values():
        p[:] = [0.5, 0.5, 0.0]
    votes = dict(zip((ME, *"bcd"), np.float32([0.4, 0.3, 0.2, 0.1]), strict=True))
    street.trust.votes.update(votes)
    return street


def test_weights_are_means_over_the_inputs() -> None:
    street = undecided()
    street.said[ME][:4] = [1.0, 0.0, 0.0]  # of these it is sure enough
    got = street.answer(0.6)
    assert street.asked == [((n,), [4, 5]) for n in "bcd"]
    assert got.weights == pytest.approx({ME: (4 + 2 * 0.4) / 6, "b": 0.1, "c": 2 * 0.2 / 6, "d": 0.2 / 6})
    assert list(got.weights) == [ME, *"bcd"]


def test_one_that_keeps_silent_costs_half_and_then_all_are_asked_at_once() -> None:
    street = undecided()
    street.failing["b"] = Failure("silent", "no answer in time")
    got = street.answer(1.0, seconds=1.0)
    assert [who for who, _ in street.asked] == [("b",), ("c", "d")]
    assert max(street.granted) <= 0.5
    assert got.silent == {"b": "no answer in time"}
    assert got.weights == pytest.approx({ME: 4 / 7, "c": 2 / 7, "d": 1 / 7})


def test_one_that_refuses_costs_nothing() -> None:
    street = undecided()
    street.failing["b"] = Failure("breaker", "left alone after failures")
    street.versions["c"] = 4
    got = street.answer(1.0)
    assert [who for who, _ in street.asked] == [("b",), ("c",), ("d",)]
    assert got.weights == pytest.approx({ME: 0.8, "d": 0.2})
    assert got.silent["c"] == "its model is older (4) than the one probed (5)"
    assert "c" not in got.versions


def test_without_time_or_inputs_nobody_is_asked() -> None:
    street, empty = undecided(), Street(1, "bc", m=0)
    got = street.answer(1.0, seconds=0.0)
    assert (street.asked, got.weights, set(got.silent)) == ([], {ME: 1.0}, set("bcd"))
    assert empty.answer() is empty.alone
    assert empty.asked == []


@pytest.mark.parametrize("certainty", [0.0, 1.0])
def test_a_model_that_has_come_to_grief_says_nothing(certainty: float) -> None:
    street = Street(1, "bc")
    street.said[ME][:] = np.nan
    got = street.answer(certainty)
    assert np.isfinite(got.probabilities).all()
    assert ME not in got.weights
    assert sum(got.weights.values()) == pytest.approx(1)
    street.failing = dict.fromkeys("bc", Failure("absent", "not there"))
    assert street.answer(certainty).weights == {ME: 1.0}


def test_weights_by_class_make_up_for_who_keeps_silent() -> None:
    street = Street(2, "bc", C=2)
    votes = {ME: [0.5, 0.2], "b": [0.3, 0.2], "c": [0.2, 0.6]}
    street.trust.votes.update({n: np.float32(v) for n, v in votes.items()})
    street.failing["c"] = Failure("absent", "not there")
    got = street.answer()
    p = (street.said[ME] * [0.5, 0.2] + street.said["b"] * [0.3, 0.2]) / [0.8, 0.4]
    np.testing.assert_allclose(got.probabilities, p / p.sum(1, keepdims=True), atol=1e-6)
    assert set(got.weights) == {ME, "b"}
    assert sum(got.weights.values()) == pytest.approx(1)
