"""Gates: how much to learn from neighbours, and whether to answer with them."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

EPSILON = 1e-8
DeployGate = Literal["members", "ensemble", "loss", "off"]


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


def deployment_gate(
    kind: DeployGate,
    *,
    a_deploy: Float[Tensor, "n"],
    a_self: Float[Tensor, "n"],
    ensemble: tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
    own: tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
) -> Bool[Tensor, "n"]:
    """Whether node i answers with its ensemble; if not, with its own model.

    `ensemble` and `own` are (accuracy, loss) on the validation set. members: a^deploy ≥ a^self, as
    published; ensemble: its own accuracy is no lower; loss: its loss is no higher; off: always.
    """
    if kind == "members":
        return a_deploy >= a_self
    if kind == "ensemble":
        return ensemble[0] >= own[0]
    if kind == "loss":
        return ensemble[1] <= own[1]
    return torch.ones_like(a_self, dtype=torch.bool)
