"""Parameter sharing: what its methods have in common.

Parameters mean something to another node only where they are coordinates of the same map. So they are
shared inside each architecture's subgraph, and nowhere else: averaging a head over one backbone's features
with a head over another's would add unrelated numbers. A node with no neighbour of its kind trains alone,
and so does every learner without parameters. Parameters are what is trained: buffers, such as the running
statistics of batch normalisation, stay at home.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import sum_by
from lntrust.core.text import count_text
from lntrust.learners.estimators import Estimators
from lntrust.learners.training import Stack
from lntrust.methods.base import Method, Site


@dataclass(frozen=True)
class Subgraph:
    """The nodes of one architecture, and who of them knows whom."""

    stack: Stack
    edges: Int[Tensor, "q"]  # rows of network.edges: (sender, receiver)
    sender: Int[Tensor, "q"]
    receiver: Int[Tensor, "q"]
    degree: Int[Tensor, "n"]  # neighbours of the same architecture; 0 for nodes of another


def subgraphs(site: Site) -> list[Subgraph]:
    """Every architecture's subgraph, also where it has no edge. Found once."""
    if "subgraphs" not in site.known:
        site.known["subgraphs"] = [_subgraph(site, stack) for stack in site.population.torch_stacks]
    found: list[Subgraph] = site.known["subgraphs"]
    return found


def _subgraph(site: Site, stack: Stack) -> Subgraph:
    n, edges = site.population.n, site.network.edges
    inside = torch.zeros(n, dtype=torch.bool, device=edges.device)
    inside[stack.nodes] = True
    kept = torch.nonzero(inside[edges[:, 0]] & inside[edges[:, 1]]).flatten()
    sender, receiver = edges[kept].unbind(1)
    return Subgraph(stack, kept, sender, receiver, torch.bincount(sender, minlength=n))


def metropolis_hastings(
    subgraph: Subgraph, dtype: torch.dtype
) -> tuple[Float[Tensor, "q"], Float[Tensor, "n"]]:
    """W_ij = 1/(1 + max(d_i, d_j)) for neighbours, W_ii = 1 − Σ_j W_ij: symmetric, rows sum to one."""
    larger = torch.maximum(subgraph.degree[subgraph.sender], subgraph.degree[subgraph.receiver])
    weights = 1.0 / (1 + larger).to(dtype)
    return weights, 1.0 - sum_by(subgraph.receiver, weights, len(subgraph.degree))


class Sharing(Method):
    """A method that shares parameters."""

    def remarks(self, site: Site) -> list[str]:
        population, out, parts, lonely = site.population, [], [], 0
        for sub in subgraphs(site):
            lonely += int((sub.degree[sub.stack.nodes] == 0).sum())
            size = f"{count_text(len(sub.stack.nodes), 'node')}, {count_text(len(sub.edges) // 2, 'edge')}"
            parts.append(f"{sub.stack.learner.name} ({size})")
        if len(population.stacks) > 1:
            out.append(f"parameters are shared inside one architecture only: {', '.join(parts) or 'none'}")
        if lonely:
            seeds = len(population.seeds)
            nodes = f"{population.n} nodes" + (f" of {seeds} seeds" if seeds > 1 else "")
            out.append(f"{lonely} of {nodes} have no neighbour of their kind and train alone")
        return out + estimators_alone(site)

    def weighted_sum(
        self, site: Site, subgraph: Subgraph, weights: Float[Tensor, "q"], phase: str, **beside: Tensor
    ) -> Float[Tensor, "n P"]:
        """Row i: Σ_j weight_ji · θ_j over the neighbours j of node i's kind. One message per edge."""
        theta = site.population.parameters(subgraph.stack)
        if site.population.backend == "batched":
            return site.sharing.average(subgraph.edges, weights, theta, phase, **beside)
        out = torch.zeros_like(theta)
        arrived = site.sharing.send(subgraph.edges, {"parameters": theta, **beside}, "parameters", phase)
        for i in subgraph.stack.nodes.tolist():
            for row in torch.nonzero(subgraph.receiver == i).flatten().tolist():
                out[i] += weights[row] * arrived["parameters"][row]
        return out

    def mix(self, site: Site, phase: str, who: Bool[Tensor, "n"] | None = None) -> None:
        """θ_i ← Σ_j W_ij θ_j with Metropolis–Hastings weights, everybody at once, or whole worlds `who`."""
        for subgraph in subgraphs(site):
            weights, own = metropolis_hastings(subgraph, site.population.dtype)
            theta = site.population.parameters(subgraph.stack)
            if who is None:
                mixed = own[:, None] * theta + self.weighted_sum(site, subgraph, weights, phase)
            else:
                among = who[subgraph.receiver]
                parts = (subgraph.edges[among], subgraph.sender[among], subgraph.receiver[among])
                some = Subgraph(subgraph.stack, *parts, subgraph.degree)
                mixed = own[:, None] * theta + self.weighted_sum(site, some, weights[among], phase)
                mixed = torch.where(who[:, None], mixed, theta)
            site.population.set_parameters(subgraph.stack, mixed)


def estimators_alone(site: Site) -> list[str]:
    """The remark of every method that works by gradients or parameters."""
    names = [stack.learner.name for stack in site.population.stacks if isinstance(stack, Estimators)]
    if not names:
        return []
    return [f"learners without gradient steps train alone and answer when asked: {', '.join(names)}"]
