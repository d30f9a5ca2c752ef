"""Lists are cut where they should be."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.world.partition.places import keep_at_most
from lntrust.world.partition.splits import cut, level_counts, split_counts
from lntrust.world.ragged import Ragged


@settings(max_examples=300)
@given(size=st.integers(3, 300), test=st.floats(0.001, 0.998), val=st.floats(0.001, 0.998))
def test_split_counts(size: int, test: float, val: float) -> None:
    if test + val < 1:
        t, v = split_counts(np.array([size]), test, val)
        assert min(t[0], v[0], size - t[0] - v[0]) >= 1
        if size > 100 and 0.02 < test < 0.4 and 0.02 < val < 0.4:
            assert (t[0], v[0]) == (round(test * size), round(val * size))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 200))
def test_level_counts(available: list[int], total: int) -> None:
    have = np.array(available)
    counts = level_counts(have, total)
    assert counts.sum() == min(total, have.sum())
    assert (counts <= have).all()
    if (counts < have).any():  # a class that could give more has no fewer than any other, but one
        assert counts[counts < have].min() >= counts.max() - 1


def test_cut_and_keep() -> None:
    lists = Ragged.of([np.arange(5), np.arange(5, 7), np.arange(0)])
    first, second, rest = cut(lists, np.array([2, 1, 3]), np.array([1, 5, 0]))
    assert [a.tolist() for a in first] == [[0, 1], [5], []]
    assert [a.tolist() for a in second] == [[2], [6], []]
    assert [a.tolist() for a in rest] == [[3, 4], [], []]
    side = np.array([1] * 2 + [2] * 2 + [3] * 96)
    kept = keep_at_most(side, np.zeros(100, int), 1, 10, np.random.default_rng(0))
    assert [len(a.values) for a in (kept.test, kept.validation, kept.train)] == [1, 1, 8]
