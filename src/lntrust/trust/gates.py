"""Gates: how much to learn from neighbours, and whether to answer with them."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_mean, segment_sum
from lntrust.trust import blend
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import Alpha, Votes

DeployGate = Literal["members", "ensemble", "loss", "off", "evidence"]


def ensemble_accuracy(alpha: Float[Tensor, "n D"], accuracy: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
    """a = Σ_j α_ij Σ_c w_i^c ρ_ij^c: the members' mean accuracy, not the ensemble's own.

    With weights over N(i) this is a_i^ens, with weights over N̄(i) a_i^deploy.
    """
    return (alpha * accuracy).sum(-1)


def training_gate(
    strength: float, a_ens: Float[Tensor, "n"], a_self: Float[Tensor, "n"], epsilon: float = 1e-8
) -> Float[Tensor, "n"]:
    """λ_i^eff = λ · min(1, a_i^ens / (a_i^self + ε))."""
    return strength * (a_ens / (a_self + epsilon)).clamp(max=1.0)


def better(
    ours: Bool[Tensor, "T"], theirs: Bool[Tensor, "T"], offsets: Int[Tensor, "n+1"],
    prior_wins: Float[Tensor, "n"] | float = 0.0,
) -> Float[Tensor, "n"]:  # fmt: skip
    """The probability that the first of two is right more often, by who was right on which example.

    Examples that both get right, or both wrong, say nothing.
    """
    won = segment_sum((ours & ~theirs).double(), offsets)
    lost = segment_sum((theirs & ~ours).double(), offsets)
    return sign_test(won + prior_wins, lost)


def sign_test(won: Float[Tensor, "n"], lost: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """P(θ > ½) where θ, the share of wins in truth, is Beta(1 + won, 1 + lost); `lost` are whole numbers.

        1 − 2^−a Σ_{k ≤ lost} Γ(a + k) / (Γ(a) k!) 2^−k,    a = 1 + won

    Few examples decide little: without any it is ½, after one win ¾.
    """
    a, k = 1.0 + won[:, None], torch.arange(int(lost.max()) + 1, device=lost.device, dtype=lost.dtype)
    log = torch.lgamma(a + k) - torch.lgamma(a) - torch.lgamma(k + 1.0) - (a + k) * math.log(2.0)
    worse = torch.where(k <= lost[:, None], log.exp(), 0.0).sum(-1)
    # Rounded: as many wins as losses are ½, neither more nor less, however the sum was taken.
    return (1.0 - worse).round(decimals=11).clamp(0.0, 1.0)


def effective(weights: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
    """(Σ α)² / Σ α²: how many members these weights are spread over, whatever their sum; 0 if it is 0."""
    whole = weights.sum(-1, keepdim=True)
    square = (weights / whole.clamp(min=1e-30)).square().sum(-1)
    return torch.where(whole[..., 0] > 0, 1.0 / square.clamp(min=1e-30), 0.0)


def deployment_gate(
    kind: DeployGate, evidence: Evidence, closed: Alpha, votes: Votes, level: float = 0.5,
    prior_wins: float = 0.0,
) -> tuple[Bool[Tensor, "n"], Float[Tensor, "n 2"]]:  # fmt: skip
    """Whether node i answers with its ensemble, and validation accuracy: the node's own and its ensemble's.

    members: a^deploy ≥ a^self, as published; ensemble: its own accuracy is no lower; loss: its loss is no
    higher; off: always; evidence: the chance that it is the better one reaches `level`, with `prior_wins`
    examples won in advance for each effective neighbour. Without validation examples a node answers alone.
    """
    labels, offsets = evidence.labels, evidence.offsets
    q, own = blend.mixed(evidence.probabilities, votes, offsets), evidence.probabilities[:, 0]
    by_self, by_ensemble = (blend.validation_accuracy(p, labels, offsets) for p in (own, q))
    if kind == "members":
        accuracy = evidence.accuracy
        together = ensemble_accuracy(closed, accuracy) >= accuracy[:, 0]
    elif kind == "ensemble":
        together = by_ensemble >= by_self
    elif kind == "loss":
        of_truth = (p.gather(-1, labels[:, None])[:, 0].clamp(min=blend.CLIP) for p in (q, own))
        loss, own_loss = (segment_mean(-p.log(), offsets) for p in of_truth)
        together = loss <= own_loss
    elif kind == "evidence":
        ours, theirs = (p.argmax(-1) == labels for p in (q, own))
        together = better(ours, theirs, offsets, prior_wins * effective(closed[:, 1:])) >= level
    else:
        together = torch.ones_like(by_self, dtype=torch.bool)
    return together & (offsets.diff() > 0), torch.stack([by_self, by_ensemble], 1)
