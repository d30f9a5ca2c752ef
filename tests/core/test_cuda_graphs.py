"""Replayed calls give what the calls would give. Records need a GPU; on a CPU a call is a call."""

import pytest
import torch
from torch import Tensor

from lntrust.core.cuda_graphs import CudaGraph

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


class Counter:
    """Changes what it holds in place, as a stack of heads does."""

    def __init__(self, device: str) -> None:
        self.total = torch.zeros(3, device=device)
        self.step = CudaGraph(self._step)

    def _step(self, x: Tensor, weight: Tensor | None, scale: float) -> Tensor:
        self.total.add_(x if weight is None else x * weight, alpha=scale)
        return self.total * 2


@pytest.mark.parametrize("device", DEVICES)
def test_every_call_counts_once(device: str) -> None:
    replayed, plain = Counter(device), Counter(device)
    outputs = []
    for k in range(6):
        x = torch.full((3,), float(k), device=device)
        outputs.append((replayed.step(x, None, scale=0.5), plain._step(x, None, 0.5)))
    for got, expected in outputs:  # also those that later replays might have overwritten
        assert torch.equal(got, expected)
    assert torch.equal(replayed.total, plain.total)


@pytest.mark.parametrize("device", DEVICES)
def test_settings_shapes_and_absent_inputs_have_records_of_their_own(device: str) -> None:
    replayed, plain = Counter(device), Counter(device)
    x, weight = torch.ones(3, device=device), torch.rand(3, device=device)
    for _ in range(4):
        for scale in (0.5, 2.0):
            for given in (None, weight):
                assert torch.equal(replayed.step(x, given, scale=scale), plain._step(x, given, scale))
    one = torch.ones(1, device=device)
    for _ in range(3):
        assert torch.equal(replayed.step(one, None, scale=1.0), plain._step(one, None, 1.0))
    for k in range(40):  # ever new settings are served all the same
        for _ in range(2):
            assert torch.equal(replayed.step(x, None, scale=k / 7), plain._step(x, None, k / 7))
