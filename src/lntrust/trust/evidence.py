"""Evidence: what one refresh has shown, all that a weighting may look at."""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

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
        """p_j^y(x): what each member gives to the true class."""
        index = self.labels[:, None, None].expand(-1, self.probabilities.shape[1], 1)
        return self.probabilities.gather(-1, index).squeeze(-1)

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

    def of_true_classes(self) -> "Evidence":
        """As much of it as a run keeps: of all probabilities only p_j^y(x)."""
        return replace(self, probabilities=self.p_true[..., None], labels=torch.zeros_like(self.labels))

    def at(self, nodes: slice) -> "Evidence":
        """Some nodes' alone."""
        first, last, _ = nodes.indices(len(self.mask))
        offsets = self.offsets[first : last + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        parts = {
            f.name: getattr(self, f.name)[rows if f.name in ("probabilities", "labels") else nodes]
            for f in fields(self)
            if f.name != "offsets"
        }
        return Evidence(**parts, offsets=offsets - offsets[0])
