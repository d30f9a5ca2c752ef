"""Hedge and Weighted Majority: losses accumulate over refreshes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence
from rivals import alpha_of, learned

from lntrust.weighting.multiplicative import Hedge, WeightedMajority

seeds = st.integers(0, 10_000)


def test_hedge_without_loss_differences_is_uniform() -> None:
    e = evidence(0)
    e = replace(e, rho=torch.full_like(e.rho, 0.3))
    uniform = e.mask.double() / e.mask.sum(-1, keepdim=True)
    torch.testing.assert_close(alpha_of(Hedge(), e, e, e), uniform)


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_hedge_is_exponential_in_the_summed_loss(seed: int) -> None:
    first, second = evidence(seed), evidence(seed + 1)
    alpha = alpha_of(Hedge(), first, second)
    for i in range(len(alpha)):
        loss = [
            sum(1 - sum(e.rho[i, j].tolist()) / e.rho.shape[-1] for e in (first, second))
            for j in range(alpha.shape[1])
        ]
        w = [2.718281828459045 ** (-0.5 * v) if second.mask[i, j] else 0.0 for j, v in enumerate(loss)]
        assert alpha[i].tolist() == pytest.approx([v / sum(w) for v in w])


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_weighted_majority_votes_by_class(seed: int) -> None:
    first, second = evidence(seed), evidence(seed + 1)
    one = WeightedMajority()
    memory = learned(one, first, second)
    votes, alpha = one.votes(memory, second, second.mask), one.weights(memory, second, second.mask)
    n, D, C = second.rho.shape
    for i in range(n):
        w = [
            [0.5 ** sum(1 - float(e.rho[i, j, c]) for e in (first, second)) for c in range(C)]
            if second.mask[i, j]
            else [0.0] * C
            for j in range(D)
        ]
        top = max(max(row) for row in w)  # a common factor is free
        for j in range(D):
            assert votes[i, j].tolist() == pytest.approx([v / top for v in w[j]])
        mean = [sum(float(second.w[i, c]) * w[j][c] for c in range(C)) for j in range(D)]
        assert alpha[i].tolist() == pytest.approx([v / sum(mean) for v in mean])


def test_a_specialist_keeps_its_vote_in_its_class_only() -> None:
    e = evidence(0, n=1, D=2, C=2)
    e = replace(
        e, mask=torch.ones(1, 2, dtype=torch.bool), rho=torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).double()
    )
    votes = WeightedMajority().votes(learned(WeightedMajority(), e, e), e, e.mask)
    assert votes[0].flatten().tolist() == pytest.approx([1.0, 0.25, 0.25, 1.0])


@pytest.mark.parametrize("kind", [Hedge, WeightedMajority])
def test_a_long_run_does_not_underflow(kind: type[Hedge] | type[WeightedMajority]) -> None:
    e = evidence(0)
    e = replace(e, rho=torch.zeros_like(e.rho))
    one = kind()
    memory = {name: t - 1e5 for name, t in learned(one, e).items()}
    torch.testing.assert_close(one.weights(memory, e, e.mask).sum(-1), torch.ones(5).double())


def test_votes_without_options_are_0() -> None:
    e = evidence(0)
    memory = learned(WeightedMajority(), e)
    votes = WeightedMajority().votes(memory, e, torch.zeros_like(e.mask))
    assert (votes == 0).all()
