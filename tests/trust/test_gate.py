"""How much to learn from neighbours, and whether to answer with them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator, simplex

from lntrust.trust.gate import (
    better,
    brier,
    deployment_gate,
    ensemble_accuracy,
    evidence_gate,
    training_gate,
)

share = st.floats(0, 1)


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@settings(deadline=None)
@given(st.floats(0, 2), share, share, share)
def test_the_training_gate_is_monotone_and_bounded(
    strength: float, a: float, b: float, a_self: float
) -> None:
    low, high = (float(training_gate(strength, one(v), one(a_self))) for v in sorted((a, b)))
    assert 0 <= low <= high <= strength


@settings(deadline=None)
@given(st.floats(0, 2), share, share)
def test_the_training_gate_s_formula(strength: float, a_ens: float, a_self: float) -> None:
    expected = strength * min(1.0, a_ens / (a_self + 1e-8))
    assert float(training_gate(strength, one(a_ens), one(a_self))) == pytest.approx(expected)


@settings(deadline=None)
@given(st.floats(0, 0.99), st.floats(1e-6, 0.01))
def test_it_is_wide_open_where_the_ensemble_is_better(a_self: float, more: float) -> None:
    assert float(training_gate(0.4, one(a_self + more), one(a_self))) == 0.4


def test_nobody_right_means_no_distillation() -> None:
    assert training_gate(0.4, torch.zeros(1), torch.zeros(1)).tolist() == [0.0]


def test_ensemble_accuracy_is_the_members_mean() -> None:
    e = evidence(1)
    g = generator(2)
    alpha = torch.rand(e.mask.shape, generator=g, dtype=torch.float64)
    a = ensemble_accuracy(alpha, e.accuracy)
    for i in range(len(a)):
        expected = sum(
            float(alpha[i, j]) * sum(float(e.w[i, c]) * float(e.rho[i, j, c]) for c in range(e.w.shape[1]))
            for j in range(alpha.shape[1])
        )
        assert float(a[i]) == pytest.approx(expected)


class TestDeployment:
    # Node by node: all better together, only the members, only the ensemble's accuracy, only its loss,
    # and exactly equal in everything. What paired scores say of it has nothing to do with those.
    a_deploy = torch.tensor([0.8, 0.8, 0.4, 0.4, 0.5])
    a_self = torch.full((5,), 0.5)
    ensemble = (torch.tensor([0.9, 0.3, 0.9, 0.3, 0.5]), torch.tensor([0.2, 2.0, 2.0, 0.2, 1.0]))
    own = (torch.full((5,), 0.5), torch.full((5,), 1.0))
    chance = torch.tensor([0.2, 0.7, 0.79, 0.8, 0.9])

    @pytest.mark.parametrize(
        ("kind", "together"),
        [
            ("members", [True, True, False, False, True]),
            ("ensemble", [True, False, True, False, True]),
            ("loss", [True, False, False, True, True]),
            ("off", [True] * 5),
            ("evidence", [False, False, False, True, True]),
        ],
    )
    def test_each_looks_at_its_own_measure(self, kind: str, together: list[bool]) -> None:
        out = deployment_gate(
            kind,  # type: ignore[arg-type]
            a_deploy=self.a_deploy, a_self=self.a_self, ensemble=self.ensemble, own=self.own,
            chance=self.chance, evidence=0.8,
        )  # fmt: skip
        assert out.dtype == torch.bool
        assert out.tolist() == together


class TestBrier:
    @given(st.integers(0, 10_000))
    def test_between_nothing_and_two(self, seed: int) -> None:
        g = generator(seed)
        p, labels = simplex(30, 4, g=g), torch.randint(0, 4, (30,), generator=g)
        score = brier(p, labels)
        assert ((score >= 0) & (score <= 2)).all()

    def test_its_ends(self) -> None:
        p = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
        torch.testing.assert_close(brier(p, torch.tensor([0, 0, 0])), torch.tensor([0.0, 2.0, 2 / 3]))

    @given(st.integers(0, 10_000))
    def test_nobody_gains_by_saying_otherwise_than_they_believe(self, seed: int) -> None:
        """Proper: expected under p, no other answer scores lower than p itself."""
        g = generator(seed)
        p, other = simplex(2, 4, g=g)
        expected = [(p * brier(said.expand(4, 4), torch.arange(4))).sum() for said in (p, other)]
        assert expected[0] <= expected[1] + 1e-12


losses = st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), max_size=12)


def chance_of(pairs: list[tuple[float, float]]) -> float:
    ours, theirs = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).unbind(1)
    return float(better(ours, theirs, torch.tensor([0, len(pairs)])))


class TestBetter:
    @given(losses)
    def test_one_is_better_as_far_as_the_other_is_not(self, pairs: list[tuple[float, float]]) -> None:
        swapped = [(b, a) for a, b in pairs]
        assert chance_of(pairs) + chance_of(swapped) == pytest.approx(1.0)
        assert 0 <= chance_of(pairs) <= 1

    @given(st.lists(st.floats(0, 2), max_size=6))
    def test_undecided_where_nothing_is_known_or_all_is_alike(self, values: list[float]) -> None:
        assert chance_of([(value, value) for value in values]) == 0.5

    @given(st.lists(st.floats(0.0, 0.5), min_size=2, max_size=6), st.integers(2, 5))
    def test_the_same_advantage_over_more_examples_is_surer(self, gains: list[float], times: int) -> None:
        pairs = [(1.0 - gain, 1.0) for gain in gains]
        assert chance_of(pairs * times) >= chance_of(pairs)
        if max(gains) > 0.1 and chance_of(pairs) < 0.999:
            assert chance_of(pairs * times) > chance_of(pairs) > 0.5

    @given(losses, st.floats(0.01, 1.0))
    def test_whoever_improves_on_every_example_is_not_less_likely_better(
        self, pairs: list[tuple[float, float]], scale: float
    ) -> None:
        """In the sign of what it says: on the side of the lower mean."""
        mean = sum(b - a for a, b in pairs)
        if abs(mean) > 1e-6:
            assert (chance_of(pairs) > 0.5) == (mean > 0)
            assert (chance_of([(scale * a, scale * b) for a, b in pairs]) > 0.5) == (mean > 0)

    def test_by_hand(self) -> None:
        """d = 1, 0 and the imagined ±½: mean 1/4, variance 3/8 − 1/16, so Φ((1/4)/√(5/64))."""
        expected = torch.special.ndtr(torch.tensor((1 / 4) / (5 / 64) ** 0.5, dtype=torch.float64))
        assert chance_of([(0.0, 1.0), (0.3, 0.3)]) == pytest.approx(float(expected))

    @given(st.floats(0.0, 0.01))
    def test_a_single_example_decides_nothing(self, gain: float) -> None:
        assert 0.5 <= chance_of([(1.0 - gain, 1.0)]) < 0.51

    def test_node_by_node(self) -> None:
        g = generator(3)
        ours, theirs = torch.rand(2, 9, generator=g, dtype=torch.float64)
        offsets = torch.tensor([0, 4, 4, 9])
        together = better(ours, theirs, offsets)
        pairs = list(zip(ours.tolist(), theirs.tolist(), strict=True))
        assert together.tolist() == pytest.approx([chance_of(pairs[:4]), 0.5, chance_of(pairs[4:])])


@given(st.floats(0, 2), share, share)
def test_the_evidence_gate_is_wide_open_from_even_chances_on(strength: float, a: float, b: float) -> None:
    low, high = (float(evidence_gate(strength, one(v))) for v in sorted((a, b)))
    assert 0 <= low <= high <= strength
    assert float(evidence_gate(strength, one(0.5))) == strength
    assert float(evidence_gate(strength, one(0.25))) == pytest.approx(strength / 2)
    assert float(evidence_gate(strength, one(0.0))) == 0
