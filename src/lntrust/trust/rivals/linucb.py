"""LinUCB (Li et al. 2010): a linear bandit over the relational features."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import Memory, Weighting


class LinUCB(Weighting):
    """Context φ_ij, reward the weighted probe accuracy gained over self; one ridge model per node.

    A = I + Σ φφᵀ, b = Σ r·φ over all members and refreshes; the bound is φᵀA⁻¹b + √(φᵀA⁻¹φ).
    All weight goes to the highest bound.
    """

    about = "a linear bandit over the features: the member with the highest upper bound"
    ridge, exploration = 1.0, 1.0

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        n, _, F = evidence.phi.shape
        eye = torch.eye(F, dtype=evidence.phi.dtype, device=evidence.phi.device)
        return {"A": self.ridge * eye.repeat(n, 1, 1), "b": torch.zeros_like(evidence.phi[:, 0])}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        phi = evidence.phi * evidence.mask[..., None]
        reward = evidence.accuracy - evidence.accuracy[:, :1]
        return {
            "A": memory["A"] + torch.einsum("ndf,ndg->nfg", phi, phi),
            "b": memory["b"] + torch.einsum("ndf,nd->nf", phi, reward),
        }

    def bounds(self, memory: Memory, evidence: Evidence) -> Float[Tensor, "n D"]:
        """The upper confidence bound of every member."""
        solved = torch.linalg.solve(memory["A"], evidence.phi.transpose(1, 2))  # A⁻¹φ, [n, 6, D]
        mean = torch.einsum("nfd,nf->nd", solved, memory["b"])
        width = torch.einsum("nfd,ndf->nd", solved, evidence.phi).clamp(min=0).sqrt()
        return mean + self.exploration * width

    def weights(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        bounds = self.bounds(memory, evidence)
        best = bounds.masked_fill(~options, -torch.inf).argmax(-1, keepdim=True)
        return torch.zeros_like(bounds).scatter_(-1, best, 1.0) * options
