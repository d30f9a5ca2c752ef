"""Many small launches as one: CUDA graphs. On a CPU a call is just a call.

A step of 150 linear heads keeps a GPU busy for less time than Python needs to ask for its thirty kernels. So
the first call of a kind runs as it is, the second records what the GPU was asked to do, and from then on the
record is replayed.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

_MOST = 16  # records of one function; a caller with ever new shapes or settings is served as it is
_POOL: list[Any] = []  # one pool of memory for all records, since only one runs at a time; and who keeps it


class CudaGraph:
    """A function of tensors and settings, recorded for each combination of shapes and settings.

    It may change tensors that it holds in place, never replace them; it must not look at a value. What it
    returns is one tensor.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function
        self._seen: set[Hashable] = set()
        self._records: dict[Hashable, _Record] = {}

    def __call__(self, *inputs: Tensor | None, **settings: Hashable) -> Tensor:
        if not any(t is not None and t.is_cuda for t in inputs):
            return self._function(*inputs, **settings)
        shapes = tuple(None if t is None else (t.shape, t.dtype) for t in inputs)
        key = (shapes, tuple(settings.items()))
        if key in self._records:
            return self._records[key](inputs)
        if key not in self._seen or len(self._records) >= _MOST:
            if len(self._seen) > 4 * _MOST:  # a new loss at every call, say: do not hold on to all of them
                self._seen.clear()
            self._seen.add(key)
            return self._function(*inputs, **settings)
        record = _Record(lambda *own: self._function(*own, **settings), inputs)
        self._records[key] = record
        return record(inputs)


class _Record:
    """One CUDA graph, its inputs and its output."""

    def __init__(self, function: Callable[..., Tensor], inputs: tuple[Tensor | None, ...]) -> None:
        self._inputs = [None if t is None else t.clone() for t in inputs]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=_pool()):
            self._output = function(*self._inputs)

    def __call__(self, inputs: tuple[Tensor | None, ...]) -> Tensor:
        for own, given in zip(self._inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        self._graph.replay()
        return self._output.clone()  # the next record to run may use its memory


def _pool() -> Any:
    """The pool that all records share. A record of nothing keeps it when all others are gone."""
    if not _POOL:
        handle, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(keeper, pool=handle):
            torch.zeros(1, device="cuda")
        _POOL.extend([handle, keeper])
    return _POOL[0]
