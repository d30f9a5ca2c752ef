"""Simplex ERM: never worse than uniform in what it minimises."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import alpha_of, evidence
from torch import Tensor

from lntrust.trust.blend import validation_loss
from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals.simplex import SimplexERM


def objective(e: Evidence, alpha: Tensor) -> Tensor:
    return validation_loss(e.p_true, alpha, e.offsets) + 0.01 * alpha.square().sum(-1)


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10_000))
def test_at_least_as_good_as_uniform(seed: int) -> None:
    e = evidence(seed)
    uniform = e.mask.double() / e.mask.sum(-1, keepdim=True)
    assert (objective(e, alpha_of(SimplexERM(), e)) <= objective(e, uniform) + 1e-12).all()


def test_nearly_the_optimum_of_two_members() -> None:
    e = evidence(3, n=4, D=2, least=4)
    alpha = alpha_of(SimplexERM(), e)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    for i in range(4):
        part = e.at(slice(i, i + 1))
        share = grid if e.mask[i, 1] else grid[:1]
        best = min(float(objective(part, torch.stack([1 - a, a])[None])) for a in share)
        assert float(objective(part, alpha[i : i + 1])) <= best + 2e-3


def test_it_starts_afresh_at_each_refresh() -> None:
    first, second = evidence(0), evidence(1)
    assert torch.equal(alpha_of(SimplexERM(), first, second), alpha_of(SimplexERM(), second))
