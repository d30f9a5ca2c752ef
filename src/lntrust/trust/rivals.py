"""Learned trust and its rivals, by name: all see the same evidence, and drive the same gates and answers."""

import math
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from lntrust.core.randomness import Seeds
from lntrust.core.segments import segment_mean, segment_sum
from lntrust.trust.evidence import Evidence
from lntrust.trust.fit import TrustNetwork, scores, trust_loss
from lntrust.trust.weights import Alpha, Members, Memory, Weighting, renormalised, trust_weights


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
            losses = trust_loss(p_true, alpha, evidence.offsets)
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

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        return trust_weights(memory["logits"], options)


class Hedge(Weighting):
    """log w_j −= η·(1 − ρ̄_ij) at each refresh (Freund & Schapire 1997)."""

    about = "exponential weights on the probe error, accumulated over refreshes"
    eta = 0.5

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return {"log weight": torch.zeros_like(evidence.phi[..., 0])}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        loss = 1.0 - evidence.rho.mean(-1)
        return {"log weight": memory["log weight"] - self.eta * loss}

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
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

    def votes(self, memory: Memory, evidence: Evidence, options: Members) -> Float[Tensor, "n D C"]:
        by_class = memory["log weight"].transpose(1, 2)
        return trust_weights(by_class, options[:, None, :].expand_as(by_class)).transpose(1, 2)

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        by_class = self.votes(memory, evidence, options)
        return renormalised((evidence.w[:, None, :] * by_class).sum(-1), options)


class HedgeBoost(TrustNetwork):
    """α_ij ∝ w_ij·exp g_ψi(φ_ij), w_ij being Hedge's: learned trust with the record of all refreshes added.

    The paper's gate ablation names a "hedge weighting" inside LNTrust without a formula. This one is the
    option `hedge_boost` of the authors' released code, off there by default. g is fitted as without it.
    """

    about = "learned trust times Hedge's weights"

    @cached_property
    def _hedge(self) -> Hedge:
        return Hedge()

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return super().start(evidence, nodes) | self._hedge.start(evidence, nodes)

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        return super().refresh(memory, evidence, first) | self._hedge.refresh(memory, evidence, first)

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        return trust_weights(scores(memory, evidence.phi) + memory["log weight"], options)


class LinUCB(Weighting):
    """LinUCB (Li et al. 2010): arms are the neighbours, contexts φ_ij, and one arm is played at a time.

    Node i distils from the neighbour a of the highest bound φ_iaᵀA⁻¹b + √(φ_iaᵀA⁻¹φ_ia) until the next
    refresh. That one's probes tell the reward, the weighted probe accuracy gained over self,
    r = ρ̃_ia − ρ̃_ii, and

        A ← A + φ_ia φ_iaᵀ,   b ← b + r·φ_ia,   φ_ia as it was when a was chosen, A = I and b = 0 at first.

    What other neighbours would have earned is not learned. At the first refresh nobody has been played:
    bounds are ‖φ_ij‖, and the longest context is the first arm. An arm that does not answer the probe
    teaches nothing. All weight goes to the highest bound among the options; with a temperature T,
    α ∝ exp(bound/T), and the arm counts as played that has the most. Where trust is chosen only once, after
    training, nothing was played.
    """

    about = "a linear bandit over the features: the member with the highest upper bound"
    ridge, exploration = 1.0, 1.0

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        n, _, F = evidence.phi.shape
        eye = torch.eye(F, dtype=evidence.phi.dtype, device=evidence.phi.device)
        nothing = torch.zeros_like(evidence.phi[:, 0])
        played = torch.zeros_like(evidence.mask)
        return {"A": self.ridge * eye.repeat(n, 1, 1), "b": nothing, "played": played, "context": nothing}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        played = memory.get("played")
        if played is None or played.shape != evidence.mask.shape:  # a live node's, of other neighbours
            memory = self.start(evidence, range(len(evidence.mask))) | {k: memory[k] for k in ("A", "b")}
        played = memory["played"] & evidence.open
        phi = memory["context"] * played.any(-1, keepdim=True)
        reward = ((evidence.accuracy - evidence.accuracy[:, :1]) * played).sum(-1, keepdim=True)
        A = memory["A"] + phi[:, :, None] * phi[:, None, :]
        learned = {"A": A, "b": memory["b"] + reward * phi}
        arm = all_on_the_best(self._bounds(learned, evidence), evidence.open)
        return {**learned, "played": arm > 0, "context": (evidence.phi * arm[..., None]).sum(1)}

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        bounds = self._bounds(memory, evidence)
        if self.temperature is None:
            return all_on_the_best(bounds, options)
        return trust_weights(bounds / self.temperature, options)

    def _bounds(self, memory: Memory, evidence: Evidence) -> Float[Tensor, "n D"]:
        solved = torch.linalg.solve(memory["A"], evidence.phi.transpose(1, 2))  # A⁻¹φ, [n, 6, D]
        mean = torch.einsum("nfd,nf->nd", solved, memory["b"])
        width = torch.einsum("nfd,ndf->nd", solved, evidence.phi).clamp(min=0).sqrt()
        return mean + self.exploration * width


class Uniform(Weighting):
    about = "everybody alike"

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        return renormalised(torch.ones_like(evidence.phi[..., 0]), options)


class BestSingle(Weighting):
    """All weight on the highest ρ̃_ij (ties: the node itself, then the earlier neighbour)."""

    about = "the one member that does best on the probes"

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        return all_on_the_best(evidence.accuracy, options)


class FedFomo(Weighting):
    """α_ij ∝ max(0, L_i − L_ij), the validation loss that member j would save (Zhang et al. 2021).

    FedFomo divides by the distance of the parameters, which nobody can see here. The node itself
    saves nothing by itself, so it gets the mean saving of those that save: as if it were one of them.
    Where nobody saves, all weight stays with the node, or is spread evenly if it is no option.
    """

    about = "members in proportion to the validation loss they would save"

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        loss = segment_mean(-evidence.p_true.clamp(min=1e-8).log(), evidence.offsets)
        saved = (loss[:, :1] - loss).clamp(min=0) * evidence.open
        useful = (saved > 0).sum(-1).clamp(min=1)
        saved[:, 0] = saved.sum(-1) / useful
        alone = torch.zeros_like(saved)
        alone[:, 0] = 1.0
        alone = torch.where(options[:, :1], alone, options.to(saved.dtype))
        left = saved * options
        return renormalised(torch.where(left.sum(-1, keepdim=True) > 0, left, alone), options)


def all_on_the_best(values: Float[Tensor, "n D"], options: Members) -> Alpha:
    """All weight on the option of the highest value (ties: the earlier)."""
    best = values.masked_fill(~options, -torch.inf).argmax(-1, keepdim=True)
    return torch.zeros_like(values).scatter_(-1, best, 1.0) * options


WEIGHTINGS: dict[str, type[Weighting]] = {
    "trust": TrustNetwork, "simplex_erm": SimplexERM, "hedge": Hedge, "weighted_majority": WeightedMajority,
    "linucb": LinUCB, "uniform": Uniform, "best_single": BestSingle, "fedfomo": FedFomo,
    "hedge_boost": HedgeBoost,
}  # fmt: skip


def make_weighting(
    name: str,
    seed: int | Seeds,
    prior: str = "none",
    prior_examples: float = 10.0,
    temperature: float | None = None,
) -> Weighting:
    """The weighting of this name; its draws come from the run's seed."""
    return WEIGHTINGS[name](seed, prior, prior_examples, temperature)
