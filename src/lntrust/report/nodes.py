"""Runs node by node: the score that single nodes are judged by, differences, and how many are worse off."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lntrust.experiment.metrics import judged_on_own_tests
from lntrust.experiment.statistics import Interval, paired_interval
from lntrust.experiment.store import Record

POINT = 0.01
On = Literal["test", "test_pooled"]  # the nodes' own test sets, or the union of all
Pair = tuple[Float[ndarray, "n"], Float[ndarray, "n"]]


class Below(NamedTuple):
    """Shares of nodes, means over seeds."""

    share: float
    by_a_point: float  # more than a point below


def per_node(record: Record, score: str) -> Float[ndarray, "n"]:
    """Empty where the run has no such score."""
    return np.array(record.summary["per_node"][score] or [], dtype=float)  # None is NaN


def on_own_tests(record: Record) -> bool:
    """Whether its nodes are places or people."""
    return judged_on_own_tests(record.identity["study"]["partition"]["by"])


def difference(ours: Sequence[Record], theirs: Sequence[Record], score: str) -> Interval | None:
    """Of two lists of runs with the same seeds, node by node; none if these are not the same nodes."""
    found = differences(ours, theirs, score)
    return None if found is None else paired_interval(found)


def differences(
    ours: Sequence[Record], theirs: Sequence[Record], score: str
) -> list[Float[ndarray, "n"]] | None:
    """Seed by seed."""
    pairs = [(per_node(a, score), per_node(b, score)) for a, b in zip(ours, theirs, strict=False)]
    alike = len(ours) == len(theirs) and all(len(a) == len(b) for a, b in pairs)
    return [a - b for a, b in pairs] if alike else None


def judged(a: Record, b: Record, scores: tuple[str, str] = ("test", "test")) -> Pair:
    """What single nodes are judged by: pooled scores if both have them, of places and people own ones."""
    own, pooled = ((per_node(a, scores[0] + of), per_node(b, scores[1] + of)) for of in ("", "_pooled"))
    return own if on_own_tests(a) or not all(map(len, pooled)) else pooled


def below(pairs: Sequence[Pair]) -> Below | None:
    """Nodes whose first score is lower than their second; those without a score are left out."""
    gaps = [(a - b)[np.isfinite(a - b)] for a, b in pairs]
    shares = [((gap < 0).mean(), (gap < -POINT).mean()) for gap in gaps if len(gap)]
    return Below(*map(float, np.mean(shares, axis=0))) if shares else None
