"""The deployment ensemble on the node's own validation set."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_mean, spread

CLIP = 1e-8


def mixed(
    probabilities: Float[Tensor, "T D C"],
    votes: Float[Tensor, "n D"] | Float[Tensor, "n D C"],
    offsets: Int[Tensor, "n+1"],
) -> Float[Tensor, "T C"]:
    """q_i(x) ∝ Σ_{j∈N̄(i)} α_ij p_j(x), for every node's own validation examples; rows sum to 1 or are 0."""
    spread_votes = spread(votes if votes.ndim == 3 else votes[..., None], offsets, len(probabilities))
    q = (probabilities * spread_votes).sum(1)
    return q / q.sum(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)


def true_class(probabilities: Float[Tensor, "T D C"], labels: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
    """p_j^y(x): what each member gives to the true class."""
    index = labels[:, None, None].expand(-1, probabilities.shape[1], 1)
    return probabilities.gather(-1, index).squeeze(-1)


def validation_loss(
    p_true: Float[Tensor, "T D"],
    alpha: Float[Tensor, "n D"],
    offsets: Int[Tensor, "n+1"],
    clip: float = CLIP,
) -> Float[Tensor, "n"]:
    """R̂_i = mean over V_i of −log max(Σ_j α_ij p_j^y(x), clip)."""
    q = (p_true * spread(alpha, offsets, len(p_true))).sum(-1)
    return segment_mean(-q.clamp(min=clip).log(), offsets)


def validation_accuracy(
    probabilities: Float[Tensor, "T C"], labels: Int[Tensor, "T"], offsets: Int[Tensor, "n+1"]
) -> Float[Tensor, "n"]:
    """Share of the validation examples that are classified right."""
    right: Bool[Tensor, "T"] = probabilities.argmax(-1) == labels
    return segment_mean(right.to(probabilities.dtype), offsets)
