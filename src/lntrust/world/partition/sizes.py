"""How many examples each node holds, and how many of each class."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

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
    share = _dirichlet(_concentrations(degrees, settings.concentration), rng)
    excess = np.maximum(share * total - minimum, 0.0)
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


def _concentrations(degrees: Int[ndarray, "n"], at_mean: float) -> Float[ndarray, "n"]:
    """In proportion to the degree, raised to 1 at and above its mean, so that hubs hold much."""
    mean = degrees.mean()
    relative = degrees / mean if mean > 0 else np.ones(len(degrees))
    concentration = np.where(relative >= 1, np.maximum(at_mean * relative, 1.0), at_mean * relative)
    return np.maximum(concentration, SMALLEST_CONCENTRATION)


def _dirichlet(concentration: Float[ndarray, "n"], rng: Rng) -> Float[ndarray, "n"]:
    """A Dirichlet draw from gammas in log space: small concentrations underflow otherwise.

    Gamma(a) is distributed as Gamma(a+1)·U^(1/a).
    """
    uniform = 1.0 - rng.random(len(concentration))  # in (0, 1]
    log_gamma = np.log(rng.standard_gamma(concentration + 1)) + np.log(uniform) / concentration
    weight = np.exp(log_gamma - log_gamma.max())
    return np.asarray(weight / weight.sum())


def class_weights(n: int, classes: int, skew: float, classes_per_node: int | None) -> Float[ndarray, "n C"]:
    """Node i's class distribution: i mod C weighs s/(s+K−1), the K−1 classes after it the rest."""
    held = classes_per_node or classes
    step = (np.arange(classes)[None, :] - np.arange(n)[:, None]) % classes
    return np.where(step == 0, skew, 1.0) * (step < held) / (skew + held - 1)


def cap_counts(
    counts: Int[ndarray, "n C"], weights: Float[ndarray, "n C"], supply: Int[ndarray, "C"], rng: Rng
) -> Int[ndarray, "n C"]:
    """Counts of at most `supply` in every row by itself: what is over goes to classes with room."""
    counts = counts.copy()
    for i in np.flatnonzero((counts > supply).any(axis=1)):
        capacity = int(supply[weights[i] > 0].sum())
        if counts[i].sum() > capacity:
            raise LNTrustError(
                f"node {i} needs {counts[i].sum()} examples of its classes, which have {capacity}; "
                "lower partition.labelled or raise partition.classes_per_node"
            )
        while (over := int(np.maximum(counts[i] - supply, 0).sum())) > 0:
            counts[i] = np.minimum(counts[i], supply)
            open_weights = np.where(counts[i] < supply, weights[i], 0.0)
            counts[i] += rng.multinomial(over, open_weights / open_weights.sum())
    return counts


def fit_counts(
    target: Float[ndarray, "n C"], sizes: Int[ndarray, "n"], supply: Int[ndarray, "C"]
) -> Int[ndarray, "n C"]:
    """Integers near `target` whose rows sum to `sizes` and whose columns stay within `supply`.

    A zero in `target` is a class the node must not hold; any positive mass may grow.
    """
    if sizes.sum() > supply.sum():
        raise LNTrustError(f"the nodes need {sizes.sum()} examples in all; there are {supply.sum()}")
    fitted = proportional_fit(target, sizes, supply)
    counts = np.floor(fitted + 1e-9).astype(np.int64)
    _round_up(counts, fitted - counts, sizes, supply)
    allowed = target > 0
    for i in np.flatnonzero(counts.sum(axis=1) < sizes):
        _take_more(counts, int(i), allowed, sizes, supply)
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


def _round_up(
    counts: Int[ndarray, "n C"],
    remainder: Float[ndarray, "n C"],
    sizes: Int[ndarray, "n"],
    supply: Int[ndarray, "C"],
) -> None:
    """Largest remainders first, one more each, as long as row and column have room. In place."""
    missing, room = (sizes - counts.sum(axis=1)).tolist(), (supply - counts.sum(axis=0)).tolist()
    classes = counts.shape[1]
    order = np.argsort(-remainder, axis=None, kind="stable")
    order = order[remainder.ravel()[order] > 1e-9]
    for cell in order.tolist():
        i, c = divmod(cell, classes)
        if missing[i] > 0 and room[c] > 0:
            counts[i, c] += 1
            missing[i] -= 1
            room[c] -= 1


def _take_more(
    counts: Int[ndarray, "n C"],
    start: int,
    allowed: Bool[ndarray, "n C"],
    sizes: Int[ndarray, "n"],
    supply: Int[ndarray, "C"],
) -> None:
    """Give node `start` the examples it lacks, in place: of the first classes that have some, then by swaps.

    In a swap the node takes a class, another holder of it takes another class instead, and so on: the
    shortest such chain to a class with examples left, again and again, is Edmonds and Karp's maximum flow.
    """
    missing, room = int(sizes[start] - counts[start].sum()), supply - counts.sum(axis=0)
    for c in np.flatnonzero(allowed[start] & (room > 0)):
        more = min(missing, int(room[c]))
        counts[start, c] += more
        room[c] -= more
        missing -= more
    if not missing:
        return
    n, C = counts.shape
    source, sink = n + C, n + C + 1  # numbered after the nodes and the classes
    (taker, taken), (holder, held) = np.nonzero(allowed), np.nonzero(counts)
    tail = np.concatenate([taker, n + held, n + np.arange(C), [source]])
    head = np.concatenate([n + taken, holder, np.full(C, sink), [start]])
    most = np.concatenate([np.full(len(taker), sizes.sum()), counts[holder, held], room, [missing]])
    graph = csr_array((most.astype(np.int32), (tail, head)), shape=(n + C + 2, n + C + 2))
    found = maximum_flow(graph, source, sink, method="edmonds_karp")
    if found.flow_value < missing:
        left = csr_array(graph - found.flow)
        left.eliminate_zeros()
        reached = np.sort(breadth_first_order(left, start, return_predecessors=False))
        nodes = reached[reached < n].tolist()
        classes = (reached[(reached >= n) & (reached < source)] - n).tolist()
        raise LNTrustError(
            f"{_some('node', 'nodes', nodes)} may hold only {_some('class', 'classes', classes)}: they need "
            f"{sizes[nodes].sum()} examples; those classes have {supply[classes].sum()}. Lower "
            "partition.labelled or raise partition.classes_per_node"
        )
    counts += found.flow[:n, n:source].toarray()


def _some(noun: str, plural: str, numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"{noun if len(numbers) == 1 else plural} {shown}"
