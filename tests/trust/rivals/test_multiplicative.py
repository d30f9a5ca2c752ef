"""Hedge and Weighted Majority: losses accumulate over refreshes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import alpha_of, evidence, learned

from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals.multiplicative import Hedge, WeightedMajority

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


def seen(e: Evidence, i: int, c: int) -> bool:
    """Whether class c is in V_i."""
    return bool((e.labels[int(e.offsets[i]) : int(e.offsets[i + 1])] == c).any())


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
            [
                0.5 ** sum(1 - float(e.rho[i, j, c]) for e in (first, second) if seen(e, i, c))
                if second.mask[i, j]
                else 0.0
                for c in range(C)
            ]
            for j in range(D)
        ]
        total = [sum(w[j][c] for j in range(D)) for c in range(C)]
        shares = [[w[j][c] / total[c] for c in range(C)] for j in range(D)]
        for j in range(D):
            assert votes[i, j].tolist() == pytest.approx(shares[j])
        mean = [sum(float(second.w[i, c]) * shares[j][c] for c in range(C)) for j in range(D)]
        assert alpha[i].tolist() == pytest.approx([v / sum(mean) for v in mean])


def test_a_specialist_keeps_its_vote_in_its_class_only() -> None:
    e = evidence(0, n=1, D=2, C=2, least=9)
    rho = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).double()
    e = replace(e, mask=torch.ones(1, 2, dtype=torch.bool), rho=rho)
    votes = WeightedMajority().votes(learned(WeightedMajority(), e, e), e, e.mask)
    assert votes[0].flatten().tolist() == pytest.approx([0.8, 0.2, 0.2, 0.8])


def test_a_class_that_everybody_knows_less_keeps_its_votes() -> None:
    """Members that are alike weigh alike on every class, however hard it is, after many refreshes."""
    e = evidence(0, n=1, D=3, C=3, least=9)
    easy_hard_absent = torch.tensor([1.0, 0.2, 0.0]).double().expand(1, 3, 3)
    labels = torch.arange(9) % 2  # of class 2 there is none to validate on
    e = replace(e, mask=torch.ones(1, 3, dtype=torch.bool), rho=easy_hard_absent, labels=labels)
    votes = WeightedMajority().votes(learned(WeightedMajority(), *[e] * 21), e, e.mask)
    torch.testing.assert_close(votes, torch.full_like(votes, 1 / 3))


def test_a_class_without_validation_examples_is_left_as_it_is() -> None:
    e = evidence(0, n=1, D=3, C=3, least=9)
    e = replace(e, labels=torch.arange(9) % 2)
    memory = learned(WeightedMajority(), e, e)
    assert (memory["log weight"][..., 2] == 0).all()
    assert (memory["log weight"][..., :2] < 0).any()


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
