"""Sizes and class counts are met exactly, whatever is drawn."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lntrust.study.settings import PartitionSettings
from lntrust.world.partition.sizes import allocate, cap_counts, class_weights, fit_counts, largest_remainder


@settings(max_examples=150)
@given(
    degrees=hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 12)),
    minimum=st.integers(3, 50),
    more=st.integers(0, 5000),
    concentration=st.sampled_from([1e-300, 1e-12, 1e-4, 0.05, 1.0, 50.0]),
    kind=st.sampled_from(["dirichlet", "equal"]),
    seed=st.integers(0, 1000),
)
def test_allocations_meet_total_and_minimum(
    degrees: np.ndarray, minimum: int, more: int, concentration: float, kind: str, seed: int
) -> None:
    total = len(degrees) * minimum + more
    wanted = PartitionSettings(labelled=total, minimum=minimum, concentration=concentration, sizes=kind)
    sizes = allocate(wanted, degrees, np.random.default_rng(seed))
    assert sizes.sum() == total
    assert sizes.min() >= minimum
    if kind == "equal":
        assert sizes.max() - sizes.min() <= 1


def test_hubs_get_more() -> None:
    degrees = np.array([1] * 40 + [10] * 10)
    drawn = [allocate(PartitionSettings(), degrees, np.random.default_rng(s)) for s in range(50)]
    sizes = np.mean(drawn, axis=0)
    assert sizes[40:].mean() > 10 * sizes[:40].mean()


def test_trimming_is_in_proportion_to_the_excess() -> None:
    """What a node has above the minimum is one multiple of what it drew above it."""
    degrees = np.arange(1, 21)
    free = PartitionSettings(labelled=100_000, minimum=3)
    bound = PartitionSettings(labelled=100_000, minimum=2_000)
    raw = allocate(free, degrees, np.random.default_rng(3)).astype(float)
    trimmed = allocate(bound, degrees, np.random.default_rng(3))
    high = raw > 2_500
    ratio = (trimmed[high] - 2_000) / (raw[high] - 2_000)
    assert high.sum() > 3
    assert np.ptp(ratio) < 0.01


@given(hnp.arrays(float, st.integers(1, 30), elements=st.floats(0, 100)), st.integers(0, 1000))
def test_largest_remainder(values: np.ndarray, total: int) -> None:
    assume(values.sum() > 1e-3)
    exact = values * (total / values.sum())
    counts = largest_remainder(exact, total)
    assert counts.sum() == total
    assert np.abs(counts - exact).max() < 1 + 1e-6


@given(st.integers(1, 30), st.integers(1, 12), st.floats(1, 50))
def test_class_weights(n: int, classes: int, skew: float) -> None:
    weights = class_weights(n, classes, skew)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    for i in range(n):
        favoured = weights[i, i % classes]
        assert favoured == pytest.approx(skew / (skew + classes - 1))
        np.testing.assert_allclose(np.delete(weights[i], i % classes), favoured / skew)


@settings(max_examples=150)
@given(data=st.data(), n=st.integers(1, 7), classes=st.integers(1, 6))
def test_fitted_counts_are_exact(data: st.DataObject, n: int, classes: int) -> None:
    cells = st.sampled_from([1e-6, 1e-3, 0.5, 1.0, 7.0, 300.0])
    target = data.draw(hnp.arrays(float, (n, classes), elements=cells))
    supply = data.draw(hnp.arrays(np.int64, classes, elements=st.integers(0, 60)))
    ends = sorted(data.draw(st.lists(st.integers(0, int(supply.sum())), min_size=n, max_size=n)))
    sizes = np.diff([0, *ends])
    counts = fit_counts(target, sizes, supply)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == sizes).all()
    assert (counts.sum(axis=0) <= supply).all()


def test_fitting_keeps_targets_that_fit() -> None:
    target = np.array([[30.0, 10.0], [10.0, 30.0]])
    fitted = fit_counts(target, np.array([40, 40]), np.array([500, 500]))
    assert np.abs(fitted - target).max() <= 3
    exact = fit_counts(target, np.array([40, 40]), np.array([40, 40]))
    np.testing.assert_array_equal(exact, target)


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 6))
def test_capped_counts(seed: int, n: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    supply = rng.integers(1, 30, classes)
    weights = class_weights(n, classes, 10)
    sizes = rng.integers(1, supply.sum() + 1, n)
    counts = cap_counts(rng.multinomial(sizes, weights), weights, supply, rng)
    assert (counts <= supply).all()
    assert (counts.sum(axis=1) == sizes).all()
