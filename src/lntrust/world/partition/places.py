"""Examples with places on earth: regions by k-means, and spatial blocks that a strict split never parts."""

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Rng
from lntrust.study.settings import PartitionSettings
from lntrust.world.graphs import EARTH_KM
from lntrust.world.partition.sizes import largest_remainder
from lntrust.world.partition.splits import POOL, TEST, TRAIN, VALIDATION, Sides, cut, in_parts, shuffled

NAMES = {TEST: "test", VALIDATION: "validation", TRAIN: "training"}
TOUCHING_KM = 0.95  # tiles are 640 m wide: those that meet at a corner have centres 905 m apart


def make_regions(
    latitude: Float[ndarray, "N"], longitude: Float[ndarray, "N"], n: int
) -> tuple[Int[ndarray, "N"], Float[ndarray, "n 2"]]:
    """The region of each example by k-means, and the regions' centres as (latitude, longitude).

    One cosine for all gives a degree of longitude about its length. The same for every seed.
    """
    shrink = np.cos(np.radians(latitude.mean()))
    plane = np.stack([latitude, longitude * shrink], axis=1).astype(np.float64)
    distinct = len(np.unique(plane, axis=0))
    if n > distinct:
        what = "different places, so partition.by = region can make as many regions at most"
        raise LNTrustError(f"graph.nodes = {n}: the examples lie at {distinct} {what}")
    owner, centres = _clusters(plane.tobytes(), n)
    return owner, centres / np.array([1.0, shrink])


@lru_cache(maxsize=4)
def _clusters(plane: bytes, n: int) -> tuple[Int[ndarray, "N"], Float[ndarray, "n 2"]]:
    """Takes seconds, and is the same for every method and seed of a process: kept."""
    from sklearn.cluster import KMeans

    points = np.frombuffer(plane).reshape(-1, 2)
    clusters = KMeans(n_clusters=n, n_init=10, random_state=0).fit(points)
    return clusters.labels_.astype(np.int64), clusters.cluster_centers_.astype(np.float64)


def spatial_blocks(
    latitude: Float[ndarray, "N"], longitude: Float[ndarray, "N"], block_km: float
) -> Int[ndarray, "N"]:
    """The block of each tile: cells of about `block_km`, merged where tiles of two cells touch.

    Tiles that touch look alike, so they must not be parted between training and test.
    """
    cell = _cells(latitude, longitude, block_km)
    # In km from the earth's centre: short distances are straight there.
    phi, theta = np.radians(latitude), np.radians(longitude)
    unit = np.stack([np.cos(phi) * np.cos(theta), np.cos(phi) * np.sin(theta), np.sin(phi)], axis=1)
    pairs = cKDTree(EARTH_KM * unit).query_pairs(TOUCHING_KM, output_type="ndarray")
    a, b = cell[pairs[:, 0]], cell[pairs[:, 1]]
    count = int(cell.max()) + 1
    contact = coo_array((np.ones(len(a), dtype=np.int8), (a, b)), shape=(count, count))
    block = connected_components(contact, directed=False)[1]
    return np.asarray(block[cell], dtype=np.int64)


def _cells(
    latitude: Float[ndarray, "N"], longitude: Float[ndarray, "N"], side_km: float
) -> Int[ndarray, "N"]:
    """Numbers of the cells of a grid: rows of latitude, each cut into columns of one length."""
    degree_km = np.pi * EARTH_KM / 180
    row = np.floor(latitude * degree_km / side_km)
    row_latitude = np.radians((row + 0.5) * side_km / degree_km)
    column = np.floor(longitude * degree_km * np.cos(row_latitude) / side_km)
    return np.unique(np.stack([row, column], axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def deal_blocks(
    block: Int[ndarray, "N"], owner: Int[ndarray, "N"], n: int, settings: PartitionSettings, rng: Rng
) -> Int[ndarray, "N"]:
    """The side of every tile. A block is wholly on one side, and every region has all but the pool.

    Blocks in random order make up the pool until it is full, then test and validation up to their
    shares of the tiles that remain; the rest is for training.
    """
    order = rng.permutation(block.max() + 1)
    size = np.bincount(block)[order]
    end = np.cumsum(size)
    in_pool = end - size < settings.pool
    pool_end = int(size[in_pool].sum())
    rest = len(block) - pool_end
    test_end = pool_end + settings.test_fraction * rest
    bounds = [test_end, test_end + settings.val_fraction * rest]
    side = np.empty(len(size), dtype=np.int64)
    side[order] = TEST + np.searchsorted(bounds, end - size / 2, side="right")
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


def keep_at_most(side: Int[ndarray, "N"], owner: Int[ndarray, "N"], n: int, most: int, rng: Rng) -> Sides:
    """At most `most` labelled tiles of each region, cut in proportion over its three sides."""
    _, *lists = in_parts(np.arange(len(side)), owner, side, n, 4)
    sizes = np.stack([each.lengths for each in lists], axis=1)
    kept = np.stack([_in_proportion(row, most) for row in sizes])
    test, validation, train = (cut(shuffled(each, rng), kept[:, k])[0] for k, each in enumerate(lists))
    return Sides(train, validation, test)


def _in_proportion(sizes: Int[ndarray, "3"], most: int) -> Int[ndarray, "3"]:
    """Sizes scaled down to a sum of `most`, none of them to nothing."""
    if sizes.sum() <= most:
        return sizes
    kept = np.maximum(largest_remainder(sizes * (most / int(sizes.sum())), most), 1)
    kept[kept.argmax()] -= kept.sum() - most
    return np.asarray(kept)
