"""The paper's weighting: a small network g_ψ over relational features, one per node."""

from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.core.randomness import Seeds
from lntrust.trust.evidence import Evidence
from lntrust.trust.fit import Fit, fresh_model, scores
from lntrust.trust.rivals.base import Memory, Weighting
from lntrust.trust.weights import renormalised, trust_weights

PRIORS = ("none", "self", "accuracy", "uniform")


class TrustNetwork(Weighting):
    """With a prior, few validation examples move α little: it is drawn to the node itself, to its members in
    proportion to ρ̃_ij, or to all alike, as if so many examples more had spoken for that."""

    about = "learned trust: a network over six relational features, fitted on validation labels"
    first_steps, later_steps, lr = 200, 50, 0.01

    def __init__(self, seed: int | Seeds = 0, prior: str = "none", prior_examples: float = 10.0) -> None:
        super().__init__(seed)
        self._fit = Fit()
        self._prior, self._examples = prior, prior_examples

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return fresh_model(self.seed, nodes, evidence.phi.dtype, evidence.phi.device)

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        """200 steps after Stage 1, 50 from the last state at each refresh."""
        steps = self.first_steps if first else self.later_steps
        e = evidence
        psi, _ = self._fit(memory, e.phi, e.mask, e.p_true, e.offsets, steps, self.lr, self._drawn_to(e))
        return psi

    def _drawn_to(self, evidence: Evidence) -> Float[Tensor, "n D"] | None:
        """π_ij, its rows summing to κ/|V_i|."""
        if self._prior == "none":
            return None
        pull = evidence.mask.to(evidence.phi.dtype)
        if self._prior == "self":
            pull[:, 1:] = 0.0
        elif self._prior == "accuracy":
            pull = evidence.accuracy + 1e-3  # nobody is excluded for having failed on a few examples
        count = evidence.offsets.diff().clamp(min=1).to(pull.dtype)
        return renormalised(pull, evidence.mask) * (self._examples / count)[:, None]

    def weights(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        return trust_weights(scores(memory, evidence.phi), options)
