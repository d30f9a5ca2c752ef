"""How much to learn from neighbours, and whether to answer with them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator

from lntrust.trust.gate import deployment_gate, ensemble_accuracy, training_gate

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
    # and exactly equal in everything.
    a_deploy = torch.tensor([0.8, 0.8, 0.4, 0.4, 0.5])
    a_self = torch.full((5,), 0.5)
    ensemble = (torch.tensor([0.9, 0.3, 0.9, 0.3, 0.5]), torch.tensor([0.2, 2.0, 2.0, 0.2, 1.0]))
    own = (torch.full((5,), 0.5), torch.full((5,), 1.0))

    @pytest.mark.parametrize(
        ("kind", "together"),
        [
            ("members", [True, True, False, False, True]),
            ("ensemble", [True, False, True, False, True]),
            ("loss", [True, False, False, True, True]),
            ("off", [True] * 5),
        ],
    )
    def test_each_looks_at_its_own_measure(self, kind: str, together: list[bool]) -> None:
        out = deployment_gate(
            kind,  # type: ignore[arg-type]
            a_deploy=self.a_deploy, a_self=self.a_self, ensemble=self.ensemble, own=self.own,
        )  # fmt: skip
        assert out.dtype == torch.bool
        assert out.tolist() == together
