"""Nobody's test example is in anybody's training set, and every list has the promised size."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.study.settings import GraphSettings, PartitionSettings
from lntrust.world.data.datasets import Dataset, load_dataset
from lntrust.world.graphs import haversine_km, make_graph
from lntrust.world.partition.partition import Partition, make_partition
from lntrust.world.partition.splits import split_counts
from lntrust.world.ragged import Ragged

real_data = pytest.mark.skipif(not os.environ.get("LNTRUST_DATA"), reason="LNTRUST_DATA is not set")
SEEDS = st.integers(0, 10**6)


def dataset(labels: np.ndarray, classes: int, **more: Any) -> Dataset:
    names = tuple(f"c{c}" for c in range(classes))
    return Dataset("toy", labels, names, (1,), "uint8", views={}, **more)


def balanced(count: int, classes: int) -> Dataset:
    return dataset(np.random.default_rng(0).permutation(np.arange(count) % classes), classes)


def earth(seed: int, count: int = 600, classes: int = 4) -> Dataset:
    """Tiles strewn over five towns, many of them touching; neighbours tend to share a class."""
    rng = np.random.default_rng(seed)
    towns = np.stack([rng.uniform(40, 60, 5), np.linspace(-8, 30, 5)], axis=1)
    town = rng.integers(5, size=count)
    north, east = rng.integers(-40, 40, (2, count)) * 0.64
    latitude = towns[town, 0] + north / 111.195
    longitude = towns[town, 1] + east / 111.195 / np.cos(np.radians(towns[town, 0]))
    labels = (town + rng.integers(0, 3, count)) % classes
    return dataset(labels, classes, latitude=latitude, longitude=longitude)


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
    return dataset(table[:, 1], classes, subject=table[:, 0], segment=segment)


def all_ids(lists: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(a) for a in lists])


def check_disjoint(p: Partition) -> None:
    """No example is in two lists, of one node or of two, or in the pool."""
    ids = all_ids([p.train.values, p.validation.values, p.test.values, p.given_up.values, p.pool])
    assert len(np.unique(ids)) == len(ids)


def check_shards(p: Partition, shard: int) -> None:
    for ids in p.shard:
        assert len(ids) == len(set(ids)) == shard
        assert set(ids) <= set(p.pool)


def check_complete(p: Partition) -> None:
    """Every node can train, validate and be tested."""
    assert min(p.train.lengths.min(), p.validation.lengths.min(), p.test.lengths.min()) >= 1


def held(p: Partition) -> np.ndarray:
    return p.train.lengths + p.validation.lengths + p.test.lengths


def same(a: Ragged, b: Ragged) -> bool:
    return np.array_equal(a.values, b.values) and np.array_equal(a.offsets, b.offsets)


@settings(max_examples=60)
@given(
    seed=SEEDS,
    n=st.integers(1, 12),
    classes=st.integers(2, 6),
    pool=st.integers(0, 60),
    minimum=st.integers(3, 15),
    sizes=st.sampled_from(["dirichlet", "equal"]),
    all_held=st.booleans(),
)
def test_label_skew_disjoint(
    seed: int, n: int, classes: int, pool: int, minimum: int, sizes: str, all_held: bool
) -> None:
    data = balanced(400, classes)
    labelled = 400 - pool if all_held else n * minimum + 20
    wanted = PartitionSettings(labelled=labelled, pool=pool, shard=pool // 2, minimum=minimum, sizes=sizes)
    degrees = np.random.default_rng(seed).integers(0, 5, n)
    p = make_partition(data, wanted, degrees, seed)
    check_disjoint(p)
    check_complete(p)
    check_shards(p, pool // 2)
    assert held(p).sum() == labelled
    assert held(p).min() >= minimum
    if all_held:
        everyone = all_ids([p.train.values, p.validation.values, p.test.values, p.pool])
        assert sorted(everyone) == list(range(400))
    assert len(p.pool) == pool
    assert np.ptp(np.bincount(data.labels[p.pool], minlength=classes)) <= 1
    np.testing.assert_array_equal(p.favoured, np.arange(n) % classes)
    for i in range(n):
        labels = data.labels[all_ids([p.train[i], p.validation[i], p.test[i]])]
        assert p.favoured_share[i] == pytest.approx(np.mean(labels == i % classes))
    assert p.centres is None
    assert len(p.given_up.values) == 0


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 12), few=st.none() | st.integers(2, 5))
def test_label_skew_overlapping(seed: int, n: int, few: int | None) -> None:
    data = balanced(300, 5)
    own = PartitionSettings(draws="overlapping", labelled=n * 60, sizes="equal", classes_per_node=few)
    wanted = own.model_copy(update={"minimum": 10, "pool": 50, "shard": 9})
    p = make_partition(data, wanted, np.ones(n, int), seed)
    check_complete(p)
    check_shards(p, 9)
    assert (held(p) == 60).all()
    for i in range(n):
        mine = all_ids([p.train[i], p.validation[i], p.test[i]])
        assert len(set(mine)) == len(mine)
        assert not set(mine) & set(p.pool)
        assert {(int(c) - i) % 5 for c in data.labels[mine]} <= set(range(few or 5))


@settings(max_examples=40)
@given(
    seed=SEEDS,
    n=st.integers(1, 8),
    split=st.sampled_from(["random", "per_class_rounded"]),
    val=st.sampled_from([0.05, 0.2, 0.5]),
)
def test_fresh_validation(seed: int, n: int, split: str, val: float) -> None:
    data = balanced(600, 5)
    some = {"labelled": 300, "minimum": 10, "pool": 50, "shard": 9, "split": split, "val_fraction": val}
    wanted = PartitionSettings(validation="fresh", **some)
    p = make_partition(data, wanted, np.ones(n, int), seed)
    check_disjoint(p)
    allocation = p.train.lengths + p.given_up.lengths + p.test.lengths
    assert allocation.sum() == 300
    np.testing.assert_array_equal(p.given_up.lengths, p.validation.lengths)
    np.testing.assert_array_equal(p.validation.lengths, split_counts(allocation, 0.15, val)[1])
    assert p.train.lengths.min() >= 1
    withheld = make_partition(data, PartitionSettings(**some), np.ones(n, int), seed)
    assert same(p.test, withheld.test)


def test_fresh_validation_is_like_the_node() -> None:
    data = balanced(6000, 5)
    wanted = PartitionSettings(validation="fresh", labelled=2000, pool=500, shard=100, sizes="equal")
    p = make_partition(data, wanted, np.ones(5, int), 0)
    for i in range(5):
        own = np.bincount(data.labels[all_ids([p.train[i], p.given_up[i], p.test[i]])], minlength=5) / 400
        fresh = np.bincount(data.labels[p.validation[i]], minlength=5) / 80
        np.testing.assert_allclose(fresh, own, atol=0.03)


@settings(max_examples=40)
@given(seed=SEEDS, few=st.integers(1, 4))
def test_few_classes_per_node(seed: int, few: int) -> None:
    data = balanced(800, 8)
    wanted = PartitionSettings(
        classes_per_node=few, labelled=640, pool=80, shard=0, minimum=20, sizes="equal"
    )
    p = make_partition(data, wanted, np.ones(16, int), seed)
    assert (held(p) == 40).all()
    for i in range(16):
        classes = data.labels[all_ids([p.train[i], p.validation[i], p.test[i]])]
        assert {(int(c) - i) % 8 for c in classes} <= set(range(few))


def test_per_class_rounding_never_tests_rare_classes() -> None:
    data = balanced(3000, 10)
    wanted = PartitionSettings(
        split="per_class_rounded", labelled=2000, pool=500, shard=50, sizes="equal", minimum=50
    )
    p = make_partition(data, wanted, np.ones(40, int), 0)
    check_disjoint(p)
    for i in range(40):
        lists = [data.labels[a[i]] for a in (p.train, p.validation, p.test)]
        count = np.bincount(np.concatenate(lists), minlength=10)
        np.testing.assert_array_equal(np.bincount(lists[2], minlength=10), np.floor(0.15 * count + 1e-9))
        np.testing.assert_array_equal(np.bincount(lists[1], minlength=10), np.floor(0.2 * count + 1e-9))


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 6), most=st.integers(20, 200))
def test_regions_at_random(seed: int, n: int, most: int) -> None:
    data = earth(seed % 50)
    wanted = PartitionSettings(by="region", pool=60, shard=20, per_region=most)
    p = make_partition(data, wanted, np.zeros(n, int), seed)
    check_disjoint(p)
    check_complete(p)
    check_shards(p, 20)
    assert held(p).max() <= most
    assert (np.bincount(data.labels[p.pool]) == 15).all()
    assert p.centres is not None
    assert p.centres.shape == (n, 2)
    assert (p.favoured_share >= 1 / 4).all()


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 6), most=st.integers(20, 200), pool=st.integers(0, 120))
def test_regions_by_blocks(seed: int, n: int, most: int, pool: int) -> None:
    data = earth(seed % 50)
    wanted = PartitionSettings(
        by="region", split="blocks", pool=pool, shard=min(pool, 20), per_region=most, block_km=2.0
    )
    p = make_partition(data, wanted, np.zeros(n, int), seed)
    check_disjoint(p)
    check_complete(p)
    assert len(p.pool) == pool
    assert held(p).max() <= most
    side = np.full(len(data.labels), -1)
    for k, ids in enumerate([p.train.values, p.validation.values, p.test.values, p.pool]):
        side[ids] = k
    used = np.flatnonzero(side >= 0)
    assert data.latitude is not None
    assert data.longitude is not None
    places = np.stack([data.latitude, data.longitude], axis=1)[used]
    touching = haversine_km(places[:, None], places[None]) < 0.9499
    assert (side[used][:, None] == side[used][None])[touching].all()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), pool_fraction=st.sampled_from([0.0, 0.1, 0.3]))
def test_people_keep_segments_together(seed: int, pool_fraction: float) -> None:
    data = people(seed % 20)
    wanted = PartitionSettings(by="subject", pool_fraction=pool_fraction, shard=5)
    p = make_partition(data, wanted, np.zeros(6, int), seed)
    check_disjoint(p)
    check_complete(p)
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


SKEW = {"labelled": 300, "minimum": 10, "pool": 100}
BLOCKS = {"split": "blocks", "block_km": 2.0, "per_region": 50}
KINDS: dict[str, tuple[Callable[[], Dataset], int, dict[str, Any]]] = {
    "skew": (lambda: balanced(500, 5), 8, SKEW),
    "overlapping": (lambda: balanced(500, 5), 8, {**SKEW, "draws": "overlapping"}),
    "fresh": (lambda: balanced(500, 5), 8, {**SKEW, "validation": "fresh"}),
    "region": (lambda: earth(0), 5, {"by": "region", "pool": 100}),
    "blocks": (lambda: earth(0), 5, {"by": "region", "pool": 100, **BLOCKS}),
    "subject": (lambda: people(0), 6, {"by": "subject", "pool_fraction": 0.3}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_and_streams(kind: str) -> None:
    """The same seed gives the same world; another shard size moves nothing but shards."""
    make, n, wanted = KINDS[kind]
    data, degrees = make(), np.arange(n)
    p, again, small = (
        make_partition(data, PartitionSettings(**wanted, shard=shard), degrees, 7) for shard in (20, 20, 11)
    )
    for name in ("train", "validation", "test", "given_up"):
        assert same(getattr(p, name), getattr(again, name))
        assert same(getattr(p, name), getattr(small, name))
    assert same(p.shard, again.shard)
    np.testing.assert_array_equal(p.pool, small.pool)
    other = make_partition(data, PartitionSettings(**wanted, shard=20), degrees, 8)
    assert not same(p.train, other.train)
    assert not same(p.shard, other.shard)


BASE = {"labelled": 400, "pool": 100, "shard": 10, "minimum": 5}
REFUSED = [
    (
        {"labelled": 500, "pool": 200},
        r"labelled = 500 and partition.pool = 200 need 700 examples; toy has 600",
    ),
    ({"classes_per_node": 12}, r"partition.classes_per_node = 12: toy has 10 classes"),
    ({"minimum": 60}, r"partition.minimum = 60 for 8 nodes needs 480 labelled.*labelled = 400"),
    ({"shard": 101}, r"partition.shard = 101: the pool holds 100 examples"),
    (
        {"validation": "fresh", "val_fraction": 0.5},
        r"needs 198 examples nobody holds; toy has 600, less 400 held .* leaves 100",
    ),
    ({"by": "region"}, r"partition.by = region: toy has no coordinates"),
    ({"by": "subject"}, r"partition.by = subject: toy does not say whose"),
    ({"classes_per_node": 1}, r"may hold only .*they need \d+ examples; those classes have \d+"),
    (
        {"draws": "overlapping", "labelled": 4000},
        r"node \d needs \d+ examples of its classes, which have 500",
    ),
]


@pytest.mark.parametrize(("wanted", "says"), REFUSED)
def test_refusals(wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(LNTrustError, match=says):
        make_partition(balanced(600, 10), PartitionSettings(**(BASE | wanted)), np.arange(8), 0)


def test_refusals_of_other_data() -> None:
    uneven = dataset(np.array([0] * 90 + [1] * 10), 2)
    with pytest.raises(LNTrustError, match=r"pool = 40 takes 20 of each of 2 classes; class 'c1' .* has 10"):
        make_partition(uneven, PartitionSettings(labelled=50, pool=40, minimum=3), np.ones(2, int), 0)
    with pytest.raises(LNTrustError, match=r"partition\.pool = 590 and 3 .* need 605 examples; toy has 600"):
        make_partition(earth(0), PartitionSettings(by="region", pool=590), np.zeros(5, int), 0)
    wanted = PartitionSettings(by="region", split="blocks", pool=0, block_km=4000.0)
    with pytest.raises(LNTrustError, match=r"partition\.block_km = 4000\.0: region 0 has"):
        make_partition(earth(0), wanted, np.zeros(5, int), 0)


def test_refusals_of_people() -> None:
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


def degrees_of(wanted: GraphSettings, seed: int) -> np.ndarray:
    graph = make_graph(wanted, seed)
    return np.array([graph.degree[i] for i in range(wanted.nodes)])


@real_data
def test_cifar10_as_published() -> None:
    data = load_dataset("cifar10")
    smallest, largest, share = [], [], []
    for seed in range(5):
        p = make_partition(data, PartitionSettings(), degrees_of(GraphSettings(density=0.1), seed), seed)
        check_disjoint(p)
        check_complete(p)
        sizes = held(p)
        assert sizes.sum() == 50_000
        assert sizes.min() == 100
        assert (np.bincount(data.labels[p.pool]) == 1000).all()
        smallest.append((sizes == 100).sum())
        largest.append(sizes.max())
        share.append(p.favoured_share[np.argsort(-sizes)[:3]].mean())
    assert 24 <= np.mean(smallest) <= 34
    assert 5_000 <= np.mean(largest) <= 12_000
    assert 0.28 <= np.mean(share) <= 0.47


@real_data
@pytest.mark.parametrize("split", ["random", "blocks"])
def test_eurosat(split: str) -> None:
    data = load_dataset("eurosat")
    wanted = PartitionSettings(by="region", pool=5000, split=split)
    p = make_partition(data, wanted, np.zeros(50, int), 0)
    check_disjoint(p)
    check_complete(p)
    assert held(p).sum() == pytest.approx(21_900, rel=0.02)
    assert len(p.pool) == 5000
    graph = make_graph(GraphSettings(kind="geographic", seed=0), 3, positions=p.centres)
    assert graph.number_of_edges() == 97


@real_data
def test_wearables() -> None:
    data = load_dataset("uci_har")
    p = make_partition(data, PartitionSettings(by="subject", shard=300), np.zeros(30, int), 0)
    check_disjoint(p)
    check_complete(p)
    assert held(p).sum() + len(p.pool) == 10_299
    assert len(p.pool) == pytest.approx(1030, rel=0.1)
