"""Lessons: what each node's neighbours teach in one round, asked anew or remembered.

    p̄_i(x) = Σ_j α_ij p_j(x)

over the neighbours that were asked, filtered by confidence and weighted by ω_i(x). With `recall` = K the
whole shard is asked about every K rounds; the replies are kept for each neighbour, so that in between trust
may still move among them.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_sum
from lntrust.methods.base import Site, State
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.probing import heard
from lntrust.network import Questions, Replies
from lntrust.trust import distil as distillation
from lntrust.trust.weights import renormalised, top_k


class DistillTargets(NamedTuple):
    """What each node's neighbours teach in one round."""

    ids: Int[Tensor, "n B"]
    p_bar: Float[Tensor, "n B C"]  # p̄_i(x)
    predicted: Int[Tensor, "n B"]  # ĉ(x)
    kept: Bool[Tensor, "n B"]  # x ∈ B*_i
    omega: Float[Tensor, "n B"]  # ω_i(x)


def lesson(site: Site, state: State, settings: LNTrustSettings, t: int) -> tuple[State, DistillTargets]:
    """The lesson of round t, and a state that remembers what it may need later."""
    places = site.places("distil", settings.budget, t)
    ids = site.shard.gather(1, places)
    if settings.recall is None:
        asked, edges = _whom(site, state, settings)
        replies = site.network.ask(Questions.of(ids, "shard"), "distil", edges)
        p_bar, answered = _targets(site, state, replies, asked, ids.shape)
    else:
        if "recall/replies" not in state or (t - settings.warmup - 1) % settings.recall == 0:
            state = state | _remembered(site, state, settings)
        p_bar, answered = _recalled(site, state, places)
    return state, _marked(site, settings, ids, p_bar, answered)


def _marked(
    site: Site, settings: LNTrustSettings, ids: Tensor, p_bar: Tensor, answered: Bool[Tensor, "n"]
) -> DistillTargets:
    """Which examples are learned from, and how much they count."""
    C = site.population.classes
    tau = distillation.threshold(C, settings.confidence_floor, settings.confidence_margin)
    confidence, predicted = p_bar.max(-1)
    kept = (confidence > tau) & answered[:, None]
    omega = distillation.importance_weights(
        settings.importance, site.class_distribution, predicted, kept, settings.importance_power
    )
    return DistillTargets(ids, p_bar, predicted, kept, omega)


def _whom(
    site: Site, state: State, settings: LNTrustSettings
) -> tuple[Bool[Tensor, "n D"], Int[Tensor, "q"] | None]:
    """The neighbours to ask, and their edges; none: all."""
    if settings.top_k is None:
        return site.around.open, None
    asked = top_k(state["open"], settings.top_k)
    return asked, site.around.edge[asked].sort().values


def _votes(state: State, present: Bool[Tensor, "n D"]) -> Tensor:
    """The weights of those who answered."""
    return renormalised(state["open votes"], present)


def _targets(
    site: Site,
    state: State,
    replies: Replies,
    asked: Bool[Tensor, "n D"],
    shape: torch.Size,
) -> tuple[Float[Tensor, "n B C"], Bool[Tensor, "n"]]:
    """p̄_i(x) = Σ_{j∈N(i)} α_ij p_j(x) over those who answered soundly, and where anybody did."""
    (n, B), C, around = shape, replies.probabilities.shape[-1], site.around
    present = asked & heard(around, replies)
    votes = _votes(state, present)
    asker = site.network.edges[replies.edge, 0]  # sorted, since edges are
    vote = votes[asker, around.column[replies.edge]]
    vote = vote[:, None, None] if vote.ndim == 1 else vote[:, None]
    said = replies.probabilities.view(len(vote), B, C) * vote  # perhaps of nobody
    offsets = torch.searchsorted(asker, torch.arange(n + 1, device=asker.device))
    p_bar = segment_sum(said.flatten(1), offsets).view(n, B, C)
    return _whole(p_bar, votes, present)


def _whole(
    p_bar: Float[Tensor, "n B C"], votes: Tensor, present: Bool[Tensor, "n D"]
) -> tuple[Float[Tensor, "n B C"], Bool[Tensor, "n"]]:
    """Scaled to sum to 1, and where anybody of weight has spoken."""
    answered = present.any(-1) & (votes.flatten(1).sum(-1) > 0)
    total = p_bar.sum(-1, keepdim=True)
    return torch.where(total > 0, p_bar / total.clamp(min=torch.finfo(p_bar.dtype).tiny), 0.0), answered


# -- remembered -----------------------------------------------------------------------------------


def _remembered(site: Site, state: State, settings: LNTrustSettings) -> State:
    """Ask some neighbours about the whole shard. Slot s of node i holds the replies of `column[i, s]`."""
    asked, edges = _whom(site, state, settings)
    replies = site.network.ask(Questions.of(site.shard, "shard"), "distil", edges)
    n, S = site.shard.shape
    slots = max(1, int(asked.sum(-1).max()))
    column = torch.zeros(
        n, slots, dtype=torch.int64, device=asked.device
    )  # 0, the node itself: an empty slot
    kept = replies.probabilities.new_zeros(n, slots, S, replies.probabilities.shape[-1])
    asker = site.network.edges[replies.edge, 0]
    first = torch.searchsorted(asker, asker)  # where the asker's replies begin
    slot = torch.arange(len(asker), device=asker.device) - first
    column[asker, slot] = torch.where(replies.sound, site.around.column[replies.edge], 0)
    kept[asker, slot] = replies.regular()
    return {"recall/column": column, "recall/replies": kept}


def _recalled(
    site: Site, state: State, places: Int[Tensor, "n B"]
) -> tuple[Float[Tensor, "n B C"], Bool[Tensor, "n"]]:
    """p̄_i(x) of remembered replies, under the trust of today."""
    column, replies = state["recall/column"], state["recall/replies"]
    node = torch.arange(len(column), device=column.device)[:, None]
    present = torch.zeros_like(site.around.mask)
    present[node, column] = True
    present[:, 0] = False
    votes = _votes(state, present)
    vote = votes[node, column]
    vote = vote * (column > 0).view(*column.shape, *[1] * (vote.ndim - 2)).to(vote.dtype)
    p_bar = torch.zeros(*places.shape, replies.shape[-1], dtype=replies.dtype, device=replies.device)
    for slot in range(column.shape[1]):  # one after another: all at once would not fit for large fleets
        weight = vote[:, slot, None, None] if vote.ndim == 2 else vote[:, slot, None]
        p_bar += weight * replies[node, slot, places]
    return _whole(p_bar, votes, present)
