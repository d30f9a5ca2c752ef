"""Regions lie together; blocks never part tiles that touch."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.study.settings import PartitionSettings
from lntrust.world.data.datasets import load_dataset
from lntrust.world.partition.places import deal_blocks, make_regions, spatial_blocks
from lntrust.world.partition.splits import POOL


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
    rng = np.random.default_rng(1)
    towns = rng.uniform([36, -9], [65, 30], (4, 2))[rng.integers(4, size=300)]
    latitude, longitude = (towns + rng.normal(0, 0.05, towns.shape)).T
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


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), blocks=st.integers(3, 30))
def test_blocks_that_straddle_regions(seed: int, n: int, blocks: int) -> None:
    """Few blocks for many regions, so that most deals have to be mended or refused."""
    rng = np.random.default_rng(seed)
    block = np.concatenate([np.arange(blocks), rng.integers(0, blocks, 60)])
    owner = (block * n // blocks + (rng.random(len(block)) < 0.2)) % n
    wanted = PartitionSettings(by="region", split="blocks", pool=5)
    try:
        side = deal_blocks(block, owner, n, wanted, rng)
    except LNTrustError as error:
        assert "partition.block_km = 5.0: region" in str(error)  # noqa: PT017
        return
    assert len(set(zip(block.tolist(), side.tolist(), strict=True))) == blocks
    assert (side == POOL).sum() >= 5
    for region in range(n):
        assert set(side[owner == region]) >= {1, 2, 3}
