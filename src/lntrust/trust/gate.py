"""Gates: how much to learn from neighbours, and whether to answer with them."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.segments import segment_sum

EPSILON = 1e-8
IMAGINED = 0.5  # of a Brier score, which lies between 0 and 2
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


def brier(p: Float[Tensor, "T C"], labels: Int[Tensor, "T"]) -> Float[Tensor, "T"]:
    """Σ_c (p^c − 1[y=c])²: a proper score, and bounded, so that no single example outweighs all others."""
    return (p - torch.nn.functional.one_hot(labels, p.shape[-1])).square().sum(-1)


def better(
    ours: Float[Tensor, "T"], theirs: Float[Tensor, "T"], offsets: Int[Tensor, "n+1"]
) -> Float[Tensor, "n"]:
    """The probability Φ(d̄/σ̄) that the first of two losses is lower in truth, by paired differences d.

    Two examples more are imagined, one won and one lost by IMAGINED: few examples decide little, a node
    without any is undecided, at ½.
    """
    saved = theirs - ours
    count = (offsets.diff() + 2).to(saved.dtype)
    mean = segment_sum(saved, offsets) / count
    square = (segment_sum(saved.square(), offsets) + 2 * IMAGINED**2) / count
    error = ((square - mean.square()) / count).sqrt()
    chance: Tensor = torch.special.ndtr(mean / error)
    return chance


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
    chance: Float[Tensor, "n"],
    evidence: float = 0.5,
) -> Bool[Tensor, "n"]:
    """Whether node i answers with its ensemble; if not, with its own model.

    `ensemble` and `own` are (accuracy, loss) on the validation set. members: a^deploy ≥ a^self, as
    published; ensemble: its own accuracy is no lower; loss: its loss is no higher; off: always; evidence:
    the `chance` that it is the better one reaches `evidence`.
    """
    if kind == "members":
        return a_deploy >= a_self
    if kind == "ensemble":
        return ensemble[0] >= own[0]
    if kind == "loss":
        return ensemble[1] <= own[1]
    if kind == "evidence":
        return chance >= evidence
    return torch.ones_like(a_self, dtype=torch.bool)
