"""Slopes written by hand are the slopes that autograd finds."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lntrust.core.losses import cross_entropy, losses_and_slope, softmax
from lntrust.trust.distil import hard_loss, soft_loss


def drawn(seed: int, n: int, B: int, C: int, spread: float) -> dict[str, Tensor]:
    """Logits and every kind of target; some examples are not kept, as in distillation."""
    g = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    kept = rand(n, B) < 0.7
    p_bar = rand(n, B, C).pow(4)
    return {
        "logits": (rand(n, C, B) * spread).transpose(1, 2),  # as heads have them
        "labels": torch.randint(0, C, (n, B), generator=g),
        "p_bar": p_bar / p_bar.sum(-1, keepdim=True) * kept[..., None],
        "omega": rand(n, B) * 3 * kept,
        "scale": rand(n),
    }


LOSSES: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    "cross_entropy": (cross_entropy, ("labels",)),
    "hard": (hard_loss, ("labels", "omega", "scale")),
    "soft": (soft_loss, ("p_bar", "omega", "scale")),
}


@pytest.mark.parametrize("name", LOSSES)
@given(
    st.integers(0, 999), st.integers(1, 3), st.integers(1, 9), st.integers(2, 6), st.sampled_from([1.0, 60.0])
)
def test_by_hand_as_by_autograd(name: str, seed: int, n: int, B: int, C: int, spread: float) -> None:
    loss, names = LOSSES[name]
    d = drawn(seed, n, B, C, spread)
    targets = tuple(d[k] for k in names)
    before = d["logits"].clone()
    losses, slope = losses_and_slope(loss, d["logits"], targets)
    assert torch.equal(d["logits"], before)
    logits = before.requires_grad_()
    expected = loss(logits, *targets)
    (gradient,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(slope, gradient, rtol=1e-10, atol=1e-12)


def test_a_loss_without_a_slope_is_left_to_autograd() -> None:
    def squared(logits: Tensor, weight: Tensor) -> Tensor:
        return (logits.square().sum(-1) * weight).sum(-1)

    logits, weight = torch.randn(2, 3, 4), torch.rand(2, 3)
    losses, slope = losses_and_slope(squared, logits, (weight,))
    torch.testing.assert_close(losses, squared(logits, weight))
    torch.testing.assert_close(slope, 2 * logits * weight[..., None])
    assert not slope.requires_grad


@given(st.integers(0, 999), st.integers(1, 5), st.integers(1, 12), st.sampled_from([0.1, 10.0, 1e4]))
def test_softmax_is_torchs(seed: int, rows: int, C: int, spread: float) -> None:
    logits = torch.randn(rows, C, generator=torch.Generator().manual_seed(seed)) * spread
    torch.testing.assert_close(softmax(logits), logits.softmax(-1), rtol=1e-5, atol=1e-7)
    assert (softmax(logits).sum(-1) - 1).abs().max() < 1e-6
    # A model that has diverged shall be found out, not smoothed over.
    assert softmax(torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0]])).isnan().any(1).all()
