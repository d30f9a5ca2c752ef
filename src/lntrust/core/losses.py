"""Losses with a leading node axis: logits [n, B, C] give one number per node.

Both backends call them, with n nodes at once or with n = 1. A loss that is used in every round also has its
slope ∂loss/∂logits written by hand, for the fast path of linear heads; autograd differentiates the others.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Loss = Callable[..., Float[Tensor, "n"]]
Slope = Callable[..., tuple[Float[Tensor, "n"], Float[Tensor, "n B C"]]]  # losses, and ∂loss/∂logits

_SLOPES: dict[Loss, Slope] = {}


def with_slope(slope: Slope) -> Callable[[Loss], Loss]:
    """Say how a loss is differentiated: by this function of the same arguments."""

    def remember(loss: Loss) -> Loss:
        _SLOPES[loss] = slope
        return loss

    return remember


def losses_and_slope(
    loss: Loss, logits: Float[Tensor, "n B C"], targets: tuple[Tensor | None, ...]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n B C"]]:
    """The losses, and ∂loss/∂logits."""
    if loss in _SLOPES:
        return _SLOPES[loss](logits, *targets)
    logits = logits.detach().requires_grad_()
    losses = loss(logits, *targets)
    (slope,) = torch.autograd.grad(losses.sum(), logits)
    return losses.detach(), slope


def softmax(logits: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
    """Probabilities, without a gradient. torch's own is five times slower on a CPU where classes are few."""
    if logits.is_cuda:
        return logits.softmax(-1)
    return exp_and_sum(logits.detach())[0]


def exp_and_sum(logits: Float[Tensor, "*s C"]) -> tuple[Float[Tensor, "*s C"], Float[Tensor, "*s 1"]]:
    """softmax z, and log Σ exp z."""
    top = logits.amax(-1, keepdim=True)
    p = (logits - top).exp_()
    total = p.sum(-1, keepdim=True)
    return p.div_(total), total.log_().add_(top)


def weighted_slope(
    logits: Float[Tensor, "n B C"], labels: Int[Tensor, "n B"], weight: Float[Tensor, "n B"] | float
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n B C"]]:
    """Σ weight·(−log p_y) and its slope weight·(p − 1[y])."""
    p, log_total = exp_and_sum(logits)
    chosen = logits.gather(-1, labels[..., None])
    p.scatter_add_(-1, labels[..., None], torch.full_like(chosen, -1.0))
    every = weight[..., None] if isinstance(weight, Tensor) else weight
    return ((log_total - chosen) * every).sum((-1, -2)), p.mul_(every)


@with_slope(lambda logits, labels: weighted_slope(logits, labels, 1.0 / max(1, labels.shape[1])))
def cross_entropy(logits: Float[Tensor, "n B C"], labels: Int[Tensor, "n B"]) -> Float[Tensor, "n"]:
    """Mean negative log-probability of the labels."""
    chosen = logits.gather(-1, labels[..., None]).squeeze(-1)
    return (logits.logsumexp(-1) - chosen).mean(-1)
