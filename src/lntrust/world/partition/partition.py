"""Whose data: every node's training, validation and test examples, and the unlabelled pool.

Each kind of draw has a generator of its own, so that changing, say, the shard size never moves a
split.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Rng, generator
from lntrust.study.settings import PartitionSettings
from lntrust.world.data.datasets import Dataset
from lntrust.world.partition import splits
from lntrust.world.partition.places import deal_blocks, keep_at_most, make_regions, spatial_blocks
from lntrust.world.partition.sizes import allocate, cap_counts, class_weights, fit_counts, proportional_fit
from lntrust.world.partition.subjects import split_subjects
from lntrust.world.ragged import Ragged

TINY = 1e-3  # mass of a class a node may hold but did not draw: it can grow if others run short


class Draw(IntEnum):
    """The kinds of draws; each is a stream of its own."""

    POOL, SIZES, CLASSES, IDS, SPLITS, SHARDS, FRESH = range(7)


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
    pool: Int[ndarray, "_"]  # what nobody holds; with pool_draws = overlapping, anybody's, some of them twice
    favoured: Int[ndarray, "n"]  # by label_skew: i mod C; else the most frequent class
    favoured_share: Float[ndarray, "n"]  # of that class in the node's whole labelled allocation
    centres: Float[ndarray, "n 2"] | None = None  # latitude and longitude, by region only
    # P_i, the class distribution that node i's examples were drawn from, where the study made it up
    # (by label_skew): the skew, fitted to sizes and supply, before the luck of the draw.
    drawn_from: Float[ndarray, "n C"] | None = None


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
    deal = {"label_skew": _by_label, "region": _by_region, "subject": _by_subject}[settings.by]
    return deal(_Dealing(dataset, settings, degrees, seed))


@dataclass(frozen=True)
class _Dealing:
    """What is dealt out to whom, and what all ways to do so have in common."""

    dataset: Dataset
    settings: PartitionSettings
    degrees: Int[ndarray, "n"]
    seed: int

    @property
    def n(self) -> int:
        return len(self.degrees)

    def rng(self, draw: Draw) -> Rng:
        fixed = self.settings.size_seed if draw == Draw.SIZES else None
        return generator(self.seed if fixed is None else fixed, "partition", draw)

    @cached_property
    def examples(self) -> Int[ndarray, "_"]:
        """All that may be held."""
        dataset = self.dataset
        if self.settings.examples == "all":
            return np.arange(len(dataset.labels))
        if dataset.official_training is None:
            what = f"{dataset.name} has no official training set; use partition.examples = all"
            raise LNTrustError(f"partition.examples = official_training: {what}")
        return np.flatnonzero(dataset.official_training)

    def supply(self, ids: Int[ndarray, "_"]) -> Int[ndarray, "C"]:
        """How many of these examples each class has."""
        return np.bincount(self.dataset.labels[ids], minlength=len(self.dataset.classes))

    def all_but(self, taken: Int[ndarray, "_"]) -> Int[ndarray, "_"]:
        free = np.zeros(len(self.dataset.labels), dtype=bool)
        free[self.examples] = True
        free[taken] = False
        return np.flatnonzero(free)

    def take(self, ids: Int[ndarray, "_"], counts: Int[ndarray, "n C"], draw: Draw | Rng) -> Ragged:
        rng = self.rng(draw) if isinstance(draw, Draw) else draw
        return splits.take_by_class(ids, self.dataset.labels, counts, rng)

    def balanced_pool(self) -> Int[ndarray, "_"]:
        """`pool` examples, equally many of each class; the first classes take the remainder."""
        dataset, pool = self.dataset, self.settings.pool
        each, remainder = divmod(pool, len(dataset.classes))
        counts = each + (np.arange(len(dataset.classes)) < remainder)
        have = self.supply(self.examples)
        for c in np.flatnonzero(counts > have):
            takes = f"{counts[c]} of each of {len(have)} classes"
            has = f"class {dataset.classes[c]!r} of {dataset.name} has {have[c]}"
            raise LNTrustError(f"partition.pool = {pool} takes {takes}; {has}")
        return self.take(self.examples, counts[None, :], Draw.POOL).values

    def overlapping_pool(self, train: Ragged) -> Int[ndarray, "_"]:
        """As the authors' code: what nobody trains on, each once, and then any examples until all shards
        together could be filled. Shards so hold anybody's examples, and now and then one twice."""
        wanted, rng, idle = self.n * self.settings.shard, self.rng(Draw.POOL), self.all_but(train.values)
        once = rng.permutation(idle)[:wanted]
        return np.concatenate([once, rng.choice(self.examples, wanted - len(once))])

    def partition(
        self, pool: Int[ndarray, "_"], sides: splits.Sides, given_up: Ragged | None = None, **known: Any
    ) -> Partition:
        """With shards and shares, and what else is known."""
        every = sides.train.joined(sides.validation if given_up is None else given_up).joined(sides.test)
        table = splits.class_table(every, self.dataset.labels, len(self.dataset.classes))
        favoured = known.pop("favoured", table.argmax(axis=1))
        return Partition(
            *sides,
            given_up=Ragged.empty(self.n) if given_up is None else given_up,
            shard=splits.draw_shards(pool, self.n, self.settings.shard, self.rng(Draw.SHARDS)),
            pool=pool,
            favoured=favoured,
            favoured_share=table[np.arange(self.n), favoured] / table.sum(axis=1),
            **known,
        )


def _by_label(dealing: _Dealing) -> Partition:
    dataset, settings, n, C = dealing.dataset, dealing.settings, dealing.n, len(dealing.dataset.classes)
    set_aside = settings.pool_draws == "set_aside"
    demand, there = settings.labelled + settings.pool * set_aside, len(dealing.examples)
    if settings.draws == "disjoint" and demand > there:
        raise LNTrustError(
            f"partition.labelled = {settings.labelled} and partition.pool = {settings.pool} need "
            f"{demand} examples; {dataset.name} has {there}"
        )
    pool = dealing.balanced_pool() if set_aside else np.zeros(0, dtype=np.int64)
    sizes = allocate(settings, dealing.degrees, dealing.rng(Draw.SIZES))
    allocation, drawn_from = _allocation(dealing, dealing.all_but(pool), sizes)
    sides, given_up = splits.split_nodes(allocation, dataset.labels, settings, dealing.rng(Draw.SPLITS)), None
    if settings.validation == "fresh":
        free = dealing.all_but(np.concatenate([pool, allocation.values]))
        sides, given_up = _fresh(dealing, sides, allocation, free)
    if not set_aside:
        pool = dealing.overlapping_pool(sides.train if given_up is None else sides.train.joined(given_up))
    return dealing.partition(pool, sides, given_up, favoured=np.arange(n) % C, drawn_from=drawn_from)


def _allocation(
    dealing: _Dealing, eligible: Int[ndarray, "_"], sizes: Int[ndarray, "n"]
) -> tuple[Ragged, Float[ndarray, "n C"]]:
    """The labelled examples of every node, test and withheld validation included; and P_i: the skew itself
    or, where nodes compete for examples, what supply leaves of it."""
    supply, rng = dealing.supply(eligible), dealing.rng(Draw.CLASSES)
    weights = class_weights(dealing.n, len(supply), dealing.settings.skew)
    counts = rng.multinomial(sizes, weights)
    if dealing.settings.draws == "overlapping":
        counts = cap_counts(counts, weights, supply, rng)
        return _draw_alone(eligible, dealing.dataset.labels, counts, dealing.rng(Draw.IDS)), weights
    counts = fit_counts(counts + TINY * weights, sizes, supply)
    fitted = proportional_fit(weights, sizes, supply)
    return dealing.take(eligible, counts, Draw.IDS), fitted / fitted.sum(axis=1, keepdims=True)


def _draw_alone(
    eligible: Int[ndarray, "_"], labels: Int[ndarray, "N"], counts: Int[ndarray, "n C"], rng: Rng
) -> Ragged:
    """Every node draws by itself, without repeats: different nodes may hold the same example."""
    by_class = eligible[np.argsort(labels[eligible], kind="stable")]
    supply = np.bincount(labels[eligible], minlength=counts.shape[1])
    first = np.cumsum(supply) - supply
    node, held = np.nonzero(counts)
    times = counts[node, held]
    cells = zip(supply[held].tolist(), times.tolist(), strict=True)
    drawn = [rng.choice(of, size=k, replace=False, shuffle=False) for of, k in cells]
    ids = by_class[np.repeat(first[held], times) + np.concatenate(drawn)]
    return splits.by_owner(ids, np.repeat(node, times), len(counts))


def _fresh(
    dealing: _Dealing, sides: splits.Sides, allocation: Ragged, free: Int[ndarray, "_"]
) -> tuple[splits.Sides, Ragged]:
    """Validation from examples nobody holds, and as many training examples to be given up.

    The withheld split has drawn the test sets; what it withheld goes back to training.
    """
    dataset, settings, rng = dealing.dataset, dealing.settings, dealing.rng(Draw.FRESH)
    rest = splits.shuffled(sides.train.joined(sides.validation), rng)
    wanted = splits.split_counts(allocation.lengths, settings.test_fraction, settings.val_fraction)[1]
    if wanted.sum() > len(free):
        raise LNTrustError(
            f"partition.validation = fresh with partition.val_fraction = {settings.val_fraction} "
            f"needs {wanted.sum()} examples nobody holds; {dataset.name} has {len(dataset.labels)}, less "
            f"{len(np.unique(allocation.values))} held (partition.labelled = {settings.labelled}) and "
            f"partition.pool = {settings.pool} leaves {len(free)}"
        )
    table = splits.class_table(allocation, dataset.labels, len(dataset.classes))
    weights = class_weights(dealing.n, len(dataset.classes), settings.skew)
    target = table * (wanted / allocation.lengths)[:, None] + TINY * weights
    validation = dealing.take(free, fit_counts(target, wanted, dealing.supply(free)), rng)
    given_up, train = splits.cut(rest, wanted)
    return splits.Sides(train, splits.shuffled(validation, rng), sides.test), given_up


def _by_region(dealing: _Dealing) -> Partition:
    dataset, settings, n = dealing.dataset, dealing.settings, dealing.n
    latitude, longitude, needed = dataset.latitude, dataset.longitude, settings.pool + 3 * n
    if latitude is None or longitude is None:
        what = "has no coordinates; use partition.by = label_skew"
        raise LNTrustError(f"partition.by = region: {dataset.name} {what}")
    if needed > len(dataset.labels):
        raise LNTrustError(
            f"partition.pool = {settings.pool} and 3 labelled examples in each of {n} regions need "
            f"{needed} examples; {dataset.name} has {len(dataset.labels)}"
        )
    owner, centres = make_regions(latitude, longitude, n)
    if settings.split == "blocks":
        block = spatial_blocks(latitude, longitude, settings.block_km)
        side = deal_blocks(block, owner, n, settings, dealing.rng(Draw.SPLITS))
        pooled = np.flatnonzero(side == splits.POOL)  # as balanced as its blocks allow
        counts = splits.level_counts(dealing.supply(pooled), settings.pool)[None, :]
        pool = dealing.take(pooled, counts, Draw.POOL).values
        sides = keep_at_most(side, owner, n, settings.per_region, dealing.rng(Draw.IDS))
        return dealing.partition(pool, sides, centres=centres)
    pool = dealing.balanced_pool()
    free = dealing.all_but(pool)
    mixed = splits.shuffled(splits.by_owner(free, owner[free], n), dealing.rng(Draw.IDS))
    most, fresh = np.full(n, settings.per_region), settings.validation == "fresh"
    if fresh:  # the region has its validation examples, too
        most = np.minimum(most, (mixed.lengths / (1 + settings.val_fraction)).astype(np.int64))
    kept, spare = splits.cut(mixed, most)
    for region in np.flatnonzero(kept.lengths < 3):
        raise LNTrustError(
            f"partition.pool = {settings.pool} leaves region {region} {kept.lengths[region]} "
            "labelled examples; at least 3 are needed: lower partition.pool or graph.nodes"
        )
    sides, given_up = splits.split_nodes(kept, dataset.labels, settings, dealing.rng(Draw.SPLITS)), None
    if fresh:
        wanted = splits.split_counts(kept.lengths, settings.test_fraction, settings.val_fraction)[1]
        rest = splits.shuffled(sides.train.joined(sides.validation), dealing.rng(Draw.FRESH))
        given_up, train = splits.cut(rest, wanted)
        sides = splits.Sides(train, splits.cut(spare, wanted)[0], sides.test)
    return dealing.partition(pool, sides, given_up, centres=centres)


def _by_subject(dealing: _Dealing) -> Partition:
    rngs = dealing.rng(Draw.POOL), dealing.rng(Draw.SPLITS)
    return dealing.partition(*split_subjects(dealing.dataset, dealing.settings, dealing.n, *rngs))
