"""Gates: how much to learn from neighbours, and whether to answer with them."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.segments import segment_sum

EPSILON = 1e-8
DeployGate = Literal["members", "ensemble", "loss", "off", "evidence"]


def ensemble_accuracy(alpha: Float[Tensor, "n D"], accuracy: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
    """a = Σ_j α_ij Σ_c w_i^c ρ_ij^c: the members' mean accuracy, not the ensemble's own.

    With weights over N(i) this is a_i^ens, with weights over N̄(i) a_i^deploy.
    """
    return (alpha * accuracy).sum(-1)


def training_gate(
    strength: float, a_ens: Float[Tensor, "n"], a_self: Float[Tensor, "n"], epsilon: float = EPSILON
) -> Float[Tensor, "n"]:
    """λ_i^eff = λ · min(1, a_i^ens / (a_i^self + ε))."""
    return strength * (a_ens / (a_self + epsilon)).clamp(max=1.0)


def better(
    ours: Bool[Tensor, "T"],
    theirs: Bool[Tensor, "T"],
    offsets: Int[Tensor, "n+1"],
    prior_wins: Float[Tensor, "n"] | float = 0.0,
) -> Float[Tensor, "n"]:
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


def evidence_gate(strength: float, chance: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """λ_i^eff = λ · min(1, 2π_i): all of it where those who teach are likely better than oneself, less the
    surer it is that they are not."""
    return strength * (2.0 * chance).clamp(max=1.0)


def deployment_gate(
    kind: DeployGate,
    *,
    a_deploy: Float[Tensor, "n"],
    a_self: Float[Tensor, "n"],
    ensemble: tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
    own: tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
    chance: Float[Tensor, "n"] | None = None,
    evidence: float = 0.5,
) -> Bool[Tensor, "n"]:
    """Whether node i answers with its ensemble; if not, with its own model.

    `ensemble` and `own` are (accuracy, loss) on the validation set. members: a^deploy ≥ a^self, as
    published; ensemble: its own accuracy is no lower; loss: its loss is no higher; off: always; evidence:
    the `chance` that it is the better one, which only this gate needs, reaches `evidence`.
    """
    if kind == "members":
        return a_deploy >= a_self
    if kind == "ensemble":
        return ensemble[0] >= own[0]
    if kind == "loss":
        return ensemble[1] <= own[1]
    if kind == "evidence":
        assert chance is not None
        return chance >= evidence
    return torch.ones_like(a_self, dtype=torch.bool)
