"""What LNTrust asks its neighbours: about V_i, for the evidence of a refresh, and for targets to learn from.

    p̄_i(x) = Σ_j α_ij p_j(x)

over the neighbours that were asked, filtered by confidence and weighted by ω_i(x). With `recall` = K the
whole shard is asked about every K rounds; the replies are kept for each neighbour, so that in between trust
may still move among them.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_sum
from lntrust.methods.base import Site
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.lntrust.state import RememberedReplies, TrustState
from lntrust.network import Questions, Replies
from lntrust.trust import distil, features
from lntrust.trust.distil import DistillTargets
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import renormalised, top_k
from lntrust.world.world import class_distribution

# -- evidence ---------------------------------------------------------------------------------------


def validating(site: Site, settings: LNTrustSettings, t: int) -> Site:
    """The site as round t may see it. If V_i is split, one half of it is looked at while training, the other
    for the last fit; and w_i, which training looks at, does not count the labels of that other half."""
    if not settings.split_validation:
        return site
    if "halves" not in site.known:
        world, C = site.world, len(site.world.classes)
        seen = [(one, (one.partition.train, one.partition.validation.halves()[0])) for one in world.worlds]
        w = np.concatenate([class_distribution(one.labels, parts, C) for one, parts in seen])
        site.known["halves"] = []
        for half in world.partition.validation.halves():
            partition = replace(world.partition, validation=half)
            halved = replace(world, partition=partition, class_distribution=w)
            site.known["halves"].append(replace(site, world=halved, known={}))
    sites: list[Site] = site.known["halves"]  # for training, for the last fit
    return sites[int(t >= site.schedule.last_fit)]


def collect_evidence(site: Site, sample: int, t: int) -> Evidence:
    """Ask everybody about V_i and, if `sample` is not 0, about so many examples of the shard, to see ŵ_j."""
    population, world, around, w = site.population, site.world, site.around, site.class_distribution
    got = site.probe("probe")
    mask, w_hat = got.mask, None
    if sample:
        ids = site.unlabelled("sample", sample, t)
        replies = site.network.ask(Questions.of(ids, "shard"), "probe")
        w_hat = w.new_zeros(*mask.shape, population.classes)
        w_hat[:, 0] = features.class_distribution(site.network.own(ids)[:, None])[:, 0]
        asker, column = site.network.edges[replies.edge, 0], around.column[replies.edge]
        w_hat[asker, column] = features.class_distribution(replies.regular())
        mask = mask & site.sound_members(replies)
    degrees = torch.from_numpy(world.degrees).to(population.device, population.dtype)
    offsets = site.validation.offsets
    rho = features.probe_response(got.probabilities, got.labels, offsets) * mask[..., None]
    degree = degrees[around.member] / world.seeds.n  # the nodes of one's own world
    phi = features.relational_features(rho, w_hat, w, degree, mask)
    of_row = torch.repeat_interleave(mask, offsets.diff(), dim=0, output_size=len(got.labels))
    return Evidence(mask, got.probabilities * of_row[..., None], got.labels, offsets, rho, phi, w)


# -- targets to learn from --------------------------------------------------------------------------


def distill_targets(
    site: Site, state: TrustState, settings: LNTrustSettings, t: int
) -> tuple[TrustState, DistillTargets]:
    """The targets of round t, and a state that remembers what later rounds may need."""
    places = site.places("distil", settings.budget, t)
    ids = site.shard.gather(1, places)
    if settings.recall is None:
        p_bar, votes, present = _of_replies(site, state, *_ask_teachers(site, state, settings, ids))
    else:
        replies = state.replies
        if replies is None or (t - settings.warmup - 1) % settings.recall == 0:
            replies = _remembered(site, *_ask_teachers(site, state, settings, site.shard))
            state = replace(state, replies=replies)
        p_bar, votes, present = _of_memory(site, state, replies, places)
    answered = present.any(-1) & (votes.flatten(1).sum(-1) > 0)  # by anybody of weight
    total = p_bar.sum(-1, keepdim=True)
    p_bar = torch.where(total > 0, p_bar / total.clamp(min=torch.finfo(p_bar.dtype).tiny), 0.0)
    C = site.population.classes
    tau = distil.threshold(C, settings.confidence_floor, settings.confidence_margin)
    kept, predicted = distil.confidence_filter(p_bar, tau)
    kept &= answered[:, None]
    omega = distil.importance_weights(settings.importance, site.class_distribution, predicted, kept)
    return state, DistillTargets(ids, p_bar, predicted, kept, omega)


def _ask_teachers(
    site: Site, state: TrustState, settings: LNTrustSettings, ids: Int[Tensor, "n B"]
) -> tuple[Bool[Tensor, "n D"], Replies]:
    """Who is asked about these examples, all neighbours or the k most trusted, and what they say."""
    asked, edges = site.around.open, None
    if settings.top_k is not None:
        asked = top_k(state.open, settings.top_k)
        edges = site.around.edge[asked].sort().values
    return asked, site.network.ask(Questions.of(ids, "shard"), "distil", edges)


# Σ_j α_ij p_j(x), not yet scaled; every neighbour's α_ij there; and who of them has a say.
Blended = tuple[Float[Tensor, "n B C"], Float[Tensor, "n D *C"], Bool[Tensor, "n D"]]


def _of_replies(site: Site, state: TrustState, asked: Bool[Tensor, "n D"], replies: Replies) -> Blended:
    """p̄_i(x) over those who have just answered soundly."""
    present = asked & site.sound_members(replies)
    votes = renormalised(state.open_votes, present)
    asker = site.network.edges[replies.edge, 0]  # sorted, since edges are
    vote = votes[asker, site.around.column[replies.edge]]
    said = replies.regular() * (vote[:, None, None] if vote.ndim == 1 else vote[:, None])  # perhaps of nobody
    offsets = torch.searchsorted(asker, torch.arange(len(asked) + 1, device=asker.device))
    return segment_sum(said.flatten(1), offsets).view(-1, *said.shape[1:]), votes, present


def _remembered(site: Site, asked: Bool[Tensor, "n D"], replies: Replies) -> RememberedReplies:
    """Replies about the whole shard, in the slots of their askers."""
    n, S = site.shard.shape
    slots = max(1, int(asked.sum(-1).max()))
    column = torch.zeros(n, slots, dtype=torch.int64, device=asked.device)
    kept = replies.probabilities.new_zeros(n, slots, S, replies.probabilities.shape[-1])
    asker = site.network.edges[replies.edge, 0]
    first = torch.searchsorted(asker, asker)  # where the asker's replies begin
    slot = torch.arange(len(asker), device=asker.device) - first
    column[asker, slot] = torch.where(replies.sound, site.around.column[replies.edge], 0)
    kept[asker, slot] = replies.regular()
    return RememberedReplies(column, kept)


def _of_memory(
    site: Site, state: TrustState, replies: RememberedReplies, places: Int[Tensor, "n B"]
) -> Blended:
    """p̄_i(x) of remembered replies, under the trust of today."""
    column, said = replies.column, replies.probabilities
    node = torch.arange(len(column), device=column.device)[:, None]
    present = torch.zeros_like(site.around.mask)
    present[node, column] = True
    present[:, 0] = False
    votes = renormalised(state.open_votes, present)
    vote = votes[node, column].view(*column.shape, 1, -1)  # one of each, or one for each class
    p_bar = torch.zeros(*places.shape, said.shape[-1], dtype=said.dtype, device=said.device)
    for slot in range(column.shape[1]):  # one after another: all at once would not fit for large fleets
        p_bar += vote[:, slot] * said[node, slot, places]
    return p_bar, votes, present
