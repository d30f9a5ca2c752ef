"""The strict split of places: spatial blocks go wholly to one side, in every region at once."""

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.study.settings import PartitionSettings
from lntrust.world.partition.sizes import largest_remainder
from lntrust.world.partition.splits import Sides, by_owner, cut, shuffled
from lntrust.world.ragged import Ragged

POOL, TEST, VALIDATION, TRAIN = range(4)
NAMES = {TEST: "test", VALIDATION: "validation", TRAIN: "training"}


def deal_blocks(
    block: Int[ndarray, "N"],
    owner: Int[ndarray, "N"],
    n: int,
    settings: PartitionSettings,
    rng: np.random.Generator,
) -> Int[ndarray, "N"]:
    """The side of every tile. A block is wholly on one side, and every region has all but the pool.

    Blocks in random order make up the pool until it is full, then test and validation up to their
    shares of the tiles that remain; the rest is for training.
    """
    size = np.bincount(block)
    order = rng.permutation(len(size))
    end = np.cumsum(size[order])
    in_pool = end - size[order] < settings.pool
    pool_end = int(end[in_pool][-1]) if in_pool.any() else 0
    rest = len(block) - pool_end
    test_end = pool_end + settings.test_fraction * rest
    bounds = [test_end, test_end + settings.val_fraction * rest]
    side = np.empty(len(size), dtype=np.int64)
    side[order] = TEST + np.searchsorted(bounds, end - size[order] / 2, side="right")
    side[order[in_pool]] = POOL
    _mend(side, block, owner, n, settings)
    return np.asarray(side[block])


def _mend(
    side: Int[ndarray, "blocks"],
    block: Int[ndarray, "N"],
    owner: Int[ndarray, "N"],
    n: int,
    settings: PartitionSettings,
) -> None:
    """Move a block to each side that a region lacks, in place.

    It comes from the region's most numerous side that can spare one: a block may straddle regions,
    and none of them may lose its last tile of a side. So a move never undoes another.
    """
    part, tiles = np.unique(np.stack([block, owner], axis=1), axis=0, return_counts=True)
    of_block, region = part[:, 0], part[:, 1]
    held = np.zeros((n, 4), dtype=np.int64)
    np.add.at(held, (region, side[of_block]), tiles)
    share = {TEST: settings.test_fraction, VALIDATION: settings.val_fraction}
    share[TRAIN] = 1 - sum(share.values())
    for r, lacking in np.argwhere(held[:, TEST:] == 0) + np.array([0, TEST]):
        if held[r, lacking] > 0:  # a block moved for a neighbouring region brought it
            continue
        wanted = share[lacking] * held[r, TEST:].sum()
        own = np.flatnonzero((region == r) & (side[of_block] != POOL))
        donor = side[of_block[own]]
        order = np.lexsort((of_block[own], np.abs(tiles[own] - wanted), donor, -held[r, donor]))
        for b in of_block[own[order]]:
            parts = np.flatnonzero(of_block == b)
            if (held[region[parts], side[b]] > tiles[parts]).all():
                held[region[parts], side[b]] -= tiles[parts]
                held[region[parts], lacking] += tiles[parts]
                side[b] = lacking
                break
        else:
            raise LNTrustError(
                f"partition.block_km = {settings.block_km}: region {r} has {len(own)} labelled "
                f"blocks and cannot spare one for {NAMES[int(lacking)]}; lower partition.block_km, "
                "graph.nodes or partition.pool"
            )


def keep_at_most(
    side: Int[ndarray, "N"],
    owner: Int[ndarray, "N"],
    n: int,
    most: int,
    rng: np.random.Generator,
) -> Sides:
    """At most `most` labelled tiles of each region, cut in proportion over its three sides."""
    ids = np.arange(len(side))
    lists = {s: by_owner(ids[side == s], owner[side == s], n) for s in NAMES}
    sizes = np.stack([lists[s].lengths for s in NAMES], axis=1)
    kept = np.stack([_in_proportion(row, most) for row in sizes])
    pieces: list[Ragged] = [cut(shuffled(lists[s], rng), kept[:, k])[0] for k, s in enumerate(NAMES)]
    return Sides(test=pieces[0], validation=pieces[1], train=pieces[2])


def _in_proportion(sizes: Int[ndarray, "3"], most: int) -> Int[ndarray, "3"]:
    """Sizes scaled down to a sum of `most`, none of them to nothing."""
    total = int(sizes.sum())
    if total <= most:
        return sizes
    kept = np.maximum(largest_remainder(sizes * (most / total), most), 1)
    kept[kept.argmax()] -= kept.sum() - most
    return np.asarray(kept)
