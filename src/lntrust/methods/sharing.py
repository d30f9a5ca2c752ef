"""Parameter sharing: what its methods have in common.

Parameters mean something to another node only where they are coordinates of the same map. So they are
shared inside each architecture's subgraph, and nowhere else: averaging a head over one backbone's features
with a head over another's would add unrelated numbers. A node with no neighbour of its kind trains alone,
and so does every learner without parameters. Parameters are what is trained: buffers, such as the running
statistics of batch normalisation, stay at home.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import sum_by
from lntrust.core.text import count_text
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

    @cached_property
    def on_cpu(self) -> tuple[Int[Tensor, "q"], Int[Tensor, "q"], Int[Tensor, "n"]]:
        """Edges, receivers and degrees, for who decides there and does not wait for a GPU."""
        return self.edges.cpu(), self.receiver.cpu(), self.degree.cpu()


def subgraphs(site: Site) -> list[Subgraph]:
    """Every architecture's subgraph, also where it has no edge. Found once."""
    found: list[Subgraph] = site.known.setdefault("subgraphs", [])
    edges = site.network.edges
    for stack in site.population.torch_stacks[len(found) :]:
        kept = torch.nonzero(torch.isin(edges, stack.nodes).all(1)).flatten()
        sender, receiver = edges[kept].unbind(1)
        degree = torch.bincount(sender, minlength=site.population.n)
        found.append(Subgraph(stack, kept, sender, receiver, degree))
    return found


def metropolis_hastings(
    subgraph: Subgraph, dtype: torch.dtype
) -> tuple[Float[Tensor, "q"], Float[Tensor, "n"]]:
    """W_ij = 1/(1 + max(d_i, d_j)) for neighbours, W_ii = 1 − Σ_j W_ij: symmetric, rows sum to one."""
    larger = torch.maximum(subgraph.degree[subgraph.sender], subgraph.degree[subgraph.receiver])
    weights = 1.0 / (1 + larger).to(dtype)
    return weights, 1.0 - sum_by(subgraph.receiver, weights, len(subgraph.degree))


class Sharing(Method):
    """A method that shares parameters."""

    by_gradients = True

    def remarks(self, site: Site) -> list[str]:
        population, out, parts, lonely = site.population, [], [], 0
        for sub in subgraphs(site):
            lonely += int((sub.degree[sub.stack.nodes] == 0).sum())
            nodes, edges = count_text(len(sub.stack.nodes), "node"), count_text(len(sub.edges) // 2, "edge")
            parts.append(f"{sub.stack.learner.name} ({nodes}, {edges})")
        if len(population.stacks) > 1:
            out.append(f"parameters are shared inside one architecture only: {', '.join(parts) or 'none'}")
        if lonely:
            seeds = len(population.seeds)
            nodes = f"{population.n} nodes" + (f" of {seeds} seeds" if seeds > 1 else "")
            out.append(f"{lonely} of {nodes} have no neighbour of their kind and train alone")
        return out + super().remarks(site)

    def weighted_sum(
        self, site: Site, subgraph: Subgraph, weights: Float[Tensor, "q"], **beside: Tensor
    ) -> Float[Tensor, "n P"]:
        """Row i: Σ_j weight_ji · θ_j over the neighbours j of node i's kind. One message per edge."""
        theta = site.population.parameters(subgraph.stack)
        if site.population.backend == "batched":
            return site.sharing.average(subgraph.edges, weights, theta, "mix", **beside)
        out = torch.zeros_like(theta)
        arrived = site.sharing.send(subgraph.edges, {"parameters": theta, **beside}, "parameters", "mix")
        for i in subgraph.stack.nodes.tolist():
            for row in torch.nonzero(subgraph.receiver == i).flatten().tolist():
                out[i] += weights[row] * arrived["parameters"][row]
        return out

    def mix(self, site: Site, who: Bool[Tensor, "n"] | None = None) -> None:
        """θ_i ← Σ_j W_ij θ_j with Metropolis–Hastings weights, everybody at once, or whole worlds `who`."""
        for sub in subgraphs(site):
            weights, own = metropolis_hastings(sub, site.population.dtype)
            theta = site.population.parameters(sub.stack)
            if who is not None:
                among = who[sub.receiver]
                parts = {name: getattr(sub, name)[among] for name in ("edges", "sender", "receiver")}
                sub, weights = replace(sub, **parts), weights[among]
            mixed = own[:, None] * theta + self.weighted_sum(site, sub, weights)
            mixed = mixed if who is None else torch.where(who[:, None], mixed, theta)
            site.population.set_parameters(sub.stack, mixed)
