"""What a run of LNTrust has to say about whom its nodes trust, and why."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lntrust.core.randomness import fold
from lntrust.methods.base import ALL, Site
from lntrust.methods.lntrust.certificate import Certificate
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.features import FEATURES
from lntrust.trust.fit import permutation_importance

REPETITIONS = 10


def summary(site: Site, state: TrustState, settings: LNTrustSettings, nodes: slice = ALL) -> dict[str, Any]:
    """A few numbers, whom every node trusts how far after the last refresh, and which features matter."""
    around, first, here = site.around, nodes.start or 0, state.at(nodes)
    member, mask = (around.member[nodes] - first).tolist(), around.mask[nodes].tolist()
    rows = zip(member, here.closed.tolist(), mask, strict=True)
    asks_here = torch.zeros(site.population.n, dtype=torch.bool)
    asks_here[nodes] = True
    faulty = site.network.faulty[asks_here.numpy()[site.world.edges[:, 0]]]
    out: dict[str, Any] = {
        "weighting": settings.weighting,
        "mean_self_trust": float(here.closed[:, 0].mean()),
        "answers_together": float(here.together.float().mean()),
        "mean_lambda": float(here.strength.mean()),
        "faulty_replies": int(faulty.sum()),
        "trust": [{str(j): a for j, a, use in zip(*row, strict=True) if use} for row in rows],
        "together": here.together.tolist(),
    }
    if settings.weighting == "trust":
        out |= _importance(here, _orders(site, state.evidence.mask)[:, nodes])
    if isinstance(site.observer, Certificate):
        out["certificate"] = site.observer.report(state, settings.epsilon_dep, settings.delta)
    return out


def _importance(state: TrustState, orders: Int[Tensor, "R n D"]) -> dict[str, Any]:
    """Permutation importance: the rise of the validation loss, averaged over nodes, 10 repetitions."""
    e = state.evidence
    rises = permutation_importance(state.memory, e.phi, e.mask, e.p_true, e.offsets, orders)
    by_repetition = rises.mean(1)
    return {
        "importance": dict(zip(FEATURES, by_repetition.mean(0).tolist(), strict=True)),
        "importance_std": dict(zip(FEATURES, by_repetition.std(0, unbiased=False).tolist(), strict=True)),
        "importance_per_node": rises.mean(0).tolist(),
    }


def _orders(site: Site, mask: Tensor) -> Int[Tensor, "R n D"]:
    """Random orders of every node's members; padding keeps its places."""
    n, D = mask.shape
    seeds = site.world.seeds
    roots, number = seeds.roots("importance", mask.device), torch.arange(n, device=mask.device) % seeds.n
    column = torch.arange(D, device=mask.device)
    members_first = (~mask).long().argsort(dim=1, stable=True)
    orders = []
    for r in range(REPETITIONS):
        of_node = fold(roots, r).repeat_interleave(seeds.n)
        words = fold(fold(of_node, number)[:, None], column)
        places = words.masked_fill(~mask, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
        orders.append(torch.empty_like(places).scatter_(1, members_first, places))
    return torch.stack(orders)


def tables(site: Site, state: TrustState, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
    """trust: a row per refresh, node and member. features: φ_ij at the last refresh."""
    around, first, here = site.around, nodes.start or 0, state.at(nodes)
    node, column = torch.nonzero(around.mask[nodes].cpu(), as_tuple=True)
    member = around.member[nodes].cpu()[node, column] - first
    refreshes = len(here.log.round)
    trust = {
        "round": here.log.round.cpu().repeat_interleave(len(node)),
        "node": node.repeat(refreshes),
        "member": member.repeat(refreshes),
        "trust": here.log.closed.cpu()[:, node, column].flatten(),
        "lambda": here.log.strength.cpu()[:, node].flatten(),
        "answers_together": here.log.together.cpu()[:, node].flatten(),
    }
    phi = here.evidence.phi.cpu()[node, column]
    named = {name.replace(" ", "_"): phi[:, f] for f, name in enumerate(FEATURES)}
    both = {"trust": trust, "features": {"node": node, "member": member, **named}}
    return {name: {c: np.asarray(v) for c, v in table.items()} for name, table in both.items()}
