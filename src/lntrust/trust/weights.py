"""Trust weights α: a softmax over scores, what is left of them when members fall away, and who makes them."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.core.randomness import Seeds
from lntrust.trust.evidence import Evidence

# What a weighting remembers: tensors with a leading node axis, so that a node's part is a slice.
Memory = dict[str, Tensor]
Members = Bool[Tensor, "n D"]  # some of each closed neighbourhood
Alpha = Float[Tensor, "n D"]
Votes = Alpha | Float[Tensor, "n D C"]  # one weight per member, or one for each class


def trust_weights(scores: Float[Tensor, "n D"], options: Members) -> Alpha:
    """α_ij = exp g(φ_ij) / Σ_{k∈A_i} exp g(φ_ik), over the options A_i; 0 elsewhere.

    A_i = N(i) for distillation and N̄(i) for deployment. A row without options is all 0.
    """
    masked = scores.masked_fill(~options, -torch.inf)
    # A row of −∞ only has no maximum to subtract; 0 keeps it free of NaN.
    top = masked.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    expo = (masked - top.detach()).exp()
    return expo / expo.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


def renormalised(alpha: Float[Tensor, "n D *C"], present: Members) -> Float[Tensor, "n D *C"]:
    """The weights of those who answered, scaled to sum to 1, for every class if they differ by class.

    0 where nobody of weight did.
    """
    left = alpha * (present if alpha.ndim == 2 else present[..., None])
    total = left.sum(1, keepdim=True)
    return torch.where(total > 0, left / total.clamp(min=torch.finfo(alpha.dtype).tiny), 0.0)


def top_k(alpha: Alpha, k: int) -> Members:
    """The k members of greatest weight (ties: the earlier), among those with any."""
    best = alpha.argsort(dim=-1, descending=True, stable=True)[:, :k]
    return torch.zeros_like(alpha, dtype=torch.bool).scatter_(-1, best, True) & (alpha > 0)


class Weighting:
    """What makes α: learned trust (`fit.TrustNetwork`) or a rival of it. All see the same evidence.

    Subclass and override `weights`; `refresh` too, if it learns. A prior is for who learns trust, and a
    temperature for who else picks one member.
    """

    about = ""

    def __init__(
        self,
        seed: int | Seeds = 0,
        prior: str = "none",
        prior_examples: float = 10.0,
        temperature: float | None = None,
    ) -> None:
        self.seed, self.prior, self.prior_examples = seed, prior, prior_examples
        self.temperature = temperature

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        """Before the first refresh. `nodes` are the node numbers behind the evidence's rows."""
        return {}

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        """Learn from new evidence."""
        return memory

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        """α_ij over the options; rows sum to 1, or are 0 where there are none."""
        raise NotImplementedError

    def votes(self, memory: Memory, evidence: Evidence, options: Members) -> Votes:
        """What multiplies the members' predictions, if it differs by class; else α."""
        return self.weights(memory, evidence, options)
