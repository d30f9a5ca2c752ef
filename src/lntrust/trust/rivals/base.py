"""The protocol that the trust network and its rivals share.

All of them see the same probes, and drive the same gates, distillation and deployment; only α differs.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.core.randomness import Seeds
from lntrust.trust.evidence import Evidence

# What a weighting remembers: tensors with a leading node axis, so that a node's part is a slice.
Memory = dict[str, Tensor]


class Weighting:
    """Subclass and override `weights`; `refresh` too, if it learns."""

    about = ""

    def __init__(self, seed: int | Seeds = 0) -> None:
        self.seed = seed

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        """Before the first refresh. `nodes` are the node numbers behind the evidence's rows."""
        return {}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        """Learn from new evidence."""
        return memory

    def weights(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        """α_ij over the options; rows sum to 1, or are 0 where there are none."""
        raise NotImplementedError

    def votes(
        self, memory: Memory, evidence: Evidence, options: Bool[Tensor, "n D"]
    ) -> Float[Tensor, "n D"] | Float[Tensor, "n D C"]:
        """What multiplies the members' predictions, if it differs by class; else α."""
        return self.weights(memory, evidence, options)
