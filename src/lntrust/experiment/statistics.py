"""How sure a difference is: intervals over seeds and nodes, and the chance that a node is better off.

Nodes of one seed share a graph and a deal of the data, so that they are not independent draws. A resample
therefore draws seeds first and then nodes inside each of them (a two-level bootstrap).

Few seeds tell little of how seeds differ. A bootstrap of S seeds sees (S − 1)/S of their variance, which is
made up for; the rest cannot be. Simulated with 50 nodes and seeds that scatter a quarter as much as nodes (or
as much), what says 95 % covers the truth in 93 % (81 %) of the cases with three seeds, 94 % (86 %) with five.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import bootstrap, t

RESAMPLES = 4000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean, and where it lies with 95 % confidence."""

    mean: float
    low: float
    high: float

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        return self.high < 0

    def within(self, margin: float) -> bool:
        """The whole interval lies inside ± margin: two one-sided tests at 2.5 %, read as an interval."""
        return -margin < self.low and self.high < margin

    def beyond(self, margin: float) -> bool:
        """The whole interval lies outside ± margin."""
        return self.low > margin or self.high < -margin


def paired_interval(differences: Sequence[Float[ndarray, "n"]]) -> Interval | None:
    """Of the mean over seeds of the mean over nodes, given each seed's differences node by node.

    Nodes without a score (NaN) are left out. The draws are the same each time. None if nothing is left.
    """
    seeds = [values[np.isfinite(values)] for values in differences]
    seeds = [values for values in seeds if len(values)]
    if not seeds:
        return None
    mean = float(np.mean([values.mean() for values in seeds]))
    rng = np.random.default_rng(0)
    # of_seed[s, r]: the mean over nodes of seed s in resample r
    of_seed = np.stack([_resampled_means(values, rng) for values in seeds])
    drawn = rng.integers(len(seeds), size=(len(seeds), RESAMPLES))
    # A seed that is drawn twice brings other nodes the second time.
    means = np.mean([rng.permuted(of_seed, axis=1)[row, np.arange(RESAMPLES)] for row in drawn], axis=0)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    wider = np.sqrt(len(seeds) / (len(seeds) - 1)) if len(seeds) > 1 else 1.0
    return Interval(mean, float(mean + wider * (low - mean)), float(mean + wider * (high - mean)))


def seed_interval(differences: Sequence[Float[ndarray, "n"]]) -> Interval | None:
    """The same mean, and Student's t over the seeds' means: one seed says nothing of how seeds differ."""
    means = [values[np.isfinite(values)].mean() for values in differences if np.isfinite(values).any()]
    if not means:
        return None
    mean, count = float(np.mean(means)), len(means)
    if count == 1:
        return Interval(mean, -np.inf, np.inf)
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1) * np.std(means, ddof=1) / np.sqrt(count))
    return Interval(mean, mean - half, mean + half)


def _resampled_means(values: Float[ndarray, "n"], rng: np.random.Generator) -> Float[ndarray, "R"]:
    if np.ptp(values) == 0:  # nothing to resample, and scipy warns of it
        return np.full(RESAMPLES, values[0])
    few = max(1, 4_000_000 // len(values))  # resamples at a time: 10,000 nodes shall not take a gigabyte
    result = bootstrap((values,), np.mean, n_resamples=RESAMPLES, batch=few, method="percentile", rng=rng)
    return np.asarray(result.bootstrap_distribution)


def probability_of_improvement(
    ours: Sequence[Float[ndarray, "n"]], theirs: Sequence[Float[ndarray, "n"]]
) -> float | None:
    """The chance that a node, drawn from any of the seeds, scores higher than there; ties count half."""
    pairs = zip(ours, theirs, strict=True)
    both = np.hstack([np.empty((2, 0)), *(np.stack(pair) for pair in pairs)])  # also of no seed at all
    a, b = both[:, np.isfinite(both).all(0)]
    return float(np.mean((a > b) + 0.5 * (a == b))) if len(a) else None
