"""Cutting lists of examples: every node's labelled examples into test, validation and training."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Rng
from lntrust.study.settings import PartitionSettings
from lntrust.world.ragged import Ragged

POOL, TEST, VALIDATION, TRAIN = range(4)  # the sides of a split


class Sides(NamedTuple):
    """Example ids per node on each side of a split."""

    train: Ragged
    validation: Ragged
    test: Ragged


def by_owner(ids: Int[ndarray, "k"], owner: Int[ndarray, "k"], n: int) -> Ragged:
    """Ids listed by the node that owns them, in the given order."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))])
    return Ragged(ids[np.argsort(owner, kind="stable")].astype(np.int64), offsets.astype(np.int64))


def in_parts(
    ids: Int[ndarray, "k"], owner: Int[ndarray, "k"], part: Int[ndarray, "k"], n: int, parts: int
) -> list[Ragged]:
    """The ids of each part 0, 1, …, listed by owner."""
    return [by_owner(ids[part == k], owner[part == k], n) for k in range(parts)]


def ranks(group: Int[ndarray, "k"]) -> Int[ndarray, "k"]:
    """0, 1, … inside each group, in the given order."""
    order, count = np.argsort(group, kind="stable"), np.bincount(group)
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - (np.cumsum(count) - count)[group[order]]
    return rank


def shuffled(lists: Ragged, rng: Rng) -> Ragged:
    """Every list in random order. One sort by owner plus fraction is faster than by two keys."""
    order = np.argsort(lists.owner + rng.random(len(lists.values)), kind="stable")
    return Ragged(lists.values[order], lists.offsets)


def cut(lists: Ragged, *counts: Int[ndarray, "n"]) -> tuple[Ragged, ...]:
    """The first counts[0] of every list, the next counts[1], …, and the rest."""
    owner = lists.owner
    rank = np.arange(len(owner)) - lists.offsets[owner]
    ends = np.cumsum(np.stack(counts), axis=0)[:, owner]
    piece = (rank >= ends).sum(axis=0)
    return tuple(in_parts(lists.values, owner, piece, len(lists), len(counts) + 1))


def class_table(lists: Ragged, labels: Int[ndarray, "N"], classes: int) -> Int[ndarray, "n C"]:
    """How many examples of each class every list holds."""
    cells = lists.owner * classes + labels[lists.values]
    return np.bincount(cells, minlength=len(lists) * classes).reshape(-1, classes)


def split_counts(
    sizes: Int[ndarray, "n"], test_fraction: float, val_fraction: float
) -> tuple[Int[ndarray, "n"], Int[ndarray, "n"]]:
    """Test and validation examples of nodes of at least 3: one each, and one to train on.

    Where rounding up both would leave nothing to train on, the larger gives way.
    """
    test = np.maximum(np.rint(test_fraction * sizes), 1).astype(np.int64)
    validation = np.maximum(np.rint(val_fraction * sizes), 1).astype(np.int64)
    short = np.maximum(test + validation + 1 - sizes, 0)
    from_test = test >= validation
    return test - short * from_test, validation - short * ~from_test


def split_nodes(lists: Ragged, labels: Int[ndarray, "N"], settings: PartitionSettings, rng: Rng) -> Sides:
    """Every node's examples cut at random, or class by class as the authors' code does."""
    mixed = shuffled(lists, rng)
    if settings.split == "per_class_nearest":
        return _split_by_class(mixed, labels, settings)
    sizes = split_counts(lists.lengths, settings.test_fraction, settings.val_fraction)
    test, validation, train = cut(mixed, *sizes)
    return Sides(train, validation, test)


def _split_by_class(lists: Ragged, labels: Int[ndarray, "N"], settings: PartitionSettings) -> Sides:
    """Of every class round(fraction·count) to test and validation, as Python rounds: halves to even.

    Where both together are more than there are, validation gives way; and a node that would have nothing to
    train on takes one back, from validation if it can.
    """
    owner, of_class = lists.owner, labels[lists.values]
    group = owner * (int(of_class.max(initial=0)) + 1) + of_class
    rank, count = ranks(group), np.bincount(group)
    test = np.rint(settings.test_fraction * count).astype(np.int64)
    validation = np.minimum(np.rint(settings.val_fraction * count).astype(np.int64), count - test)
    piece = (rank >= test[group]).astype(np.int64) + (rank >= (test + validation)[group])
    for i in np.flatnonzero(np.bincount(owner[piece == 2], minlength=len(lists)) == 0):
        own = np.flatnonzero(owner == i)
        piece[own[piece[own].argmax()]] = 2
    first, second, rest = in_parts(lists.values, owner, piece, len(lists), 3)
    return Sides(train=rest, validation=second, test=first)


def draw_shards(pool: Int[ndarray, "_"], n: int, shard: int, rng: Rng) -> Ragged:
    """Every node's own unlabelled examples: places of the pool, without repeats inside a node."""
    if shard == 0 or len(pool) == 0:
        return Ragged.empty(n)
    if shard > len(pool):
        what = "examples, and a node can draw so many at most"
        raise LNTrustError(f"partition.shard = {shard}: the pool holds {len(pool)} {what}")
    return Ragged.of([rng.choice(pool, shard, replace=False) for _ in range(n)])


def level_counts(available: Int[ndarray, "C"], total: int) -> Int[ndarray, "C"]:
    """`total` examples (or all there are) as evenly over the classes as their numbers allow."""
    total = min(total, int(available.sum()))
    levels = np.arange(int(available.max(initial=0)) + 1)
    reached = np.minimum(available[None, :], levels[:, None]).sum(axis=1)
    level = int(np.searchsorted(reached, total, side="right")) - 1
    counts = np.minimum(available, level)
    counts[np.flatnonzero(available > level)[: total - int(counts.sum())]] += 1
    return np.asarray(counts)


def take_by_class(
    ids: Int[ndarray, "k"], labels: Int[ndarray, "N"], counts: Int[ndarray, "n C"], rng: Rng
) -> Ragged:
    """Lists with these class counts, dealt from `ids` so that no two share an example."""
    mixed, (n, classes) = rng.permutation(ids), counts.shape
    mixed = mixed[np.argsort(labels[mixed], kind="stable")]  # class after class
    taken = mixed[ranks(labels[mixed]) < counts.sum(axis=0)[labels[mixed]]]
    return by_owner(taken, np.repeat(np.tile(np.arange(n), classes), counts.T.ravel()), n)
