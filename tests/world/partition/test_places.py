"""Regions lie together; blocks never part tiles that touch."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.world.data.datasets import load_dataset
from lntrust.world.graphs import haversine_km
from lntrust.world.partition.places import make_regions, spatial_blocks


def clusters(seed: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Tiles on rough 640 m grids around a few towns."""
    rng = np.random.default_rng(seed)
    towns = np.stack([rng.uniform(36, 65, 4), rng.uniform(-9, 30, 4)], axis=1)
    town = towns[rng.integers(4, size=count)]
    north, east = rng.integers(-15, 15, (2, count)) * 0.64
    latitude = town[:, 0] + north / 111.195
    return latitude, town[:, 1] + east / 111.195 / np.cos(np.radians(town[:, 0]))


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 5.0, 40.0]))
def test_touching_tiles_share_a_block(seed: int, block_km: float) -> None:
    latitude, longitude = clusters(seed)
    block = spatial_blocks(latitude, longitude, block_km)
    places = np.stack([latitude, longitude], axis=1)
    distance = haversine_km(places[:, None], places[None])
    assert (block[:, None] == block[None])[distance < 0.9499].all()
    assert sorted(set(block)) == list(range(block.max() + 1))


def test_tiles_in_one_cell_share_a_block_and_far_ones_do_not() -> None:
    latitude = np.array([50.001, 50.012, 50.001, 50.001])
    longitude = np.array([10.001, 10.012, 10.3, 20.0])
    block = spatial_blocks(latitude, longitude, 500.0)
    assert block[0] == block[1] == block[2]
    assert block[0] != block[3]
    fine = spatial_blocks(latitude, longitude, 0.1)
    assert len(set(fine)) == 4


def test_a_chain_of_tiles_is_one_block() -> None:
    latitude = 45 + np.arange(60) * 0.64 / 111.195
    assert len(set(spatial_blocks(latitude, np.full(60, 7.0), 5.0))) == 1
    apart = 45 + np.arange(60) * 1.5 / 111.195
    assert 17 <= len(set(spatial_blocks(apart, np.full(60, 7.0), 5.0))) <= 20


def test_regions_are_repeatable_and_centred() -> None:
    latitude, longitude = clusters(1)
    owner, centres = make_regions(latitude, longitude, 5)
    again, _ = make_regions(latitude, longitude, 5)
    np.testing.assert_array_equal(owner, again)
    assert set(owner) == set(range(5))
    for i in range(5):
        mine = owner == i
        np.testing.assert_allclose(centres[i], [latitude[mine].mean(), longitude[mine].mean()], atol=0.05)


def test_more_regions_than_places() -> None:
    with pytest.raises(LNTrustError, match=r"graph\.nodes = 3: .* 2 different places"):
        make_regions(np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 3)


@pytest.mark.skipif(not os.environ.get("LNTRUST_DATA"), reason="LNTRUST_DATA is not set")
def test_eurosat_blocks() -> None:
    data = load_dataset("eurosat")
    assert data.latitude is not None
    assert data.longitude is not None
    block = spatial_blocks(data.latitude, data.longitude, 5.0)
    assert len(set(block)) == pytest.approx(8_350, rel=0.02)
    assert np.bincount(block).max() < 400
