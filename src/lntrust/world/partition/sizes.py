"""How many examples each node holds, and how many of each class."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Rng
from lntrust.study.settings import PartitionSettings

SMALLEST_CONCENTRATION = 1e-9  # of a node without neighbours: it gets the minimum
FITTING_ROUNDS = 500


def allocate(settings: PartitionSettings, degrees: Int[ndarray, "n"], rng: Rng) -> Int[ndarray, "n"]:
    """Labelled examples per node: `labelled` in all, at least `minimum` each.

    What nodes get above the minimum is scaled to what is left once all have it, so those that drew
    less than the minimum are paid for by the others in proportion to their excess.
    """
    n, total, minimum = len(degrees), settings.labelled, settings.minimum
    if n * minimum > total:
        raise LNTrustError(
            f"partition.minimum = {minimum} for {n} nodes needs {n * minimum} labelled examples; "
            f"partition.labelled = {total}"
        )
    if settings.sizes == "equal":
        return largest_remainder(np.full(n, total / n), total)
    # In proportion to the degree, raised to 1 at and above its mean, so that hubs hold much.
    relative = degrees / degrees.mean() if degrees.any() else np.ones(n)
    raised = np.where(relative >= 1, 1.0, SMALLEST_CONCENTRATION)
    drawn = _dirichlet(np.maximum(settings.concentration * relative, raised), rng)
    excess = np.maximum(drawn * total - minimum, 0)
    left = total - n * minimum
    if excess.sum() == 0:  # all drew exactly the minimum
        return np.full(n, minimum)
    return minimum + largest_remainder(excess * (left / excess.sum()), left)


def largest_remainder(values: Float[ndarray, "k"], total: int) -> Int[ndarray, "k"]:
    """Values rounded to integers that sum to `total`; ties go to the lower index."""
    counts = np.floor(values + 1e-9).astype(np.int64)
    order = np.argsort(counts - values, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def _dirichlet(concentration: Float[ndarray, "n"], rng: Rng) -> Float[ndarray, "n"]:
    """A Dirichlet draw from gammas in log space: small concentrations underflow otherwise.

    Gamma(a) is distributed as Gamma(a+1)·U^(1/a).
    """
    uniform = 1.0 - rng.random(len(concentration))  # in (0, 1]
    log_gamma = np.log(rng.standard_gamma(concentration + 1)) + np.log(uniform) / concentration
    weight = np.exp(log_gamma - log_gamma.max())
    return np.asarray(weight / weight.sum())


def class_weights(n: int, classes: int, skew: float) -> Float[ndarray, "n C"]:
    """Node i's class distribution: i mod C weighs s/(s+C−1), the others the rest."""
    weights = np.ones((n, classes))
    weights[np.arange(n), np.arange(n) % classes] = skew
    return weights / (skew + classes - 1)


def cap_counts(
    counts: Int[ndarray, "n C"], weights: Float[ndarray, "n C"], supply: Int[ndarray, "C"], rng: Rng
) -> Int[ndarray, "n C"]:
    """Counts of at most `supply` in every row by itself: what is over goes to classes with room."""
    counts = counts.copy()
    for i in np.flatnonzero((counts > supply).any(axis=1)):
        if counts[i].sum() > supply.sum():
            raise LNTrustError(
                f"node {i} needs {counts[i].sum()} examples, and there are {supply.sum()}; lower "
                "partition.labelled"
            )
        while (over := int(np.maximum(counts[i] - supply, 0).sum())) > 0:
            counts[i] = np.minimum(counts[i], supply)
            open_weights = np.where(counts[i] < supply, weights[i], 0.0)
            counts[i] += rng.multinomial(over, open_weights / open_weights.sum())
    return counts


def fit_counts(
    target: Float[ndarray, "n C"], sizes: Int[ndarray, "n"], supply: Int[ndarray, "C"]
) -> Int[ndarray, "n C"]:
    """Integers near `target` whose rows sum to `sizes` and whose columns stay within `supply`."""
    fitted = proportional_fit(target, sizes, supply)
    counts = np.floor(fitted + 1e-9).astype(np.int64)
    missing, room = sizes - counts.sum(axis=1), supply - counts.sum(axis=0)
    # Largest remainders first, one more each, as long as row and column have room.
    remainder = (fitted - counts).ravel()
    order = np.argsort(-remainder, kind="stable")
    for cell in order[remainder[order] > 1e-9].tolist():
        i, c = divmod(cell, len(supply))
        if missing[i] > 0 and room[c] > 0:
            counts[i, c] += 1
            missing[i] -= 1
            room[c] -= 1
    for i in np.flatnonzero(missing > 0):  # what is still lacking: of the first classes that have some
        more = np.clip(missing[i] - (np.cumsum(room) - room), 0, room)
        counts[i] += more
        room -= more
    return counts


def _ratio(wanted: ndarray, actual: ndarray) -> Float[ndarray, "_"]:
    return np.asarray(np.divide(wanted, actual, out=np.zeros(len(actual)), where=actual > 0))


def proportional_fit(
    target: Float[ndarray, "n C"], sizes: Int[ndarray, "n"], supply: Int[ndarray, "C"]
) -> Float[ndarray, "n C"]:
    """Iterative proportional fitting; rows sum to at most `sizes`, columns to at most `supply`.

    A last row stands for examples nobody takes, so that columns sum to the supply exactly. It
    starts at what the targets would leave over.
    """
    wanted = target * _ratio(sizes, target.sum(axis=1))[:, None]
    spare = np.maximum(supply - wanted.sum(axis=0), 1e-3 * supply)
    table = np.vstack([wanted, spare])
    rows = np.append(sizes, supply.sum() - sizes.sum())
    for _ in range(FITTING_ROUNDS):
        table *= _ratio(supply, table.sum(axis=0))
        sums = table.sum(axis=1)
        table *= _ratio(rows, sums)[:, None]
        if np.abs(sums - rows).max() < 1e-6:
            break
    over = np.minimum(_ratio(supply, table[:-1].sum(axis=0)), 1.0)
    return np.asarray(table[:-1] * over)
