"""What one refresh has shown: everything that a weighting may look at."""

from dataclasses import dataclass, fields

from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.trust.blend import true_class
from lntrust.trust.features import weighted_accuracy


@dataclass(frozen=True)
class Evidence:
    """Replies on every node's validation set V_i, and what follows from them.

    `mask` marks the members that answered soundly; column 0 is the node itself.
    """

    mask: Bool[Tensor, "n D"]
    probabilities: Float[Tensor, "T D C"]  # p_j(x) for x ∈ V_i, sorted by i
    labels: Int[Tensor, "T"]
    offsets: Int[Tensor, "n+1"]
    rho: Float[Tensor, "n D C"]  # ρ_ij^c
    phi: Float[Tensor, "n D 6"]  # φ_ij
    w: Float[Tensor, "n C"]  # w_i

    @property
    def p_true(self) -> Float[Tensor, "T D"]:
        """p_j^y(x)."""
        return true_class(self.probabilities, self.labels)

    @property
    def accuracy(self) -> Float[Tensor, "n D"]:
        """ρ̃_ij."""
        return weighted_accuracy(self.rho, self.w)

    @property
    def open(self) -> Bool[Tensor, "n D"]:
        """The neighbours that answered, without the node itself."""
        out = self.mask.clone()
        out[:, 0] = False
        return out

    def at(self, i: int) -> "Evidence":
        """Node i's alone."""
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        by_row = ("probabilities", "labels")
        parts = {
            f.name: getattr(self, f.name)[rows if f.name in by_row else slice(i, i + 1)]
            for f in fields(self)
            if f.name != "offsets"
        }
        return Evidence(**parts, offsets=self.offsets[i : i + 2] - self.offsets[i])
