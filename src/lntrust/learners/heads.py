"""The fast path for linear heads, the paper's learner: dropout, then one linear map.

The same numbers as the module under `torch.vmap`. The gradient is written by hand: the loss is
differentiated down to the logits, and the rest is two products with the same inputs, which so may be dropped
piece by piece while they are still in the cache. Weights are [k, C, D], which a CPU multiplies about three
times faster than [k, D, C].
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lntrust.learners.losses import Loss
from lntrust.learners.modules import Dropout

WEIGHT, BIAS = "2.weight", "2.bias"  # the parameters of modules.linear
MASK = "1.mask"


def is_head(module: nn.Module) -> bool:
    """Whether this is modules.linear, with its dropout or without. A subclass may do anything."""
    if type(module) is not nn.Sequential or len(module) != 3:
        return False
    flatten, dropout, last = module
    named = isinstance(dropout, Dropout | nn.Identity)
    plain = isinstance(flatten, nn.Flatten) and named and type(last) is nn.Linear and last.bias is not None
    return plain and all(p.requires_grad for p in module.parameters())


def logits(
    state: dict[str, Tensor], x: Float[Tensor, "k B *s"], mask: Tensor | None
) -> Float[Tensor, "k B C"]:
    """Each head on its own inputs. `x` is overwritten by its masked self: it is a gathered copy."""
    x = x.flatten(2)
    if mask is not None:
        x.mul_(mask)
    return torch.baddbmm(state[BIAS][:, None], x, state[WEIGHT].transpose(1, 2))


def gradients(
    state: dict[str, Tensor],
    x: Float[Tensor, "k B *s"],
    mask: Tensor | None,
    loss: Loss,
    targets: tuple[Tensor | None, ...],
) -> tuple[dict[str, Tensor], Float[Tensor, "k"]]:
    """∇ of the loss and the losses. `x` is overwritten, as in `logits`.

    With z = x·Wᵀ + b and G = ∂loss/∂z: ∂loss/∂W = Gᵀx, ∂loss/∂b = ΣG.
    """
    with torch.no_grad():
        z = logits(state, x, mask)
    z.requires_grad_()
    losses = loss(z, *targets)
    (g,) = torch.autograd.grad(losses.sum(), z)
    return {WEIGHT: torch.bmm(g.transpose(1, 2), x.flatten(2)), BIAS: g.sum(1)}, losses.detach()


def shared_logits(state: dict[str, Tensor], x: Float[Tensor, "U *s"]) -> Float[Tensor, "U k C"]:
    """Every head on the same inputs: one wide product."""
    weight, bias = state[WEIGHT], state[BIAS]
    wide = torch.addmm(bias.flatten(), x.flatten(1), weight.flatten(0, 1).T)
    return wide.view(len(x), *bias.shape)
