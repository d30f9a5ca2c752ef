"""Inquiries: what a refresh asks, of everybody or only of those who are trusted most.

Every member is probed on V_i, and asked about a sample of the shard, which shows how often it predicts which
class (ŵ_j). In a thin inquiry only the `top_k` are asked, and what the others said last is remembered.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import spread
from lntrust.methods.base import Site, State, below
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.probing import Probe, heard, probe
from lntrust.network import Questions
from lntrust.network.neighbourhood import Neighbourhood
from lntrust.trust import features
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import top_k


@dataclass(frozen=True)
class Inquiry:
    evidence: Evidence
    remembered: State  # of the replies, if others will not be asked next time


def collect_evidence(
    site: Site, state: State, settings: LNTrustSettings, t: int, pool: bool, thin: bool
) -> Inquiry:
    """Ask about V_i and, where there is a pool, about a sample of the shard."""
    population, world, s = site.population, site.world, settings
    edges, asked = None, site.around.mask
    if thin:
        assert s.top_k is not None
        asked = top_k(state["open"], s.top_k)
        edges = site.around.edge[asked].sort().values
        asked[:, 0] = True
    got = probe(site, "probe", edges=edges)
    mask, w_hat = got.mask, None
    if pool:
        w_hat, answered = _class_distributions(site, got.around, s, t, edges)
        mask = mask & answered
    remembered: State = {}
    if s.top_k is not None and s.probe_others > 1:
        if thin:
            mask, got, w_hat = _completed(asked, mask, got, w_hat, below("probe/", state))
        remembered = {"probe/mask": mask, "probe/probabilities": got.probabilities}
        remembered |= {} if w_hat is None else {"probe/w_hat": w_hat}
    w = site.class_distribution
    degrees = torch.from_numpy(world.degrees).to(population.device, population.dtype)
    rho = features.probe_response(got.probabilities, got.labels, got.offsets) * mask[..., None]
    nodes = world.seeds.n  # of the node's own world
    phi = features.relational_features(rho, w_hat, w, degrees[got.around.member], nodes, mask)
    of_row = torch.repeat_interleave(mask, got.offsets.diff(), dim=0, output_size=len(got.labels))
    evidence = Evidence(
        mask, got.probabilities * of_row[..., None], got.labels, got.offsets, rho, phi, w
    )  # fmt: skip
    return Inquiry(evidence, remembered)


def _class_distributions(
    site: Site, around: Neighbourhood, settings: LNTrustSettings, t: int, edges: Int[Tensor, "q"] | None
) -> tuple[Float[Tensor, "n D C"], Bool[Tensor, "n D"]]:
    """ŵ_j as each neighbour shows it on a sample of the asker's shard, and who has answered."""
    population = site.population
    ids = site.unlabelled("sample", settings.sample, t)
    replies = site.network.ask(Questions.of(ids, "shard"), "probe", edges)
    out = torch.zeros(
        *around.mask.shape, population.classes, dtype=population.dtype, device=population.device
    )
    out[:, 0] = features.class_distribution(site.network.own(ids)[:, None])[:, 0]
    asker, column = site.network.edges[replies.edge, 0], around.column[replies.edge]
    out[asker, column] = features.class_distribution(replies.regular())
    return out, heard(around, replies)


def _completed(
    asked: Bool[Tensor, "n D"], mask: Tensor, got: Probe, w_hat: Tensor | None, before: State
) -> tuple[Tensor, Probe, Tensor | None]:
    """What was heard now, and of those who were not asked, what they said last."""
    of_row = spread(asked.to(got.probabilities.dtype), got.offsets, len(got.labels))[..., None]
    probabilities = torch.where(of_row > 0, got.probabilities, before["probabilities"])
    if w_hat is not None:
        w_hat = torch.where(asked[..., None], w_hat, before["w_hat"])
    return torch.where(asked, mask, before["mask"]), replace(got, probabilities=probabilities), w_hat
