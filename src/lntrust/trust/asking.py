"""Asking one neighbour after another, and no more of them than the answer needs.

A node has α_i0 p_i(x) by itself. It asks its neighbours in the order of their weight and stops as soon as the
likeliest class leads the second by more than κ times the weight of those not yet asked. With κ = 1 they could
not change the answer even if all of them agreed on another class, so nothing is lost; with κ < 1 they could,
but seldom do. The first look is before anybody was asked: who is sure by itself asks nobody.
"""

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lntrust.segments import segment_mean, spread

CERTAINTIES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
Turn = tuple[Float[Tensor, "*s"], Float[Tensor, "*s C"]]  # whose weight, and what it says


def in_turn(
    turns: Iterable[Turn], certainty: Float[Tensor, "*s"]
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


def in_order(
    probabilities: Float[Tensor, "T D C"], alpha: Float[Tensor, "n D"], offsets: Int[Tensor, "n+1"]
) -> Iterator[Turn]:
    """The turns on every node's own validation examples; column 0 is the node itself."""
    rows, T = torch.arange(len(probabilities), device=alpha.device), len(probabilities)
    yield spread(alpha[:, 0], offsets, T), probabilities[:, 0]
    weights, order = alpha[:, 1:].sort(dim=1, descending=True, stable=True)
    for k in range(weights.shape[1]):
        column = spread(1 + order[:, k].to(alpha.dtype), offsets, T).long()
        yield spread(weights[:, k], offsets, T), probabilities[rows, column]


def least_certainty(
    probabilities: Float[Tensor, "T D C"],
    alpha: Float[Tensor, "n D"],
    offsets: Int[Tensor, "n+1"],
    may_differ: float,
) -> Float[Tensor, "n"]:
    """κ_i: the least at which no more than this share of a node's validation answers is another than if all
    had been asked. A node without validation examples asks until nobody could change the answer."""
    alpha = alpha.to(torch.float64)  # weights that should sum to 1 must not fall short of it
    alpha = alpha / alpha.sum(-1, keepdim=True).clamp(min=torch.finfo(alpha.dtype).tiny)
    whole = sum(weight[:, None] * p for weight, p in in_order(probabilities, alpha, offsets))
    assert isinstance(whole, Tensor)
    found = torch.ones_like(alpha[:, 0])
    known = offsets.diff() > 0
    for certainty in sorted(CERTAINTIES, reverse=True):
        kappa = torch.full_like(probabilities[:, 0, 0], certainty, dtype=alpha.dtype)
        blend, _ = in_turn(in_order(probabilities, alpha, offsets), kappa)
        differs = (blend.argmax(-1) != whole.argmax(-1)).to(alpha.dtype)
        known = known & (segment_mean(differs, offsets) <= may_differ)
        found = torch.where(known, certainty, found)
    return found.to(probabilities.dtype)
