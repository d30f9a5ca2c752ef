"""Multiplicative updates: Hedge and Weighted Majority."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import one_hot

from lntrust.core.segments import segment_sum
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import Memory, Weighting, renormalised, trust_weights


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
    """w_ij^c ← w_ij^c·β^(1−ρ_ij^c) at each refresh, Σ_j w_ij^c = 1; votes q_c ∝ Σ_j w_ij^c p_j^c.

    Littlestone & Warmuth (1994) with fractional errors, a weight for every class. A class that is absent from
    V_i says nothing of anybody, and is left as it is. Weights sum to 1 over the members within each class:
    else a class that everybody knows a little less would lose all of its votes. Gates use
    α_ij ∝ Σ_c w_i^c w_ij^c.
    """

    about = "a weight per member and class, shrunk by its probe errors"
    beta = 0.5

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return {"log weight": torch.zeros_like(evidence.rho)}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        C = evidence.rho.shape[-1]
        seen = segment_sum(one_hot(evidence.labels, C).to(evidence.rho.dtype), evidence.offsets) > 0
        errors = (1.0 - evidence.rho) * seen[:, None, :]
        return {"log weight": memory["log weight"] + math.log(self.beta) * errors}

    def votes(
        self,
        memory: Memory,
        evidence: Evidence,
        options: Bool[Tensor, "n D"],
    ) -> Float[Tensor, "n D C"]:
        by_class = memory["log weight"].transpose(1, 2)
        choice = options[:, None, :].expand_as(by_class)
        return trust_weights(by_class, choice).transpose(1, 2)

    def weights(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        by_class = self.votes(memory, evidence, options)
        return renormalised((evidence.w[:, None, :] * by_class).sum(-1), options)
