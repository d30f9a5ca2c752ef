"""A deployed node's answer: who is asked about what, and what becomes of it when some are silent."""

import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy import ndarray

from lntrust.fleet.answers import answer_together
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.fleet.status import Prediction
from lntrust.fleet.training.trust_state import Trust
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
        self, names: Sequence[str], x: ndarray, seconds: float
    ) -> tuple[dict[str, Reply], dict[str, Failure]]:
        self.asked.append((tuple(names), x[:, 0].tolist()))
        self.granted.append(seconds)
        if any(n in self.failing and self.failing[n].kind == "silent" for n in names):
            time.sleep(seconds)
        heard = {n: Reply(self.said[n][x[:, 0]], self.versions.get(n, 5)) for n in names}
        failed = {n: self.failing[n] for n in names if n in self.failing}
        return {n: h for n, h in heard.items() if n not in failed}, failed

    def in_order(self) -> list[str]:
        others = [n for n in self.trust.votes if n != ME]
        return sorted(others, key=lambda n: -float(self.trust.votes[n]))

    def in_turn(self, certainty: float) -> tuple[torch.Tensor, torch.Tensor]:
        """As a simulation asks: the answer, and how many neighbours each input needed."""
        alpha = {
            n: float(v) / sum(map(float, self.trust.votes.values())) for n, v in self.trust.votes.items()
        }
        said = {n: torch.from_numpy(p).double() for n, p in self.said.items()}
        count = torch.zeros(len(self.x), dtype=torch.int64)
        answer = AskInTurn(alpha[ME] * said[ME], alpha[ME], certainty)
        for name in self.in_order():
            asked = answer.asking
            count += asked
            answer.hear(asked[:, None] * alpha[name] * said[name], alpha[name])
        return answer.blend, count


@given(
    st.integers(0, 10_000), st.sampled_from(["", "b", "bc", "bcde"]), st.sampled_from([0.0, 0.3, 0.7, 1.0])
)
def test_as_the_simulation_asks_in_turn(seed: int, names: str, certainty: float) -> None:
    street = Street(seed, names)
    got = answer_together(street.trust, street.alone, street.x, street.ask, 5.0, certainty)
    blend, asked = street.in_turn(certainty)
    expected = (blend / blend.sum(-1, keepdim=True)).numpy()
    np.testing.assert_allclose(got.probabilities, expected, atol=1e-6)
    counts = np.zeros(len(street.x), dtype=int)
    for _, about in street.asked:
        counts[about] += 1
    assert counts.tolist() == asked.tolist()
    assert [who for who, _ in street.asked] == [(n,) for n in street.in_order()[: len(street.asked)]]
    assert sum(got.weights.values()) == pytest.approx(1)
    assert set(got.weights) == set(got.versions) == {ME, *(n for who, _ in street.asked for n in who)}


@given(st.integers(0, 1000))
def test_if_it_must_be_certain_the_class_is_that_of_all_together(seed: int) -> None:
    street = Street(seed, "bcd")
    sure = answer_together(street.trust, street.alone, street.x, street.ask, 5.0, 1.0)
    whole = answer_together(street.trust, street.alone, street.x, street.ask, 5.0)
    np.testing.assert_array_equal(sure.probabilities.argmax(1), whole.probabilities.argmax(1))


def undecided() -> Street:
    """All say the same of two classes, so that everybody has to be asked."""
    street = Street(3, "bcd")
    for p in street.said.values():
        p[:] = [0.5, 0.5, 0.0]
    street.trust.votes.update(
        {n: np.float32(v) for n, v in zip((ME, *"bcd"), (0.4, 0.3, 0.2, 0.1), strict=True)}
    )  # type: ignore[misc]
    return street


def test_weights_are_means_over_the_inputs() -> None:
    street = undecided()
    street.said[ME][:4] = [1.0, 0.0, 0.0]  # of these it is sure enough
    got = answer_together(street.trust, street.alone, street.x, street.ask, 5.0, 0.6)
    assert street.asked == [((n,), [4, 5]) for n in "bcd"]
    assert got.weights[ME] == pytest.approx((4 + 2 * 0.4) / 6)
    assert got.weights["b"] == pytest.approx(2 * 0.3 / 6)
    assert list(got.weights) == [ME, *"bcd"]


def test_one_that_keeps_silent_costs_half_and_then_all_are_asked_at_once() -> None:
    street = undecided()
    street.failing["b"] = Failure("silent", "no answer in time")
    since = time.monotonic()
    got = answer_together(street.trust, street.alone, street.x, street.ask, 1.0, 1.0)
    assert time.monotonic() - since < 5
    assert [who for who, _ in street.asked] == [("b",), ("c", "d")]
    assert street.granted[0] <= 0.5
    assert street.granted[1] <= 0.5
    assert got.silent == {"b": "no answer in time"}
    assert got.weights == pytest.approx({ME: 4 / 7, "c": 2 / 7, "d": 1 / 7})


def test_one_that_refuses_costs_nothing() -> None:
    street = undecided()
    street.failing["b"] = Failure("breaker", "left alone after failures")
    street.versions["c"] = 4
    got = answer_together(street.trust, street.alone, street.x, street.ask, 5.0, 1.0)
    assert [who for who, _ in street.asked] == [("b",), ("c",), ("d",)]
    assert got.weights == pytest.approx({ME: 0.8, "d": 0.2})
    assert got.silent["c"] == "its model is older (4) than the one probed (5)"
    assert "c" not in got.versions


def test_when_the_time_is_over_nobody_is_asked() -> None:
    street = undecided()
    got = answer_together(street.trust, street.alone, street.x, street.ask, 0.0, 1.0)
    assert street.asked == []
    assert got.weights == {ME: 1.0}
    assert set(got.silent) == set("bcd")


@pytest.mark.parametrize("certainty", [0.0, 1.0])
def test_a_model_that_has_come_to_grief_says_nothing(certainty: float) -> None:
    street = Street(1, "bc")
    street.said[ME][:] = np.nan
    got = answer_together(street.trust, street.alone, street.x, street.ask, 5.0, certainty)
    assert np.isfinite(got.probabilities).all()
    assert ME not in got.weights
    assert sum(got.weights.values()) == pytest.approx(1)
    street.failing = dict.fromkeys("bc", Failure("absent", "not there"))
    nobody = answer_together(street.trust, street.alone, street.x, street.ask, 5.0, certainty)
    assert nobody.weights == {ME: 1.0}


def test_weights_by_class_make_up_for_who_keeps_silent() -> None:
    street = Street(2, "bc", C=2)
    votes = {ME: [0.5, 0.2], "b": [0.3, 0.2], "c": [0.2, 0.6]}
    street.trust.votes.update({n: np.array(v, dtype=np.float32) for n, v in votes.items()})
    street.failing["c"] = Failure("absent", "not there")
    got = answer_together(street.trust, street.alone, street.x, street.ask, 5.0)
    p = (street.said[ME] * [0.5, 0.2] + street.said["b"] * [0.3, 0.2]) / [0.8, 0.4]
    np.testing.assert_allclose(got.probabilities, p / p.sum(1, keepdims=True), atol=1e-6)
    assert set(got.weights) == {ME, "b"}
    assert sum(got.weights.values()) == pytest.approx(1)


def test_no_inputs_no_questions() -> None:
    street = Street(1, "bc", m=0)
    assert answer_together(street.trust, street.alone, street.x, street.ask, 5.0) is street.alone
    assert street.asked == []
