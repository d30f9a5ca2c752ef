"""Whose data: every node's training, validation and test examples, and the unlabelled pool.

Each kind of draw has a generator of its own, so that changing, say, the shard size never moves a
split.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import generator
from lntrust.study.settings import PartitionSettings
from lntrust.world.data.datasets import Dataset
from lntrust.world.partition.blocks import POOL, deal_blocks, keep_at_most
from lntrust.world.partition.regions import make_regions, spatial_blocks
from lntrust.world.partition.sizes import allocate, cap_counts, class_weights, fit_counts, proportional_fit
from lntrust.world.partition.splits import (
    Sides,
    by_owner,
    class_table,
    cut,
    draw_shards,
    empty,
    level_counts,
    shuffled,
    split_counts,
    split_nodes,
    take_by_class,
)
from lntrust.world.partition.subjects import split_subjects
from lntrust.world.ragged import Ragged

TINY = 1e-3  # mass of a class a node may hold but did not draw: it can grow if others run short


class Draw(IntEnum):
    """The kinds of draws; each is a stream of its own."""

    POOL = 0
    SIZES = 1
    CLASSES = 2
    IDS = 3
    SPLITS = 4
    SHARDS = 5
    FRESH = 6


@dataclass(frozen=True)
class Partition:
    """Example ids per node, and what is known about the nodes' class distributions.

    With fresh validation, Stage 1 trains on train + given_up, and methods that use validation give
    up `given_up` for Stage 2. Otherwise `given_up` is empty.
    """

    train: Ragged
    validation: Ragged
    test: Ragged
    given_up: Ragged
    shard: Ragged  # unlabelled, drawn from the pool
    pool: Int[ndarray, "_"]
    favoured: Int[ndarray, "n"]  # by label_skew: i mod C; else the most frequent class
    favoured_share: Float[ndarray, "n"]  # of that class in the node's whole labelled allocation
    centres: Float[ndarray, "n 2"] | None  # latitude and longitude, by region only
    # P_i, the class distribution that node i's examples were drawn from, where the study made it up
    # (by label_skew): the skew, fitted to sizes and supply, before the luck of the draw.
    drawn_from: Float[ndarray, "n C"] | None


def groups(settings: PartitionSettings, dataset: Dataset) -> Int[ndarray, "N"]:
    """What no split may part, as a number per example: segments, spatial blocks, or the example itself."""
    if settings.by == "subject" and dataset.segment is not None:
        return np.unique(dataset.segment, return_inverse=True)[1].reshape(-1)
    if settings.split == "blocks" and dataset.latitude is not None and dataset.longitude is not None:
        return spatial_blocks(dataset.latitude, dataset.longitude, settings.block_km)
    return np.arange(len(dataset.labels))


def make_partition(
    dataset: Dataset, settings: PartitionSettings, degrees: Int[ndarray, "n"], seed: int
) -> Partition:
    """Deal a dataset out to len(degrees) nodes. Degrees matter for Dirichlet sizes only."""
    n = len(degrees)
    if settings.by == "region":
        return _by_region(dataset, settings, n, seed)
    if settings.by == "subject":
        return _by_subject(dataset, settings, n, seed)
    return _by_label(dataset, settings, degrees, seed)


def _rng(seed: int, draw: Draw) -> np.random.Generator:
    return generator(seed, "partition", int(draw))


def _finish(
    dataset: Dataset,
    settings: PartitionSettings,
    seed: int,
    pool: Int[ndarray, "_"],
    sides: Sides,
    *,
    allocation: Ragged | None = None,
    given_up: Ragged | None = None,
    favoured: Int[ndarray, "n"] | None = None,
    centres: Float[ndarray, "n 2"] | None = None,
    drawn_from: Float[ndarray, "n C"] | None = None,
) -> Partition:
    """Shards and shares, which all kinds have in common."""
    n = len(sides.train)
    if allocation is None:
        allocation = sides.train.joined(sides.validation).joined(sides.test)
    table = class_table(allocation, dataset.labels, len(dataset.classes))
    if favoured is None:
        favoured = table.argmax(axis=1)
    return Partition(
        train=sides.train,
        validation=sides.validation,
        test=sides.test,
        given_up=empty(n) if given_up is None else given_up,
        shard=draw_shards(pool, n, settings.shard, _rng(seed, Draw.SHARDS)),
        pool=pool,
        favoured=favoured,
        favoured_share=table[np.arange(n), favoured] / table.sum(axis=1),
        centres=centres,
        drawn_from=drawn_from,
    )


def _balanced_pool(dataset: Dataset, settings: PartitionSettings, seed: int) -> Int[ndarray, "_"]:
    """`pool` examples, equally many of each class; the first classes take the remainder."""
    classes = len(dataset.classes)
    each, remainder = divmod(settings.pool, classes)
    counts = each + (np.arange(classes) < remainder)
    have = np.bincount(dataset.labels, minlength=classes)
    for c in np.flatnonzero(counts > have):
        raise LNTrustError(
            f"partition.pool = {settings.pool} takes {counts[c]} of each of {classes} classes; "
            f"class {dataset.classes[c]!r} of {dataset.name} has {have[c]}"
        )
    ids = np.arange(len(dataset.labels))
    return take_by_class(ids, dataset.labels, counts[None, :], _rng(seed, Draw.POOL)).values


def _without(dataset: Dataset, *taken: Int[ndarray, "_"]) -> Int[ndarray, "_"]:
    """The ids that are in none of these lists."""
    free = np.ones(len(dataset.labels), dtype=bool)
    for ids in taken:
        free[ids] = False
    return np.flatnonzero(free)


# --- by label_skew -------------------------------------------------------------------------------


def _by_label(
    dataset: Dataset, settings: PartitionSettings, degrees: Int[ndarray, "n"], seed: int
) -> Partition:
    n, classes = len(degrees), len(dataset.classes)
    _check_demand(dataset, settings)
    pool = _balanced_pool(dataset, settings, seed)
    eligible = _without(dataset, pool)
    sizes = allocate(settings, degrees, _rng(seed, Draw.SIZES))
    weights = class_weights(n, classes, settings.skew, settings.classes_per_node)
    allocation = _allocation(dataset, settings, eligible, sizes, weights, seed)
    favoured = np.arange(n) % classes
    sides = split_nodes(allocation, dataset.labels, settings, _rng(seed, Draw.SPLITS))
    given_up = None
    if settings.validation == "fresh":
        free = _without(dataset, pool, allocation.values)
        sides, given_up = _fresh(dataset, settings, sides, allocation, weights, free, seed)
    return _finish(
        dataset,
        settings,
        seed,
        pool,
        sides,
        allocation=allocation,
        given_up=given_up,
        favoured=favoured,
        drawn_from=_expected(dataset, settings, eligible, sizes, weights),
    )


def _expected(
    dataset: Dataset,
    settings: PartitionSettings,
    eligible: Int[ndarray, "_"],
    sizes: Int[ndarray, "n"],
    weights: Float[ndarray, "n C"],
) -> Float[ndarray, "n C"]:
    """P_i: the skew itself or, where nodes compete for examples, what supply leaves of it."""
    if settings.draws == "overlapping":
        return weights
    supply = np.bincount(dataset.labels[eligible], minlength=len(dataset.classes))
    fitted = proportional_fit(weights, sizes, supply)
    return np.asarray(fitted / fitted.sum(axis=1, keepdims=True))


def _check_demand(dataset: Dataset, settings: PartitionSettings) -> None:
    """Refuse what cannot be, before anything is drawn."""
    classes, supply = len(dataset.classes), len(dataset.labels)
    if settings.classes_per_node is not None and settings.classes_per_node > classes:
        raise LNTrustError(
            f"partition.classes_per_node = {settings.classes_per_node}: {dataset.name} has {classes} classes"
        )
    demand = settings.labelled + settings.pool
    if settings.draws == "disjoint" and demand > supply:
        raise LNTrustError(
            f"partition.labelled = {settings.labelled} and partition.pool = {settings.pool} need "
            f"{demand} examples; {dataset.name} has {supply}"
        )


def _allocation(
    dataset: Dataset,
    settings: PartitionSettings,
    eligible: Int[ndarray, "_"],
    sizes: Int[ndarray, "n"],
    weights: Float[ndarray, "n C"],
    seed: int,
) -> Ragged:
    """The labelled examples of every node, test and withheld validation included."""
    supply = np.bincount(dataset.labels[eligible], minlength=len(dataset.classes))
    classes_rng, ids_rng = _rng(seed, Draw.CLASSES), _rng(seed, Draw.IDS)
    counts = classes_rng.multinomial(sizes, weights)
    if settings.draws == "overlapping":
        counts = cap_counts(counts, weights, supply, classes_rng)
        return _draw_alone(eligible, dataset.labels, counts, ids_rng)
    counts = fit_counts(counts + TINY * weights, sizes, supply)
    return take_by_class(eligible, dataset.labels, counts, ids_rng)


def _draw_alone(
    eligible: Int[ndarray, "_"],
    labels: Int[ndarray, "N"],
    counts: Int[ndarray, "n C"],
    rng: np.random.Generator,
) -> Ragged:
    """Every node draws by itself, without repeats: different nodes may hold the same example."""
    by_class = eligible[np.argsort(labels[eligible], kind="stable")]
    supply = np.bincount(labels[eligible], minlength=counts.shape[1])
    first = np.cumsum(supply) - supply
    node, held = np.nonzero(counts)
    cells = zip(supply[held].tolist(), counts[node, held].tolist(), strict=True)
    drawn = [rng.choice(of, size=k, replace=False, shuffle=False) for of, k in cells]
    start = np.repeat(first[held], counts[node, held])
    owner = np.repeat(node, counts[node, held])
    return by_owner(by_class[start + np.concatenate(drawn)], owner, len(counts))


def _fresh(
    dataset: Dataset,
    settings: PartitionSettings,
    sides: Sides,
    allocation: Ragged,
    weights: Float[ndarray, "n C"],
    free: Int[ndarray, "_"],
    seed: int,
) -> tuple[Sides, Ragged]:
    """Validation from examples nobody holds, and as many training examples to be given up.

    The withheld split has drawn the test sets; what it withheld goes back to training.
    """
    rng, classes = _rng(seed, Draw.FRESH), len(dataset.classes)
    rest = shuffled(sides.train.joined(sides.validation), rng)
    wanted = split_counts(allocation.lengths, settings.test_fraction, settings.val_fraction)[1]
    if wanted.sum() > len(free):
        total = len(dataset.labels)
        held = len(np.unique(allocation.values))
        raise LNTrustError(
            f"partition.validation = fresh with partition.val_fraction = {settings.val_fraction} "
            f"needs {wanted.sum()} examples nobody holds; {dataset.name} has {total}, less {held} "
            f"held (partition.labelled = {settings.labelled}) and partition.pool = {settings.pool} "
            f"leaves {len(free)}"
        )
    table = class_table(allocation, dataset.labels, classes)
    target = table * (wanted / allocation.lengths)[:, None] + TINY * weights
    supply = np.bincount(dataset.labels[free], minlength=classes)
    validation = take_by_class(free, dataset.labels, fit_counts(target, wanted, supply), rng)
    given_up, train = cut(rest, wanted)
    return Sides(train, shuffled(validation, rng), sides.test), given_up


# --- by region and by subject --------------------------------------------------------------------


def _by_region(dataset: Dataset, settings: PartitionSettings, n: int, seed: int) -> Partition:
    if dataset.latitude is None or dataset.longitude is None:
        raise LNTrustError(
            f"partition.by = region: {dataset.name} has no coordinates; use partition.by = label_skew"
        )
    _check_room(dataset, settings, n)
    owner, centres = make_regions(dataset.latitude, dataset.longitude, n)
    if settings.split == "blocks":
        block = spatial_blocks(dataset.latitude, dataset.longitude, settings.block_km)
        pool, sides = _blocks(dataset, settings, block, owner, n, seed)
    else:
        pool = _balanced_pool(dataset, settings, seed)
        free = _without(dataset, pool)
        mixed = shuffled(by_owner(free, owner[free], n), _rng(seed, Draw.IDS))
        kept, _ = cut(mixed, np.full(n, settings.per_region))
        _check_regions(kept, settings)
        sides = split_nodes(kept, dataset.labels, settings, _rng(seed, Draw.SPLITS))
    return _finish(dataset, settings, seed, pool, sides, centres=centres)


def _check_room(dataset: Dataset, settings: PartitionSettings, n: int) -> None:
    total = len(dataset.labels)
    if settings.pool + 3 * n > total:
        raise LNTrustError(
            f"partition.pool = {settings.pool} and 3 labelled examples in each of {n} regions need "
            f"{settings.pool + 3 * n} examples; {dataset.name} has {total}"
        )


def _check_regions(kept: Ragged, settings: PartitionSettings) -> None:
    for region in np.flatnonzero(kept.lengths < 3):
        raise LNTrustError(
            f"partition.pool = {settings.pool} leaves region {region} {kept.lengths[region]} "
            "labelled examples; at least 3 are needed: lower partition.pool or graph.nodes"
        )


def _blocks(
    dataset: Dataset,
    settings: PartitionSettings,
    block: Int[ndarray, "N"],
    owner: Int[ndarray, "N"],
    n: int,
    seed: int,
) -> tuple[Int[ndarray, "_"], Sides]:
    """Pool and sides when whole blocks are dealt; the pool is as balanced as its blocks allow."""
    side = deal_blocks(block, owner, n, settings, _rng(seed, Draw.SPLITS))
    pooled = np.flatnonzero(side == POOL)
    have = np.bincount(dataset.labels[pooled], minlength=len(dataset.classes))
    counts = level_counts(have, settings.pool)[None, :]
    pool = take_by_class(pooled, dataset.labels, counts, _rng(seed, Draw.POOL)).values
    return pool, keep_at_most(side, owner, n, settings.per_region, _rng(seed, Draw.IDS))


def _by_subject(dataset: Dataset, settings: PartitionSettings, n: int, seed: int) -> Partition:
    if settings.split != "random":
        raise LNTrustError(
            f"partition.split = {settings.split} parts segments; partition.by = subject needs "
            "partition.split = random, which deals whole segments"
        )
    pool, sides = split_subjects(dataset, settings, n, _rng(seed, Draw.POOL), _rng(seed, Draw.SPLITS))
    return _finish(dataset, settings, seed, pool, sides)
