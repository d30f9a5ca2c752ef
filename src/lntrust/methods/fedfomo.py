"""FedFomo: first-order model optimisation (Zhang, Sapra, Fidler, Yeung & Alvarez, ICLR 2021), over a graph.

A node trains, receives its neighbours' models, and moves from where it stood before towards those that lower
its own validation loss, by how much they lower it over how far away they are:

    w_in ∝ max(0, L_i(θ_i^{l−1}) − L_i(θ_n)) / ‖θ_n − θ_i^{l−1}‖,  Σ_n w_in = 1,  n ∈ N̄(i)
    θ_i^l ← θ_i^{l−1} + Σ_n w_in (θ_n − θ_i^{l−1})

θ_i^{l−1} is the model before the round's local steps and θ_n one after them; L_i is the cross-entropy on V_i.
The node's own trained model is one of the candidates. Where none of them lowers the loss, the sum is empty:
the node stays at θ_i^{l−1}, and its local steps are undone. Both are as in the authors' code, with which the
formulas were compared (github.com/NVlabs/FedFomo); of the paper's text only a part could be read.

Exchanged: the parameters after each round's local steps, 4P bytes per directed edge.

Where our setting differs: there is no server. The paper's clients download M models a round, chosen
ε-greedily by affinities, to save traffic where everybody could be asked; here the graph is that choice, and
every neighbour of the same architecture is heard. Momentum is local and is not undone. All nodes of an
architecture start from the same parameters, as in the authors' code. Who has no such neighbour, or nothing to
validate on, trains alone. The weighting `fedfomo` of `lntrust` is another thing: it weighs answers, and sees
no parameters.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lntrust.core.segments import segment_mean, spread, sum_by
from lntrust.methods.base import Site, State
from lntrust.methods.sharing import Sharing, Subgraph, subgraphs

_FLOOR = 1e-8  # the least probability that a loss is taken of


class FedFomo(Sharing):
    about = "move towards neighbours' models by the validation loss they save over their distance"
    common_start = True
    uses_validation = True

    def round(self, site: Site, state: State, t: int) -> State:
        before = [site.population.parameters(subgraph.stack) for subgraph in subgraphs(site)]
        loss_before = own_loss(site)
        state = super().round(site, state, t)
        saved = loss_before - own_loss(site)
        for subgraph, old in zip(subgraphs(site), before, strict=True):
            if len(subgraph.edges):
                self.move(site, subgraph, old, loss_before, saved)
        return state

    def move(
        self,
        site: Site,
        subgraph: Subgraph,
        old: Float[Tensor, "n P"],
        loss_before: Float[Tensor, "n"],
        saved: Float[Tensor, "n"],
    ) -> None:
        """θ_i ← θ_i^{l−1} + Σ_n w_in (θ_n − θ_i^{l−1}) for every node with a neighbour and a V_i."""
        population, n = site.population, site.population.n
        theta = population.parameters(subgraph.stack)
        # In row (i, j) of the edges, i judges θ_j, which has come to it over row (j, i).
        i, j = subgraph.sender, subgraph.receiver
        theirs = first_order(loss_before[i] - neighbours_loss(site, subgraph), theta[j] - old[i])
        own = first_order(saved, theta - old)
        total = own + sum_by(i, theirs, n)
        scale = torch.where(total > 0, 1.0 / total, 0.0)
        back = torch.searchsorted(i * n + j, j * n + i)  # edges are sorted by both
        arrived = self.weighted_sum(site, subgraph, (theirs * scale[i])[back])
        moved = arrived + (own * scale)[:, None] * theta
        moved = torch.where((total > 0)[:, None], moved, old)
        judges = (subgraph.degree > 0) & (site.validation.offsets.diff() > 0)
        population.set_parameters(subgraph.stack, torch.where(judges[:, None], moved, theta))


def first_order(saved: Float[Tensor, "q"], way: Float[Tensor, "q P"]) -> Float[Tensor, "q"]:
    """max(0, the loss saved) over the distance; 0 where there is none."""
    distance = torch.linalg.vector_norm(way, dim=1)
    return torch.where(distance > 0, saved.clamp(min=0) / distance, 0.0)


def own_loss(site: Site) -> Float[Tensor, "n"]:
    """L_i(θ_i): every node's model on its own validation set; 0 for an empty one."""
    ids, offsets = site.validation.ids, site.validation.offsets
    owner = spread(torch.arange(site.population.n, device=ids.device), offsets, len(ids))
    p = site.population.asked(owner, ids)()
    return segment_mean(cross_entropies(p, site.population.labels_of(owner, ids)), offsets)


def neighbours_loss(site: Site, subgraph: Subgraph) -> Float[Tensor, "q"]:
    """L_i(θ_j) for every edge (i, j). Node i holds a copy of θ_j, so that it asks nobody."""
    with site.sharing.uncharged():
        replies = site.network.ask(site.validation, "mix", subgraph.edges)
    route = replies.route
    labels = site.population.labels_of(route.asker[route.of_edge], site.validation.ids[route.question])
    return segment_mean(cross_entropies(replies.probabilities, labels), route.offsets)


def cross_entropies(p: Float[Tensor, "T C"], labels: Int[Tensor, "T"]) -> Float[Tensor, "T"]:
    """−log p(y), row by row."""
    return -p.gather(-1, labels[:, None])[:, 0].clamp(min=_FLOOR).log()
