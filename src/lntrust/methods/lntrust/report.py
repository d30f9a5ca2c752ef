"""What a run of LNTrust has to say about whom its nodes trust, and why."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lntrust.methods.base import ALL, Site, random_order
from lntrust.methods.lntrust.certificate import Certificate
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.features import FEATURES
from lntrust.trust.fit import permutation_importance

REPETITIONS = 10


def summary(site: Site, state: TrustState, settings: LNTrustSettings, nodes: slice = ALL) -> dict[str, Any]:
    """A few numbers, whom every node trusts how far after the last refresh, and which features matter."""
    around, first, closed = site.around, nodes.start or 0, state.closed[nodes]
    member, mask = (around.member[nodes] - first).tolist(), around.mask[nodes].tolist()
    rows = zip(member, closed.tolist(), mask, strict=True)
    asked_here = np.isin(site.world.edges[:, 0], np.arange(site.population.n)[nodes])
    out: dict[str, Any] = {
        "weighting": settings.weighting,
        "mean_self_trust": float(closed[:, 0].mean()),
        "answers_together": float(state.together[nodes].float().mean()),
        "mean_lambda": float(state.strength[nodes].mean()),
        "faulty_replies": int(site.network.faulty[asked_here].sum()),
        "trust": [{str(j): a for j, a, use in zip(*row, strict=True) if use} for row in rows],
        "together": state.together[nodes].tolist(),
    }
    if settings.weighting == "trust":
        out |= _importance(site, state, nodes)
    if isinstance(site.observer, Certificate):
        out["certificate"] = site.observer.report(state, settings)
    return out


def _importance(site: Site, state: TrustState, nodes: slice) -> dict[str, Any]:
    """Permutation importance: the rise of the validation loss, averaged over nodes, 10 repetitions."""
    e, orders = state.evidence.at(nodes), _orders(site, state.evidence.mask)[:, nodes]
    memory = {name: t[nodes] for name, t in state.memory.items()}
    rises = permutation_importance(memory, e, orders)
    by_repetition = rises.mean(1)
    return {
        "importance": dict(zip(FEATURES, by_repetition.mean(0).tolist(), strict=True)),
        "importance_std": dict(zip(FEATURES, by_repetition.std(0, unbiased=False).tolist(), strict=True)),
        "importance_per_node": rises.mean(0).tolist(),
    }


def _orders(site: Site, mask: Tensor) -> Int[Tensor, "R n D"]:
    """Random orders of every node's members; padding keeps its places."""
    members_first = (~mask).long().argsort(dim=1, stable=True)
    each = (random_order(site.world.seeds, "importance", mask, r) for r in range(REPETITIONS))
    return torch.stack([torch.empty_like(order).scatter_(1, members_first, order) for order in each])


def tables(site: Site, state: TrustState, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
    """trust: a row per refresh, node and member. features: φ_ij at the last refresh."""
    around, first, log = site.around, nodes.start or 0, state.log
    node, column = torch.nonzero(around.mask[nodes].cpu(), as_tuple=True)
    member = around.member[nodes].cpu()[node, column] - first
    refreshes = len(log.round)
    trust = {
        "round": log.round.cpu().repeat_interleave(len(node)),
        "node": node.repeat(refreshes),
        "member": member.repeat(refreshes),
        "trust": log.closed[:, nodes].cpu()[:, node, column].flatten(),
        "lambda": log.strength[:, nodes].cpu()[:, node].flatten(),
        "answers_together": log.together[:, nodes].cpu()[:, node].flatten(),
    }
    phi = state.evidence.phi[nodes].cpu()[node, column]
    named = {name.replace(" ", "_"): phi[:, f] for f, name in enumerate(FEATURES)}
    both = {"trust": trust, "features": {"node": node, "member": member, **named}}
    return {name: {c: np.asarray(v) for c, v in table.items()} for name, table in both.items()}
