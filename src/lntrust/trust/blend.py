"""The deployed answer: q_i(x) ∝ Σ_{j∈N̄(i)} α_ij p_j(x), whoever computes it.

One rule for a simulation's thousands of nodes and for one live node, in torch or numpy:

* pooling: answers are weighted and summed;
* who keeps silent drops out, and the others' weights make up for it; where nobody of weight has answered, the
  node answers by itself;
* asking in turn: a node has α_i0 p_i(x) by itself. It asks its neighbours in the order of their weight, and
  stops as soon as the likeliest class leads the second by more than κ times the weight of those not yet
  asked. At κ = 1 they could not change the answer even if all of them agreed on another class; below 1 they
  could, but seldom do. The first look is before anybody was asked: who is sure by itself asks nobody.
"""

from typing import Any

import array_api_compat
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_mean, segment_sum, spread
from lntrust.trust.evidence import Evidence

CLIP = 1e-8
Array = Any  # of numpy or torch


def made_up(blend: Float[Array, "*s C"], heard: Float[Array, "*s #C"]) -> Float[Array, "*s C"]:
    """Σ α p of those who answered, as if their weights summed to 1, not to `heard`; 0 where nobody did."""
    xp = array_api_compat.array_namespace(blend)
    somebody = heard > 0
    return xp.where(somebody, blend / xp.where(somebody, heard, xp.ones_like(heard)), xp.zeros_like(blend))


def or_alone(blend: Float[Array, "*s C"], own: Float[Array, "*s C"]) -> Float[Array, "*s C"]:
    """The node's own answer where nobody of weight has answered."""
    xp = array_api_compat.array_namespace(blend)
    return xp.where((xp.sum(blend, axis=-1) > 0)[..., None], blend, own)


def margin(p: Float[Array, "*s C"]) -> Float[Array, "*s"]:
    """By how much the likeliest class leads the second."""
    if p.shape[-1] < 2:
        return p[..., 0]
    if isinstance(p, Tensor):
        first, second = p.topk(2, dim=-1).values.unbind(-1)
        return first - second
    xp = array_api_compat.array_namespace(p)
    ordered = xp.sort(p, axis=-1)
    return ordered[..., -1] - ordered[..., -2]


class AskInTurn:
    """One answer in the making, for many inputs at once: Σ α p so far, and where the node asks on.

    All weights sum to 1. The node's own answer α_i0 p_i(x) comes first. Without κ everybody is asked.
    """

    def __init__(
        self, own: Float[Array, "*s C"], weight: float | Float[Array, "*s"],
        certainty: float | Float[Array, "*s"] | None,
    ) -> None:  # fmt: skip
        self.blend, self._left, self._certainty = own, 1.0 - weight, certainty
        self._settled: Bool[Array, "*s"] = self._sure()

    def _sure(self) -> Bool[Array, "*s"]:
        lead = margin(self.blend)
        return lead > lead if self._certainty is None else lead > self._certainty * self._left

    @property
    def asking(self) -> Bool[Array, "*s"]:
        """About which inputs the node is not sure yet."""
        return ~self._settled

    def hear(self, said: Float[Array, "*s C"], weight: float | Float[Array, "*s"]) -> None:
        """Neighbours of this weight have had their turn; α p of those who were asked and have answered."""
        self.blend = self.blend + said
        self._left = self._left - weight
        self._settled = self._settled | self._sure()


def typical_margin(evidence: Evidence, alpha: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
    """By how much the likeliest class usually leads in a neighbour's replies on V_i; a mean, weighted by α.

    Those not yet asked could put all their weight on one class, but seldom do: with ten classes their first
    leads by about .8, with a hundred by .3. 1 where there are no neighbours, or no validation examples.
    """
    seen = segment_sum(margin(evidence.probabilities[:, 1:]), evidence.offsets)
    seen = seen / evidence.offsets.diff().clamp(min=1)[:, None]
    counts = evidence.mask[:, 1:] & (evidence.offsets.diff() > 0)[:, None]
    weight = alpha[:, 1:] * counts
    total = weight.sum(-1)
    return torch.where(total > 0, (weight * seen).sum(-1) / total.clamp(min=1e-30), 1.0)


# -- the same on the node's own validation set ------------------------------------------------------


def mixed(
    probabilities: Float[Tensor, "T D C"],
    votes: Float[Tensor, "n D"] | Float[Tensor, "n D C"],
    offsets: Int[Tensor, "n+1"],
) -> Float[Tensor, "T C"]:
    """q_i(x) for every node's own validation examples; rows sum to 1 or are 0."""
    spread_votes = spread(votes if votes.ndim == 3 else votes[..., None], offsets, len(probabilities))
    q = (probabilities * spread_votes).sum(1)
    return q / q.sum(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)


def validation_accuracy(
    probabilities: Float[Tensor, "T C"], labels: Int[Tensor, "T"], offsets: Int[Tensor, "n+1"]
) -> Float[Tensor, "n"]:
    """Share of the validation examples that are classified right."""
    right: Bool[Tensor, "T"] = probabilities.argmax(-1) == labels
    return segment_mean(right.to(probabilities.dtype), offsets)
