"""Simplex ERM: free weights, fitted to the validation loss with a small penalty on ‖α‖²."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.trust.blend import validation_loss
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import Memory, Weighting, trust_weights


class SimplexERM(Weighting):
    """min over free logits of the clipped validation log-loss + 0.01·‖α‖²; Adam, lowest-loss state."""

    about = "free weights on the simplex, fitted to the validation loss"
    steps, lr, penalty = 300, 0.05, 0.01

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        p_true, mask = evidence.p_true, evidence.mask
        logits = torch.zeros_like(evidence.phi[..., 0]).requires_grad_()
        optimiser = torch.optim.Adam([logits], lr=self.lr)
        best = logits.detach().clone()
        lowest = torch.full_like(best[:, 0], torch.inf)
        for step in range(self.steps + 1):
            alpha = trust_weights(logits, mask)
            losses = validation_loss(p_true, alpha, evidence.offsets)
            losses = losses + self.penalty * alpha.square().sum(-1)
            with torch.no_grad():
                better = losses < lowest
                lowest = torch.where(better, losses, lowest)
                best = torch.where(better[:, None], logits, best)
            if step < self.steps:
                optimiser.zero_grad(set_to_none=True)
                losses.sum().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        return {"logits": best}

    def weights(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D"]:
        return trust_weights(memory["logits"], options)
