"""Sums over the rows of one node, and their gradients."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.segments import segment_mean, segment_sum, spread


def offsets_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.lists(st.integers(1, 3), max_size=2))
def test_equal_a_loop(counts: list[int], shape: list[int]) -> None:
    offsets = offsets_of(counts)
    g = torch.Generator().manual_seed(sum(counts))
    values = torch.randn(sum(counts), *shape, generator=g, dtype=torch.float64)
    row = torch.randn(len(counts), *shape, generator=g, dtype=torch.float64)
    total, mean, repeated = segment_sum(values, offsets), segment_mean(values, offsets), spread(row, offsets)
    owner = [i for i, count in enumerate(counts) for _ in range(count)]
    assert repeated.tolist() == [row[i].tolist() for i in owner]
    for i, count in enumerate(counts):
        mine = [values[t] for t, o in enumerate(owner) if o == i]
        expected = sum(mine, torch.zeros(shape, dtype=torch.float64))
        torch.testing.assert_close(total[i], expected)
        torch.testing.assert_close(mean[i], expected / count if count else torch.zeros_like(expected))


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_gradients(counts: list[int], width: int) -> None:
    offsets = offsets_of(counts)
    values = torch.randn(sum(counts), width, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(len(counts), width, dtype=torch.float64, requires_grad=True)
    if len(values):
        assert torch.autograd.gradcheck(lambda v: segment_sum(v, offsets), (values,))
        assert torch.autograd.gradcheck(lambda v: segment_mean(v.square(), offsets), (values,))
    assert torch.autograd.gradcheck(lambda r: spread(r, offsets).square(), (rows,))


def test_the_same_bits_whatever_else_is_there() -> None:
    values = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    both = segment_sum(values, torch.tensor([0, 30, 50]))
    assert torch.equal(both[1:], segment_sum(values[30:], torch.tensor([0, 20])))
