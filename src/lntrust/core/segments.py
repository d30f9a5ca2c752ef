"""Sums over rows that belong to one node, in a fixed order, forward and backward."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_Step = Callable[[Tensor, Tensor, int | None], Tensor]  # of values, offsets and T, where it is known


def segment_sum(values: Float[Tensor, "T *s"], offsets: Int[Tensor, "n+1"]) -> Float[Tensor, "n *s"]:
    """Row i is the sum of values[offsets[i]:offsets[i+1]]. Deterministic; the gradient is `spread`."""
    out: Tensor = _Segments.apply(_sum, _repeat, values, offsets, len(values))  # type: ignore[no-untyped-call]
    return out


def spread(
    values: Float[Tensor, "n *s"], offsets: Int[Tensor, "n+1"], total: int | None = None
) -> Float[Tensor, "T *s"]:
    """Each node's row, once for each of its T_i rows. The gradient is `segment_sum`.

    `total` is T, for callers who know it: else a GPU has to be waited for.
    """
    out: Tensor = _Segments.apply(_repeat, _sum, values, offsets, total)  # type: ignore[no-untyped-call]
    return out


def segment_mean(values: Float[Tensor, "T *s"], offsets: Int[Tensor, "n+1"]) -> Float[Tensor, "n *s"]:
    """Mean over each node's rows; 0 where it has none."""
    count = (offsets[1:] - offsets[:-1]).clamp(min=1).to(values.dtype)
    return segment_sum(values, offsets) / count.view(-1, *[1] * (values.ndim - 1))


def sum_by(owner: Int[Tensor, "q"], values: Float[Tensor, "q *s"], n: int) -> Float[Tensor, "n *s"]:
    """Row i is the sum of the rows that belong to i, in their order: `index_add` that is always the same."""
    order = owner.argsort(stable=True)
    offsets = torch.zeros(n + 1, dtype=torch.int64, device=owner.device)
    offsets[1:] = torch.bincount(owner, minlength=n).cumsum(0)
    return segment_sum(values[order], offsets)


def _sum(values: Tensor, offsets: Tensor, _: int | None) -> Tensor:
    if not values.is_cuda:  # one row after another, twice as fast; a GPU would leave their order to chance
        node = torch.arange(len(offsets) - 1)
        owner = torch.repeat_interleave(node, offsets.diff(), output_size=len(values))
        return values.new_zeros(len(node), *values.shape[1:]).index_add_(0, owner, values)
    return torch.segment_reduce(values.contiguous(), "sum", offsets=offsets, axis=0, unsafe=True, initial=0)


def _repeat(values: Tensor, offsets: Tensor, total: int | None) -> Tensor:
    return torch.repeat_interleave(values, offsets[1:] - offsets[:-1], dim=0, output_size=total)


class _Segments(torch.autograd.Function):
    """One of the two, whose gradient is the other."""

    @staticmethod
    def forward(
        ctx: Any, there: _Step, back: _Step, values: Tensor, offsets: Tensor, total: int | None
    ) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.back, ctx.total = back, total
        return there(values, offsets, total)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, ctx.back(g, *ctx.saved_tensors, ctx.total), None, None
