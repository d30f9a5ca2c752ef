"""Asking one neighbour after another, and no more of them than the answer needs.

A node has α_i0 p_i(x) by itself. It asks its neighbours in the order of their weight and stops as soon as the
likeliest class leads the second by more than κ times the weight of those not yet asked. With κ = 1 they could
not change the answer even if all of them agreed on another class, so nothing is lost; with κ < 1 they could,
but seldom do. The first look is before anybody was asked: who is sure by itself asks nobody.
"""

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.segments import segment_sum, spread
from lntrust.trust.evidence import Evidence

CERTAINTIES = tuple(k / 20 for k in range(21))
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


def differing(
    p: Float[Tensor, "*s D C"], alpha: Float[Tensor, "*s D"]
) -> Iterator[tuple[float, Bool[Tensor, "*s"]]]:
    """For κ = 1, .95, …, 0: where the answer is another than if all had been asked. Column 0 is the node."""
    weights, order = alpha[..., 1:].sort(dim=-1, descending=True, stable=True)
    weights = torch.cat([alpha[..., :1], weights], -1)
    order = torch.cat([torch.zeros_like(alpha[..., :1], dtype=torch.int64), 1 + order], -1)
    blend, left = torch.zeros_like(p[..., 0, :]), torch.ones_like(alpha[..., 0])
    leads, answers = [], []
    for k in range(alpha.shape[-1]):
        index = order[..., k, None, None].expand(*order.shape[:-1], 1, p.shape[-1])
        blend = blend + weights[..., k, None] * p.gather(-2, index).squeeze(-2)
        left = left - weights[..., k]
        # By how much of the weight that is left the first class leads: to stop here, more than κ.
        leads.append(torch.where(left > 1e-6, _lead(blend) / left.clamp(min=1e-6), torch.inf))
        answers.append(blend.argmax(-1))
    lead, answer = torch.stack(leads), torch.stack(answers)
    lead[-1] = torch.inf  # nobody is left to be asked
    for certainty in reversed(CERTAINTIES):
        stop = (lead > certainty).to(torch.uint8).argmax(0, keepdim=True)  # the first of them
        yield certainty, answer.gather(0, stop)[0] != answer[-1]


def fitted_certainty(
    evidence: Evidence, sampled: Float[Tensor, "n S D C"] | None, alpha: Float[Tensor, "n D"]
) -> Float[Tensor, "n"]:
    """κ_i: the least at which no answer changes, on validation set and sample, for having asked fewer.

    On twenty validation examples alone it would be too bold; the sample's replies are there anyway. Without a
    sample it is 1: a node asks until nobody could change the answer.
    """
    found = torch.ones_like(alpha[:, 0])
    if sampled is None:
        return found
    p, offsets = evidence.probabilities, evidence.offsets
    rows = differing(p, spread(alpha, offsets, len(p)))
    several = differing(sampled, alpha[:, None].expand(sampled.shape[:-1]))
    holds = torch.ones_like(found, dtype=torch.bool)
    for (certainty, validated), (_, unlabelled) in zip(rows, several, strict=True):  # falling
        holds = holds & (segment_sum(validated.to(p.dtype), offsets) == 0) & ~unlabelled.any(-1)
        found = torch.where(holds, certainty, found)
    return found
