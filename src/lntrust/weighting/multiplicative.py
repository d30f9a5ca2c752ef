"""Multiplicative updates: Hedge and Weighted Majority."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import renormalised, trust_weights
from lntrust.weighting.base import Memory, Weighting


class Hedge(Weighting):
    """log w_j −= η·(1 − ρ̄_ij) at each refresh (Freund & Schapire 1997)."""

    about = "exponential weights on the probe error, accumulated over refreshes"
    eta = 0.5

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return {"log weight": torch.zeros_like(evidence.phi[..., 0])}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        loss = 1.0 - evidence.rho.mean(-1)
        return {"log weight": memory["log weight"] - self.eta * loss}

    def weights(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D"]:
        return trust_weights(memory["log weight"], options)


class WeightedMajority(Weighting):
    """w_ij^c ← w_ij^c·β^(1−ρ_ij^c) at each refresh; votes q_c ∝ Σ_j w_ij^c p_j^c.

    Littlestone & Warmuth (1994) with fractional errors, a weight for every class. Gates use
    α_ij ∝ Σ_c w_i^c w_ij^c.
    """

    about = "a weight per member and class, shrunk by its probe errors"
    beta = 0.5

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return {"log weight": torch.zeros_like(evidence.rho)}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        return {"log weight": memory["log weight"] + math.log(self.beta) * (1.0 - evidence.rho)}

    def votes(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D C"]:
        log_weight = memory["log weight"].masked_fill(~options[..., None], -torch.inf)
        # A common factor per node changes nothing; without it long runs underflow.
        top = log_weight.amax((1, 2), keepdim=True).clamp(min=-1e30)
        return (log_weight - top).exp()

    def weights(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        by_class = self.votes(memory, evidence, options)
        return renormalised((evidence.w[:, None, :] * by_class).sum(-1), options)
