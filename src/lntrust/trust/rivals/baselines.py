"""Weightings for orientation: uniform, best single neighbour, FedFomo's loss differences."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.core.segments import segment_mean
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import Memory, Weighting, renormalised


class Uniform(Weighting):
    about = "everybody alike"

    def weights(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D"]:
        return renormalised(torch.ones_like(evidence.phi[..., 0]), options)


class BestSingle(Weighting):
    """All weight on the highest ρ̃_ij (ties: the node itself, then the earlier neighbour)."""

    about = "the one member that does best on the probes"

    def weights(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D"]:
        accuracy = evidence.accuracy.masked_fill(~options, -torch.inf)
        best = accuracy.argmax(-1, keepdim=True)
        return torch.zeros_like(accuracy).scatter_(-1, best, 1.0) * options


class FedFomo(Weighting):
    """α_ij ∝ max(0, L_i − L_ij), the validation loss that member j would save (Zhang et al. 2021).

    FedFomo divides by the distance of the parameters, which nobody can see here. The node itself
    saves nothing by itself, so it gets the mean saving of those that save: as if it were one of them.
    Where nobody saves, all weight stays with the node, or is spread evenly if it is no option.
    """

    about = "members in proportion to the validation loss they would save"

    def weights(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D"]:
        loss = segment_mean(-evidence.p_true.clamp(min=1e-8).log(), evidence.offsets)
        saved = (loss[:, :1] - loss).clamp(min=0) * evidence.open
        useful = (saved > 0).sum(-1).clamp(min=1)
        saved[:, 0] = saved.sum(-1) / useful
        alone = torch.zeros_like(saved)
        alone[:, 0] = 1.0
        alone = torch.where(options[:, :1], alone, options.to(saved.dtype))
        left = saved * options
        return renormalised(torch.where(left.sum(-1, keepdim=True) > 0, left, alone), options)
