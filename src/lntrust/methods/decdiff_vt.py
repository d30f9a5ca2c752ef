"""DecDiff + VT (Valerio, Boldrini, Passarella, Kertész, Karsai & Iñiguez 2023).

Made for nodes that start apart: instead of replacing its parameters by an average, a node takes a step of
bounded length towards its neighbours' mean,

    w̄_i = Σ_{j∈N(i)} α_ij w_j,  α_ij ∝ |D_j|,     w_i ← w_i + (w̄_i − w_i) / (‖w̄_i − w_i‖₂ + 1),

and learns its labels from a virtual teacher that puts β on the true class and shares the rest out evenly:

    q_i(c) = β for c = y, (1 − β)/(C − 1) else;     loss = −Σ_c q_i(c) log p_i(c)

(the KL divergence to the teacher, up to a constant).

Confirmed: the abstracts (arXiv 2312.04504; Pervasive and Mobile Computing 118, 2026) say that a model moves
towards its neighbourhood's average by a share that falls with their distance, that labels are softened
without a teacher model, and that initialisations differ. The virtual teacher, β on the true class and the
rest even, is that of Yuan et al. (2020) and their code, which mixes it with plain cross-entropy. Not
confirmed, since neither the paper's equations nor code of its authors could be read: the 1 beside the norm,
the weights α, that w̄_i leaves w_i out, β = .95, and that nothing is mixed with the soft labels' loss.

Exchanged: parameters and sample count after each round's local steps, 4P + 8 bytes per directed edge.

Where our setting differs: the norm is that of all parameters flattened into one vector; neighbours are those
of the same architecture; initialisations differ from node to node, as in the paper.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.segments import sum_by
from lntrust.methods.base import Site, State
from lntrust.methods.sharing import Sharing, Subgraph, subgraphs
from lntrust.study.settings import MethodSettings, Range


class DecDiffSettings(MethodSettings):
    beta: Annotated[float, Range(0.7, 1.0)] = Field(0.95, gt=0, le=1)
    """β, what the virtual teacher gives to the true class"""


class DecDiffVT(Sharing):
    about = "a bounded step towards the neighbours' mean parameters; labels from a virtual teacher"
    settings_class = DecDiffSettings
    settings: DecDiffSettings

    def round(self, site: Site, state: State, t: int) -> State:
        for batch in site.labelled.round(t - 1):
            beta = torch.full_like(batch.labels[:, 0], self.settings.beta, dtype=site.population.dtype)
            site.population.step(batch, virtual_teacher, (beta,))
        for subgraph in subgraphs(site):
            self.approach(site, subgraph)
        return state

    def approach(self, site: Site, subgraph: Subgraph) -> None:
        """w_i ← w_i + (w̄_i − w_i)/(‖w̄_i − w_i‖ + 1) for every node with a neighbour."""
        population, samples = site.population, site.labelled.sizes
        share = samples[subgraph.sender].to(population.dtype)
        alpha = share / sum_by(subgraph.receiver, share, population.n)[subgraph.receiver]
        mean = self.weighted_sum(site, subgraph, alpha, samples=samples[:, None])
        w = population.parameters(subgraph.stack)
        way = torch.where((subgraph.degree > 0)[:, None], mean - w, torch.zeros_like(w))
        step = way / (torch.linalg.vector_norm(way, dim=1, keepdim=True) + 1.0)
        population.set_parameters(subgraph.stack, w + step)


def virtual_teacher(
    logits: Float[Tensor, "n B C"], labels: Int[Tensor, "n B"], beta: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """Cross-entropy to β on the label and (1 − β)/(C − 1) on every other class."""
    log_p = logits.log_softmax(-1)
    true = log_p.gather(-1, labels[..., None]).squeeze(-1)
    others = log_p.sum(-1) - true
    rest = (1.0 - beta) / max(1, logits.shape[-1] - 1)
    return -(beta[:, None] * true + rest[:, None] * others).mean(-1)
