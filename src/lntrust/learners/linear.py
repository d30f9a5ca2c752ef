"""The fast path for linear heads, the paper's learner: dropout, then one linear map.

The same numbers as the module under `torch.vmap`. The gradient is written by hand: the loss is
differentiated down to the logits, and the rest is two products with the same inputs, which so may be dropped
piece by piece while they are still in the cache. Weights are [k, C, D], which a CPU multiplies about three
times faster than [k, D, C].
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lntrust.core.losses import Loss, losses_and_slope
from lntrust.learners.modules import Dropout

WEIGHT, BIAS = "2.weight", "2.bias"  # the parameters of modules.linear
MASK = "1.mask"
ROWS = 1000  # inputs multiplied at once on a CPU: a quarter faster than ten thousand


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
    # W·xᵀ, a [k, C, B] seen as [k, B, C]: on a CPU twice as fast as x·Wᵀ.
    return torch.baddbmm(state[BIAS][..., None], state[WEIGHT], x.transpose(1, 2)).transpose(1, 2)


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
    losses, g = losses_and_slope(loss, z, targets)
    return {WEIGHT: torch.bmm(g.transpose(1, 2), x.flatten(2)), BIAS: g.sum(1)}, losses


def shared_logits(
    state: dict[str, Tensor], x: Float[Tensor, "U *s"], out: Float[Tensor, "U k C"] | None = None
) -> Float[Tensor, "U k C"]:
    """Every head on the same inputs: one wide product, on a CPU in slices that stay in its cache."""
    weight, bias = state[WEIGHT].flatten(0, 1).T, state[BIAS]
    rows = x.flatten(1)
    out = rows.new_empty(len(x), *bias.shape) if out is None else out
    # A node's classes lie side by side, and its neighbour's beside them, also inside a wider table.
    wide = out.as_strided((len(x), bias.numel()), (out.stride(0), 1))
    size = ROWS if x.device.type == "cpu" else max(1, len(x))
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        torch.addmm(bias.flatten(), rows[part], weight, out=wide[part])
    return out
