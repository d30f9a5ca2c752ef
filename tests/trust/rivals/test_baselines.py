"""Uniform, best single neighbour, FedFomo's loss differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import alpha_of, evidence

from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals.baselines import BestSingle, FedFomo, Uniform

seeds = st.integers(0, 10_000)


def test_uniform_spreads_evenly() -> None:
    e = evidence(0)
    for i, row in enumerate(alpha_of(Uniform(), e).tolist()):
        count = int(e.mask[i].sum())
        assert row == pytest.approx([1 / count if m else 0.0 for m in e.mask[i].tolist()])


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_best_single_picks_the_best_and_itself_in_a_tie(seed: int) -> None:
    e = evidence(seed)
    for options in (e.mask, e.open):
        alpha = BestSingle().weights({}, e, options)
        for i in range(len(alpha)):
            members = [j for j in range(alpha.shape[1]) if options[i, j]]
            if not members:
                assert alpha[i].sum() == 0
                continue
            best = max(members, key=lambda j: (float(e.accuracy[i, j]), -j))
            assert alpha[i].tolist() == [float(j == best) for j in range(alpha.shape[1])]


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_fedfomo_equals_a_loop(seed: int) -> None:
    e = evidence(seed)
    alpha = alpha_of(FedFomo(), e)
    for i in range(len(alpha)):
        rows = range(int(e.offsets[i]), int(e.offsets[i + 1]))
        loss = [
            sum(-math.log(max(float(e.p_true[t, j]), 1e-8)) for t in rows) / max(1, len(rows))
            for j in range(alpha.shape[1])
        ]
        saved = [max(0.0, loss[0] - loss[j]) if j and e.mask[i, j] else 0.0 for j in range(alpha.shape[1])]
        useful = [s for s in saved if s > 0]
        saved[0] = sum(useful) / len(useful) if useful else 1.0
        assert alpha[i].tolist() == pytest.approx([s / sum(saved) for s in saved])


def flat(p_true: list[float]) -> Evidence:
    """One node, one validation example of class 0, members that give it these probabilities."""
    p = torch.tensor([[[a, 1 - a] for a in p_true]], dtype=torch.float64)
    D = len(p_true)
    return Evidence(
        torch.ones(1, D, dtype=torch.bool), p, torch.tensor([0]), torch.tensor([0, 1]),
        torch.zeros(1, D, 2).double(), torch.zeros(1, D, 6).double(), torch.tensor([[1.0, 0.0]]).double(),
    )  # fmt: skip


def test_fedfomo_where_nobody_helps() -> None:
    e = flat([0.9, 0.5, 0.1])
    assert FedFomo().weights({}, e, e.mask).tolist() == [[1.0, 0.0, 0.0]]
    assert FedFomo().weights({}, e, e.open).tolist() == [[0.0, 0.5, 0.5]]


def test_fedfomo_leaves_out_who_would_cost() -> None:
    e = flat([0.25, 0.5, 0.1])
    assert FedFomo().weights({}, e, e.mask)[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert FedFomo().weights({}, e, e.open)[0].tolist() == pytest.approx([0.0, 1.0, 0.0])
