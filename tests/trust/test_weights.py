"""Trust weights, what remains of them, and the k greatest."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import generator

from lntrust.trust.weights import renormalised, top_k, trust_weights

seeds = st.integers(0, 10_000)


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(0.1, 300))
def test_softmax_over_the_options(seed: int, size: float) -> None:
    g = generator(seed)
    scores = size * torch.randn(5, 4, generator=g, dtype=torch.float64)
    options = torch.rand(5, 4, generator=g) < 0.6
    options[0] = False
    alpha = trust_weights(scores, options)
    for i in range(5):
        chosen = [j for j in range(4) if options[i, j]]
        top = max((float(scores[i, j]) for j in chosen), default=0.0)
        total = sum(math.exp(float(scores[i, j]) - top) for j in chosen)
        expected = [math.exp(float(scores[i, j]) - top) / total if j in chosen else 0.0 for j in range(4)]
        assert alpha[i].tolist() == pytest.approx(expected)
        assert float(alpha[i].sum()) == pytest.approx(1.0 if chosen else 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_scores_stay_finite(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1e30, -1e30, 1e30]], dtype=dtype)
    assert trust_weights(scores, torch.ones(1, 3, dtype=torch.bool)).tolist() == [[0.5, 0.0, 0.5]]


def test_gradients_reach_options_only_and_are_free_of_nan() -> None:
    scores = torch.randn(3, 4, generator=generator(0), dtype=torch.float64, requires_grad=True)
    options = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]]).bool()
    assert torch.autograd.gradcheck(lambda s: trust_weights(s, options), (scores,))
    (trust_weights(scores, options) * torch.arange(4)).sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert (scores.grad[~options] == 0).all()
    assert (scores.grad[options] != 0).all()


@settings(max_examples=40)
@given(seeds)
def test_renormalised_over_those_who_answered(seed: int) -> None:
    """By class, within each class."""
    g = generator(seed)
    by_class = torch.rand(5, 4, 3, generator=g, dtype=torch.float64).softmax(1)
    by_class[1, 1:] = 0.0
    present = torch.rand(5, 4, generator=g) < 0.5
    present[1, 0] = False  # nobody of weight answered
    for c, alpha in enumerate(by_class.unbind(-1)):
        left = renormalised(alpha, present)
        assert torch.equal(renormalised(by_class, present)[..., c], left)
        for i in range(5):
            total = sum(float(alpha[i, j]) for j in range(4) if present[i, j])
            expected = [float(alpha[i, j]) / total if present[i, j] and total else 0.0 for j in range(4)]
            assert left[i].tolist() == pytest.approx(expected)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 6))
def test_top_k_are_the_greatest(seed: int, k: int) -> None:
    alpha = torch.randint(0, 4, (6, 5), generator=generator(seed)).double()
    kept = top_k(alpha, k)
    for i in range(6):
        order = sorted(range(5), key=lambda j: (-float(alpha[i, j]), j))[:k]
        assert kept[i].tolist() == [j in order and float(alpha[i, j]) > 0 for j in range(5)]
