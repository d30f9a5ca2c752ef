"""What a node can know of its neighbours: probe responses ρ, class distributions ŵ, features φ."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_sum

FEATURES = ("overlap", "probe accuracy", "weighted probe accuracy", "KL", "entropy", "degree")
_SMOOTH = 1e-8


def probe_response(
    probabilities: Float[Tensor, "T D C"], labels: Int[Tensor, "T"], offsets: Int[Tensor, "n+1"]
) -> Float[Tensor, "n D C"]:
    """ρ_ij^c = Σ_{(x,y)∈V_i} 1[y=c]·1[ŷ_j(x)=c] / Σ 1[y=c]: member j's accuracy on class c of V_i.

    A class that is absent from V_i counts 0.
    """
    C = probabilities.shape[-1]
    one_hot = torch.nn.functional.one_hot(labels, C).to(probabilities.dtype)
    right = (probabilities.argmax(-1) == labels[:, None]).to(probabilities.dtype)
    hits = segment_sum(right[:, :, None] * one_hot[:, None, :], offsets)
    count = segment_sum(one_hot, offsets)
    return hits / count.clamp(min=1)[:, None, :]


def class_distribution(probabilities: Float[Tensor, "n D S C"]) -> Float[Tensor, "n D C"]:
    """ŵ_j^c = |{x∈S : argmax p_j(x) = c}| / |S|: how often member j predicts class c."""
    C = probabilities.shape[-1]
    return torch.nn.functional.one_hot(probabilities.argmax(-1), C).to(probabilities.dtype).mean(-2)


def weighted_accuracy(rho: Float[Tensor, "n D C"], w: Float[Tensor, "n C"]) -> Float[Tensor, "n D"]:
    """ρ̃_ij = Σ_c w_i^c ρ_ij^c: member j's accuracy on the classes that matter to node i."""
    return (rho * w[:, None, :]).sum(-1)


def relational_features(
    rho: Float[Tensor, "n D C"],
    w_hat: Float[Tensor, "n D C"] | None,
    w: Float[Tensor, "n C"],
    degree: Float[Tensor, "n D"],
    mask: Bool[Tensor, "n D"],
) -> Float[Tensor, "n D 6"]:
    """φ_ij = [Σ_c min(w_i^c, ŵ_j^c), ρ̄_ij, ρ̃_ij, KL(w_i‖ŵ_j), H(ŵ_j)/ln C, d_j/n].

    `degree` is d_j/n. `w_hat` none: no unlabelled pool, and the features made of it are 0. Padding is 0.
    """
    C = rho.shape[-1]
    mean, weighted = rho.mean(-1), weighted_accuracy(rho, w)
    if w_hat is None:
        overlap = divergence = entropy = torch.zeros_like(mean)
    else:
        own, theirs = w[:, None, :], (w_hat + _SMOOTH) / (1 + C * _SMOOTH)
        overlap = torch.minimum(own, w_hat).sum(-1)
        divergence = torch.where(own > 0, own * ((own + _SMOOTH).log() - theirs.log()), 0.0).sum(-1)
        entropy = -(theirs * theirs.log()).sum(-1) / torch.log(torch.tensor(float(C), dtype=rho.dtype))
    phi = torch.stack([overlap, mean, weighted, divergence, entropy, degree], dim=-1)
    return phi * mask[..., None]
