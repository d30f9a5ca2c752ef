"""Asking one neighbour after another, and no more of them than the answer needs.

A node has α_i0 p_i(x) by itself. It asks its neighbours in the order of their weight and stops as soon as the
likeliest class leads the second by more than κ times the weight of those not yet asked. With κ = 1 they could
not change the answer even if all of them agreed on another class, so nothing is lost; with κ < 1 they could,
but seldom do. The first look is before anybody was asked: who is sure by itself asks nobody.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lntrust.core.segments import segment_sum
from lntrust.trust.evidence import Evidence

Turn = tuple[Float[Tensor, "*s"], Float[Tensor, "*s C"]]  # whose weight, and what it says


def in_turn(
    turns: Iterable[Turn], certainty: float | Float[Tensor, "*#s"]
) -> tuple[Float[Tensor, "*s C"], Int[Tensor, "*s"]]:
    """Σ α p over those who were asked, and how many neighbours that were.

    The first turn is the node's own; then come its neighbours by falling weight. Weights sum to 1, and a
    neighbour of no weight is not asked.
    """
    ways = iter(turns)
    weight, p = next(ways)
    blend, left = weight[..., None] * p, 1.0 - weight
    settled = _lead(blend) > certainty * left
    asked = torch.zeros_like(weight, dtype=torch.int64)
    for weight, p in ways:
        going = ~settled & (weight > 0)
        asked += going
        blend = blend + torch.where(going, weight, 0.0)[..., None] * p
        left = left - weight
        settled |= _lead(blend) > certainty * left
    return blend, asked


def _lead(blend: Float[Tensor, "*s C"]) -> Float[Tensor, "*s"]:
    """By how much the likeliest class leads the second."""
    if blend.shape[-1] < 2:
        return blend[..., 0]
    first, second = blend.topk(2, dim=-1).values.unbind(-1)
    return first - second


def typical_margin(evidence: Evidence, alpha: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
    """By how much the likeliest class usually leads in a neighbour's replies on V_i; a mean, weighted by α.

    Those not yet asked could put all their weight on one class, but seldom do: with ten classes their first
    leads by about .8, with a hundred by .3. 1 where there are no neighbours, or no validation examples.
    """
    seen = segment_sum(_lead(evidence.probabilities[:, 1:]), evidence.offsets)
    seen = seen / evidence.offsets.diff().clamp(min=1)[:, None]
    counts = evidence.mask[:, 1:] & (evidence.offsets.diff() > 0)[:, None]
    weight = alpha[:, 1:] * counts
    total = weight.sum(-1)
    return torch.where(total > 0, (weight * seen).sum(-1) / total.clamp(min=1e-30), 1.0)
