"""Sums over the rows of one node, and their gradients."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.segments import segment_mean, segment_sum, spread, sum_by


def offsets_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])


@settings(max_examples=40)
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


@settings(max_examples=15)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_gradients(counts: list[int], width: int) -> None:
    offsets = offsets_of(counts)
    values = torch.randn(sum(counts), width, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(len(counts), width, dtype=torch.float64, requires_grad=True)
    if len(values):
        assert torch.autograd.gradcheck(lambda v: segment_sum(v, offsets), (values,))
        assert torch.autograd.gradcheck(lambda v: segment_mean(v.square(), offsets), (values,))
    assert torch.autograd.gradcheck(lambda r: spread(r, offsets).square(), (rows,))


OWNERS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), max_size=12))
)


@settings(max_examples=60)
@given(OWNERS, st.lists(st.integers(1, 3), max_size=2))
def test_sum_by_equals_index_add_with_its_gradient(owned: tuple[int, list[int]], shape: list[int]) -> None:
    """Rows may come in any order here."""
    n, owner = owned[0], torch.tensor(owned[1], dtype=torch.int64)
    g = torch.Generator().manual_seed(len(owner))
    values = torch.randn(len(owner), *shape, generator=g, dtype=torch.float64, requires_grad=True)
    got = sum_by(owner, values, n)
    expected = torch.zeros(n, *shape, dtype=torch.float64).index_add_(0, owner, values.detach())
    torch.testing.assert_close(got.detach(), expected)
    pull = torch.randn(n, *shape, generator=g, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((got * pull).sum(), values)
    assert torch.equal(gradient, pull[owner])


def test_a_row_between_others_changes_no_bit() -> None:
    """A node's sum depends on its own rows in their order, not on whose rows lie between them."""
    g = torch.Generator().manual_seed(1)
    owner = torch.randint(0, 3, (200,), generator=g)
    values = torch.randn(200, 2, generator=g) * 10.0 ** torch.randint(-4, 5, (200, 1), generator=g)
    together = sum_by(owner, values, 5)
    for i in range(3):
        own = values[owner == i]
        assert torch.equal(together[i : i + 1], segment_sum(own, torch.tensor([0, len(own)])))
    assert not together[3:].any()


def test_rows_are_added_in_their_order() -> None:
    """1e8 + 1 − 1e8 is 0 in float32, and 1e8 − 1e8 + 1 is 1."""
    owner = torch.tensor([1, 0, 1, 0, 1, 0])
    values = torch.tensor([1e8, 1e8, 1.0, -1e8, -1e8, 1.0])
    assert sum_by(owner, values, 2).tolist() == [1.0, 0.0]
