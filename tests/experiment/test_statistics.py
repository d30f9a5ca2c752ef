"""Intervals and chances: what a table's Δ and P promise."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lntrust.experiment.statistics import (
    Interval,
    paired_interval,
    probability_of_improvement,
    seed_interval,
)

scores = st.floats(-1, 1, allow_subnormal=False).map(lambda x: round(x, 6))
nodes = st.integers(1, 12).flatmap(lambda n: arrays(np.float64, n, elements=scores))
worlds = st.lists(nodes, min_size=1, max_size=4)
quick = settings(max_examples=30)


def interval(seeds: list[np.ndarray]) -> Interval:
    found = paired_interval(seeds)
    assert found is not None
    return found


def by_seed(seeds: list[np.ndarray]) -> Interval:
    found = seed_interval(seeds)
    assert found is not None
    return found


@quick
@given(worlds)
def test_the_mean_is_that_of_seeds_and_lies_inside(seeds: list[np.ndarray]) -> None:
    mean, low, high = interval(seeds)
    assert mean == pytest.approx(np.mean([values.mean() for values in seeds]))
    assert low - 1e-9 <= mean <= high + 1e-9
    wider = (len(seeds) / max(len(seeds) - 1, 1)) ** 0.5  # what few seeds do not show of their variance
    assert low >= mean - wider * (mean - min(values.min() for values in seeds)) - 1e-9
    assert high <= mean + wider * (max(values.max() for values in seeds) - mean) + 1e-9


@quick
@given(worlds, scores, st.floats(0.01, 100), st.data())
def test_it_moves_with_a_shift_a_unit_and_a_sign_and_leaves_out_nodes_without_a_score(
    seeds: list[np.ndarray], shift: float, factor: float, data: st.DataObject
) -> None:
    mean, low, high = interval(seeds)
    assert interval([values.copy() for values in seeds]) == (mean, low, high), "the draws are the same"
    scaled = interval([factor * values for values in seeds])
    assert scaled == pytest.approx([factor * x for x in (mean, low, high)], abs=1e-9)
    assert interval([-values for values in seeds]) == pytest.approx((-mean, -high, -low), abs=1e-9)
    places = [data.draw(st.integers(0, len(values)), label="where") for values in seeds]
    gaps = [np.insert(values, place, np.nan) for values, place in zip(seeds, places, strict=True)]
    assert interval(gaps) == (mean, low, high)
    assume(all(np.ptp(values) == 0 or np.ptp(values) > 1e-3 for values in seeds))
    moved = interval([values + shift for values in seeds])
    assert moved == pytest.approx([x + shift for x in (mean, low, high)], abs=1e-9)


@pytest.mark.parametrize("nothing", [[], [np.array([])], [np.array([np.nan, np.nan])]])
def test_nothing_to_go_by(nothing: list[np.ndarray]) -> None:
    assert paired_interval(nothing) is None


def test_one_seed_is_resampled_by_its_nodes() -> None:
    values = np.random.default_rng(0).normal(0.05, 0.1, 100)
    mean, low, high = interval([values])
    half = 1.96 * values.std() / 10
    assert mean - low == pytest.approx(half, rel=0.1)
    assert high - mean == pytest.approx(half, rel=0.1)
    assert interval([values, np.array([np.nan])]) == (mean, low, high), "a seed without any score is none"


def test_nodes_that_all_agree_leave_the_seeds_to_differ() -> None:
    same = [np.full(5, 0.1), np.full(5, 0.2), np.full(5, 0.3)]
    assert interval(same[:1]) == pytest.approx((0.1, 0.1, 0.1))
    mean, low, high = interval(same)
    half = 0.1 * 1.5**0.5  # three of the same, one draw in 27 each; widened, as two thirds is all they show
    assert (mean, low, high) == pytest.approx((0.2, 0.2 - half, 0.2 + half))


def test_nodes_of_a_seed_are_not_taken_for_independent() -> None:
    """Seeds that differ much tell little, however many nodes each has."""
    rng = np.random.default_rng(0)
    seeds = [centre + rng.normal(0, 0.01, 200) for centre in (-0.1, 0.0, 0.1, 0.2)]
    honest, naive = interval(seeds), interval([np.concatenate(seeds)])
    assert honest.high - honest.low > 5 * (naive.high - naive.low)
    assert not honest.above_zero
    assert naive.above_zero


@pytest.mark.parametrize(("seeds", "nodes", "tries"), [(8, 30, 200), (3, 50, 100)])
def test_it_covers_the_truth_about_as_often_as_it_says(seeds: int, nodes: int, tries: int) -> None:
    """Worlds whose true difference is known: seeds scatter around it, nodes around their seed.

    Three seeds do not show all of how seeds differ, which is made up for as far as it goes.
    """
    rng, truth, covered = np.random.default_rng(7), 0.03, 0
    for _ in range(tries):
        found = interval([rng.normal(rng.normal(truth, 0.02), 0.08, nodes) for _ in range(seeds)])
        covered += found.low <= truth <= found.high
    assert 0.85 * tries <= covered < tries


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_students_t_covers_the_truth_as_often_as_it_says_however_few_seeds_there_are(seeds: int) -> None:
    """Where a bootstrap of three seeds does not, if seeds differ and nodes hardly do."""
    rng, truth, tries = np.random.default_rng(7), 0.03, 2000
    worlds = [[np.full(5, rng.normal(truth, 0.02)) for _ in range(seeds)] for _ in range(tries)]
    covered = sum(found.low <= truth <= found.high for found in map(by_seed, worlds))
    assert covered == pytest.approx(0.95 * tries, abs=4 * (0.95 * 0.05 * tries) ** 0.5)
    if seeds == 3:
        bootstrapped = sum(low <= truth <= high for _, low, high in map(interval, worlds[:200]))
        assert bootstrapped < 0.9 * 200


@quick
@given(worlds)
def test_both_intervals_have_one_mean(seeds: list[np.ndarray]) -> None:
    mean, low, high = by_seed([*seeds, np.array([np.nan])])
    assert mean == pytest.approx(interval(seeds).mean)
    assert low <= mean <= high
    assert (low, high) == (-np.inf, np.inf) or len(seeds) > 1, "one seed says nothing of others"


@pytest.mark.parametrize("nothing", [[], [np.array([])], [np.array([np.nan, np.nan])]])
def test_no_seed_with_a_score(nothing: list[np.ndarray]) -> None:
    assert seed_interval(nothing) is None


@given(scores, st.floats(0, 1), st.floats(0.01, 1))
def test_an_interval_is_within_a_margin_beyond_it_or_neither(mean: float, half: float, margin: float) -> None:
    found = Interval(mean, mean - half, mean + half)
    assert not (found.within(margin) and found.beyond(margin))
    assert found.beyond(margin) == (abs(mean) > half and min(abs(found.low), abs(found.high)) > margin)
    assert Interval(-mean, -found.high, -found.low).within(margin) == found.within(margin)


def test_what_touches_zero_is_on_neither_side() -> None:
    for low, high in ((0.1, 0.3), (-0.3, -0.1), (0.0, 0.2)):
        found = Interval((low + high) / 2, low, high)
        assert (found.above_zero, found.below_zero) == (low == 0.1, high == -0.1)


# -- the chance that a node is better off ---------------------------------------------------------

some = st.sampled_from([0.0, 0.5, 1.0, np.nan])
pair = st.integers(1, 8).flatmap(lambda n: st.tuples(*(arrays(np.float64, n, elements=some),) * 2))
pairs = st.lists(pair, min_size=1, max_size=4)


@given(pairs)
def test_better_here_or_better_there(worlds: list[tuple[np.ndarray, np.ndarray]]) -> None:
    ours, theirs = [a for a, _ in worlds], [b for _, b in worlds]
    chance, other = probability_of_improvement(ours, theirs), probability_of_improvement(theirs, ours)
    if chance is None or other is None:
        assert chance is other is None
        assert not any(np.isfinite(a + b).any() for a, b in worlds)
    else:
        assert 0 <= chance <= 1
        assert chance + other == pytest.approx(1)


def test_ties_count_half_and_every_node_the_same() -> None:
    assert probability_of_improvement([], []) is None
    assert probability_of_improvement([np.array([0.5, 0.5])], [np.array([0.5, 0.5])]) == 0.5
    assert probability_of_improvement([np.array([0.5, 0.5])], [np.array([0.5, 0.4])]) == 0.75
    big, small = np.full(9, 0.6), np.array([0.1])
    assert probability_of_improvement([big, small], [np.full(9, 0.5), np.array([0.2])]) == 0.9
    gaps = np.array([np.nan, 0.6, 0.6]), np.array([0.1, np.nan, 0.5])
    assert probability_of_improvement([gaps[0]], [gaps[1]]) == 1.0


def test_nodes_are_compared_one_by_one() -> None:
    with pytest.raises(ValueError, match="same shape"):
        probability_of_improvement([np.array([0.1, 0.2])], [np.array([0.1])])
