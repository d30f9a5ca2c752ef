"""Regions and spatial blocks: where on earth examples lie, and which of them are neighbours."""

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from lntrust.core.errors import LNTrustError
from lntrust.world.graphs import EARTH_KM

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
        raise LNTrustError(
            f"graph.nodes = {n}: the examples lie at {distinct} different places, so partition.by "
            f"= region can make {distinct} regions at most"
        )
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
    pairs = cKDTree(_on_sphere(latitude, longitude)).query_pairs(TOUCHING_KM, output_type="ndarray")
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


def _on_sphere(latitude: Float[ndarray, "N"], longitude: Float[ndarray, "N"]) -> Float[ndarray, "N 3"]:
    """Coordinates in km from the earth's centre: short distances are straight there."""
    phi, theta = np.radians(latitude), np.radians(longitude)
    unit = np.stack([np.cos(phi) * np.cos(theta), np.cos(phi) * np.sin(theta), np.sin(phi)], axis=1)
    return np.asarray(EARTH_KM * unit)
