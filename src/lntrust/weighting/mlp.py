"""The paper's weighting: a small network g_ψ over relational features, one per node."""

from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.randomness import Seeds
from lntrust.trust.evidence import Evidence
from lntrust.trust.model import Fit, fresh_model, scores
from lntrust.trust.weights import trust_weights
from lntrust.weighting.base import Memory, Weighting


class TrustNetwork(Weighting):
    about = "learned trust: a network over six relational features, fitted on validation labels"
    first_steps, later_steps, lr = 200, 50, 0.01

    def __init__(self, seed: int | Seeds = 0) -> None:
        super().__init__(seed)
        self._fit = Fit()

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return fresh_model(self.seed, nodes, evidence.phi.dtype, evidence.phi.device)

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        """200 steps after Stage 1, 50 from the last state at each refresh."""
        steps = self.first_steps if first else self.later_steps
        e = evidence
        psi, _ = self._fit(memory, e.phi, e.mask, e.p_true, e.offsets, steps, self.lr)
        return psi

    def weights(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        return trust_weights(scores(memory, evidence.phi), options)
