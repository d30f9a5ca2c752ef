"""Trust-gated distillation: the targets p̄, the confidence filter, weights ω and losses."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.losses import exp_and_sum, weighted_slope, with_slope

Importance = Literal["mean_one", "paper", "off"]


def threshold(C: int, floor: float, margin: float) -> float:
    """τ(C) = max(τ_abs, 1/C + τ_conf)."""
    return max(floor, 1.0 / C + margin)


class DistillTargets(NamedTuple):
    """What each node's neighbours teach in one round."""

    ids: Int[Tensor, "n B"]
    p_bar: Float[Tensor, "n B C"]  # p̄_i(x)
    predicted: Int[Tensor, "n B"]  # ĉ(x)
    kept: Bool[Tensor, "n B"]  # x ∈ B*_i
    omega: Float[Tensor, "n B"]  # ω_i(x)


def confidence_filter(
    p_bar: Float[Tensor, "n B C"], tau: float
) -> tuple[Bool[Tensor, "n B"], Int[Tensor, "n B"]]:
    """B*_i = {x : max_c p̄_i^c(x) > τ(C)}, and ĉ(x), the class that is likeliest."""
    confidence, predicted = p_bar.max(-1)
    return confidence > tau, predicted


def importance_weights(
    kind: Importance, w: Float[Tensor, "n C"], predicted: Int[Tensor, "n B"], kept: Bool[Tensor, "n B"]
) -> Float[Tensor, "n B"]:
    """ω_i(x) = C·w_i^ĉ(x): examples of node i's own classes count more. 0 where not kept.

    mean_one: scaled to mean 1 over the kept examples, so that ω shifts attention between classes and
    λ alone sets the strength; paper: as printed; off: 1.
    """
    if kind == "off":
        return kept.to(w.dtype)
    omega = w.shape[-1] * w.gather(-1, predicted) * kept
    if kind == "paper":
        return omega
    mean = omega.sum(-1) / kept.sum(-1).clamp(min=1)
    return torch.where(mean[:, None] > 0, omega / mean.clamp(min=torch.finfo(w.dtype).tiny)[:, None], 0.0)


def _hard_slope(
    logits: Tensor, predicted: Tensor, omega: Tensor, scale: Tensor
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n B C"]]:
    return weighted_slope(logits, predicted, omega * scale[:, None])


@with_slope(_hard_slope)
def hard_loss(
    logits: Float[Tensor, "n B C"],
    predicted: Int[Tensor, "n B"],
    omega: Float[Tensor, "n B"],
    scale: Float[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """scale_i · Σ_{x∈B*} ω_i(x)·ℓ(h_i(x), ĉ(x)), with scale_i = λ_i^eff / |B*_i|."""
    chosen = logits.gather(-1, predicted[..., None]).squeeze(-1)
    return scale * (omega * (logits.logsumexp(-1) - chosen)).sum(-1)


def _soft_slope(
    logits: Tensor, p_bar: Tensor, omega: Tensor, scale: Tensor
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n B C"]]:
    """ω·scale·(p − p̄), since p̄ sums to one wherever ω is not 0."""
    p, log_total = exp_and_sum(logits)
    weight = (omega * scale[:, None])[..., None]
    log_target = p_bar.clamp(min=torch.finfo(p_bar.dtype).tiny).log()
    divergence = (p_bar * (log_target - logits + log_total)).sum(-1, keepdim=True)
    return (divergence * weight).sum((-1, -2)), p.sub_(p_bar).mul_(weight)


@with_slope(_soft_slope)
def soft_loss(
    logits: Float[Tensor, "n B C"],
    p_bar: Float[Tensor, "n B C"],
    omega: Float[Tensor, "n B"],
    scale: Float[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """scale_i · Σ_{x∈B*} ω_i(x)·KL(p̄_i(x) ‖ softmax h_i(x)), with scale_i = λ_i^eff·α_KL / |B*_i|."""
    log_target = p_bar.clamp(min=torch.finfo(p_bar.dtype).tiny).log()
    divergence = (p_bar * (log_target - logits.log_softmax(-1))).sum(-1)
    return scale * (omega * divergence).sum(-1)
