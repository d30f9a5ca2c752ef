"""What a run of LNTrust has to say about whom its nodes trust, and why."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lntrust.core.randomness import fold
from lntrust.methods.base import ALL, Site, State, below
from lntrust.trust import fit as model
from lntrust.trust.evidence import Evidence
from lntrust.trust.features import FEATURES

REPETITIONS = 10


def overview(site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
    """A few numbers, and whom every node trusts how far after the last refresh."""
    around, first = site.around, nodes.start or 0
    closed, together = state["closed"][nodes], state["answers together"][nodes]
    member, mask = (around.member[nodes] - first).tolist(), around.mask[nodes].tolist()
    rows = zip(member, closed.tolist(), mask, strict=True)
    asks_here = torch.zeros(site.population.n, dtype=torch.bool)
    asks_here[nodes] = True
    faulty = site.network.faulty[asks_here.numpy()[site.world.edges[:, 0]]]
    return {
        "mean_self_trust": float(closed[:, 0].mean()),
        "answers_together": float(together.float().mean()),
        "mean_lambda": float(state["lambda"][nodes].mean()),
        "faulty_replies": int(faulty.sum()),
        "trust": [{str(j): a for j, a, use in zip(*row, strict=True) if use} for row in rows],
        "together": together.tolist(),
    }


def importance(site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
    """Permutation importance: the rise of the validation loss, averaged over nodes, 10 repetitions."""
    phi, mask = state["evidence/phi"][nodes], state["evidence/mask"][nodes]
    psi = {name: t[nodes] for name, t in below("memory/", state).items()}
    first, last, _ = nodes.indices(site.population.n)
    offsets = state["evidence/offsets"][first : last + 1]
    p_true = state["evidence/p_true"][int(offsets[0]) : int(offsets[-1])]
    orders = _orders(site, state["evidence/mask"])[:, nodes]
    rises = model.permutation_importance(psi, phi, mask, p_true, offsets - offsets[0], orders)
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


def kept_evidence(state: State) -> Evidence:
    """The last refresh's evidence as far as a run keeps it: only what members gave to the true class."""
    p_true: Float[Tensor, "T D"] = state["evidence/p_true"]
    only = torch.zeros(len(p_true), dtype=torch.int64, device=p_true.device)
    parts = {name: state[f"evidence/{name}"] for name in ("mask", "offsets", "rho", "phi", "w")}
    return Evidence(probabilities=p_true[..., None], labels=only, **parts)


def tables(site: Site, state: State, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
    """trust: a row per refresh, node and member. features: φ_ij at the last refresh."""
    around, first = site.around, nodes.start or 0
    node, column = torch.nonzero(around.mask[nodes].cpu(), as_tuple=True)
    member = around.member[nodes].cpu()[node, column] - first
    refreshes = len(state["log/round"])
    trust = {
        "round": state["log/round"].cpu().repeat_interleave(len(node)),
        "node": node.repeat(refreshes),
        "member": member.repeat(refreshes),
        "trust": state["log/closed"][:, nodes].cpu()[:, node, column].flatten(),
        "lambda": state["log/lambda"][:, nodes].cpu()[:, node].flatten(),
        "answers_together": state["log/together"][:, nodes].cpu()[:, node].flatten(),
    }
    phi = state["evidence/phi"][nodes].cpu()[node, column]
    named = {name.replace(" ", "_"): phi[:, f] for f, name in enumerate(FEATURES)}
    both = {"trust": trust, "features": {"node": node, "member": member, **named}}
    return {name: {c: np.asarray(v) for c, v in table.items()} for name, table in both.items()}
