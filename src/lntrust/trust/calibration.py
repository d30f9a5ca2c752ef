"""Temperatures: how sure a model may be of itself (Guo et al. 2017), fitted to a handful of labels."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lntrust.core.losses import TINY
from lntrust.core.segments import segment_sum

_LOWEST, _HIGHEST, _STEPS = 0.25, 4.0, 33


def temperatures(
    p: Float[Tensor, "T C"], labels: Int[Tensor, "T"], offsets: Int[Tensor, "n+1"]
) -> Float[Tensor, "n"]:
    """The T_i of lowest Σ −log p^y over each node's examples, plus (log T)², which draws it to 1."""
    grid = torch.linspace(0.0, 1.0, _STEPS, dtype=p.dtype, device=p.device)
    grid = _LOWEST * (_HIGHEST / _LOWEST) ** grid
    log_p = p.clamp(min=TINY).log()
    losses = []
    for T in grid:
        scaled = (log_p / T).log_softmax(-1)
        losses.append(segment_sum(-scaled.gather(-1, labels[:, None])[:, 0], offsets) + T.log().square())
    return grid[torch.stack(losses).argmin(0)]
