"""One person, one node, and no segment on two sides."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.study.settings import PartitionSettings
from lntrust.world.data.datasets import Dataset, load_dataset
from lntrust.world.partition.partition import Partition, make_partition


def people(seed: int, n: int = 6, classes: int = 4) -> Dataset:
    """Each person has 3 to 5 segments of every class, of 2 to 9 windows."""
    rng = np.random.default_rng(seed)
    rows = []
    for person in range(n):
        for c in range(classes):
            rows += [(10 + person, c)] * int(rng.integers(3, 6))
    order = rng.permutation(len(rows))
    segment = np.repeat(np.arange(len(rows)), rng.integers(2, 10, len(rows)))
    table = np.array(rows)[order][segment]
    return Dataset(
        "toy",
        labels=table[:, 1],
        classes=tuple(f"c{c}" for c in range(classes)),
        input_shape=(1,),
        input_dtype="uint8",
        views={},
        subject=table[:, 0],
        segment=segment,
    )


def check_sides(p: Partition) -> None:
    """No window is in two lists, and every node can train, validate and be tested."""
    ids = np.concatenate([p.train.values, p.validation.values, p.test.values, p.pool])
    assert len(np.unique(ids)) == len(ids)
    assert min(p.train.lengths.min(), p.validation.lengths.min(), p.test.lengths.min()) >= 1


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), pool_fraction=st.sampled_from([0.0, 0.1, 0.3]))
def test_people_keep_segments_together(seed: int, pool_fraction: float) -> None:
    data = people(seed % 20)
    wanted = PartitionSettings(by="subject", pool_fraction=pool_fraction, shard=5)
    p = make_partition(data, wanted, np.zeros(6, int), seed)
    check_sides(p)
    assert (p.shard.lengths == (5 if pool_fraction else 0)).all()
    assert data.segment is not None
    assert data.subject is not None
    sides = [set(data.segment[ids]) for ids in (p.train.values, p.validation.values, p.test.values, p.pool)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == data.segment.max() + 1
    for i in range(6):
        mine = np.concatenate([p.train[i], p.validation[i], p.test[i]])
        assert (data.subject[mine] == 10 + i).all()
        assert len(p.test[i]) >= 0.15 * len(mine)
        assert len(p.test[i]) <= 0.15 * len(mine) + 9
        assert len(p.validation[i]) >= 0.2 * len(mine)
        segments, classes = len(set(data.segment[p.test[i]])), len(set(data.labels[mine]))
        assert len(set(data.labels[p.test[i]])) == min(segments, classes)  # dealt class by class


def test_seeds_and_streams() -> None:
    """Another shard size moves nothing but shards; another seed moves everything."""
    p, small, other = (
        make_partition(people(0), PartitionSettings(by="subject", shard=shard), np.zeros(6, int), seed)
        for shard, seed in [(20, 7), (11, 7), (20, 8)]
    )
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(p, name).values, getattr(small, name).values)
        assert not np.array_equal(getattr(p, name).values, getattr(other, name).values)
    np.testing.assert_array_equal(p.pool, small.pool)
    for ids in p.shard:
        assert len(set(ids)) == 20
        assert set(ids) <= set(p.pool)


def test_refusals() -> None:
    with pytest.raises(LNTrustError, match=r"graph\.nodes = 7: toy has 6 people.* set graph\.nodes = 6"):
        make_partition(people(0), PartitionSettings(by="subject"), np.zeros(7, int), 0)
    one_segment = replace(people(0), segment=people(0).subject)
    with pytest.raises(LNTrustError, match="person 0 of toy has 1 segments"):
        make_partition(one_segment, PartitionSettings(by="subject"), np.zeros(6, int), 0)
    shared = replace(people(0), segment=people(0).labels)
    with pytest.raises(LNTrustError, match="a segment holds windows of two people"):
        make_partition(shared, PartitionSettings(by="subject"), np.zeros(6, int), 0)
    rounded = PartitionSettings(by="subject", split="per_class_rounded")
    with pytest.raises(LNTrustError, match=r"partition\.split = per_class_rounded parts segments"):
        make_partition(people(0), rounded, np.zeros(6, int), 0)


@pytest.mark.skipif(not os.environ.get("LNTRUST_DATA"), reason="LNTRUST_DATA is not set")
def test_wearables() -> None:
    data = load_dataset("uci_har")
    p = make_partition(data, PartitionSettings(by="subject", shard=300), np.zeros(30, int), 0)
    check_sides(p)
    assert sum(len(a.values) for a in (p.train, p.validation, p.test)) + len(p.pool) == 10_299
    assert len(p.pool) == pytest.approx(1030, rel=0.1)
