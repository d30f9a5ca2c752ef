"""One person, one node. Overlapping windows form a segment, and a segment goes to one side only."""

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Rng
from lntrust.study.settings import PartitionSettings
from lntrust.world.data.datasets import Dataset
from lntrust.world.partition import splits


def split_subjects(
    dataset: Dataset, settings: PartitionSettings, n: int, pool_rng: Rng, split_rng: Rng
) -> tuple[Int[ndarray, "_"], splits.Sides]:
    """The pool, and every person's test, validation and training windows."""
    owner = _owners(dataset, n)
    ids = np.arange(len(owner))
    numbers = ids if dataset.segment is None else dataset.segment
    segment = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    windows = np.bincount(segment)
    person = np.zeros(len(windows), dtype=np.int64)  # whose each segment is
    person[segment] = owner
    if (person[segment] != owner).any():
        raise LNTrustError(f"{dataset.name}: a segment holds windows of two people; each must be of one")
    lists, classes = splits.by_owner(ids, segment, len(windows)), len(dataset.classes)
    table = splits.class_table(lists, dataset.labels, classes)
    kind = table.argmax(axis=1)  # the usual one; a tie: the lower
    side = np.full(len(windows), splits.TRAIN)
    for i in range(n):
        own = np.flatnonzero(person == i)
        pooled = pool_rng.permutation(own)[: round(settings.pool_fraction * len(own))]
        rest = np.setdiff1d(own, pooled)
        if len(rest) < 3:
            raise LNTrustError(
                f"partition.by = subject: person {i} of {dataset.name} has {len(own)} segments, of "
                f"which partition.pool_fraction = {settings.pool_fraction} leaves {len(rest)}; at "
                "least 3 are needed, one each for training, validation and test"
            )
        order = rest[_class_by_class(kind[rest], split_rng)]
        first, second = _cuts(windows[order], settings)
        side[pooled] = splits.POOL
        side[order[:first]] = splits.TEST
        side[order[first:second]] = splits.VALIDATION
    pool, test, validation, train = splits.in_parts(ids, owner, side[segment], n, 4)
    return pool.values, splits.Sides(train, validation, test)


def _owners(dataset: Dataset, n: int) -> Int[ndarray, "N"]:
    if dataset.subject is None:
        what = "does not say whose its examples are; use partition.by = label_skew"
        raise LNTrustError(f"partition.by = subject: {dataset.name} {what}")
    people, owner = np.unique(dataset.subject, return_inverse=True)
    if len(people) != n:
        raise LNTrustError(
            f"graph.nodes = {n}: {dataset.name} has {len(people)} people, and with partition.by = "
            f"subject each is one node; set graph.nodes = {len(people)}"
        )
    return owner.reshape(-1)


def _class_by_class(kind: Int[ndarray, "m"], rng: Rng) -> Int[ndarray, "m"]:
    """A random order that takes classes in turn, so that any few in a row differ in class."""
    mixed = rng.permutation(len(kind))
    place = rng.permutation(int(kind.max()) + 1)[kind[mixed]]
    return mixed[np.lexsort((place, splits.ranks(place)))]


def _cuts(windows: Int[ndarray, "m"], settings: PartitionSettings) -> tuple[int, int]:
    """Where test and validation end: as soon as they have their share; each side keeps a segment."""
    end, m = np.cumsum(windows), len(windows)
    test = min(int(np.searchsorted(end, settings.test_fraction * end[-1])) + 1, m - 2)
    wanted = end[test - 1] + settings.val_fraction * end[-1]
    return test, min(max(int(np.searchsorted(end, wanted)) + 1, test + 1), m - 1)
