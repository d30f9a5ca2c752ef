"""Nobody's test example is in anybody's training set, and every list has the promised size."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust import load_study
from lntrust.core.errors import LNTrustError
from lntrust.study.settings import GraphSettings, PartitionSettings
from lntrust.world.data.datasets import Dataset, load_dataset
from lntrust.world.graphs import haversine_km, make_graph
from lntrust.world.partition.partition import Partition, make_partition
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


def dealt(
    data: Dataset, n: int, seed: int = 0, degrees: np.ndarray | None = None, **wanted: Any
) -> Partition:
    """A partition that keeps what all of them promise: all lists are there, and none shares an example with
    another, of the same node or of two."""
    chosen = PartitionSettings(**wanted)
    p = make_partition(data, chosen, np.arange(n) if degrees is None else degrees, seed)
    assert p.train.lengths.min() >= 1
    if chosen.split != "per_class_nearest":  # which may leave a node untested
        assert min(p.validation.lengths.min(), p.test.lengths.min()) >= 1
    for i, shard in enumerate(p.shard):
        assert len(shard) == (chosen.shard if len(p.pool) else 0)
        assert set(shard) <= set(p.pool)
        if chosen.pool_draws == "set_aside":
            assert len(set(shard)) == len(shard)
            assert not set(held(p, i)) & set(p.pool)
    ids = np.concatenate([held(p, i) for i in range(n)])
    if chosen.draws == "disjoint":
        assert len(set(ids)) == len(ids)
    return p


def held(p: Partition, i: int) -> np.ndarray:
    """All labelled examples of a node."""
    return np.concatenate([p.train[i], p.given_up[i], p.validation[i], p.test[i]])


def sizes(p: Partition) -> np.ndarray:
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
    kind=st.sampled_from(["dirichlet", "equal"]),
    all_held=st.booleans(),
)
def test_label_skew_disjoint(
    seed: int, n: int, classes: int, pool: int, minimum: int, kind: str, all_held: bool
) -> None:
    data, labelled = balanced(400, classes), 400 - pool if all_held else n * minimum + 20
    degrees = np.random.default_rng(seed).integers(0, 5, n)
    wanted = {"labelled": labelled, "pool": pool, "shard": pool // 2, "minimum": minimum, "sizes": kind}
    p = dealt(data, n, seed, degrees, **wanted)
    assert sizes(p).sum() == labelled
    assert sizes(p).min() >= minimum
    assert len(p.pool) == pool
    assert np.ptp(np.bincount(data.labels[p.pool], minlength=classes)) <= 1
    np.testing.assert_array_equal(p.favoured, np.arange(n) % classes)
    for i in range(n):
        assert p.favoured_share[i] == pytest.approx(np.mean(data.labels[held(p, i)] == i % classes))
    assert p.centres is None


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 12))
def test_fresh_validation_comes_for_labels_given_up(seed: int, n: int) -> None:
    data, some = balanced(800, 5), {"labelled": 300, "minimum": 25, "pool": 50, "shard": 9}
    withheld, p = (dealt(data, n, seed, validation=kind, **some) for kind in ("withheld", "fresh"))
    assert same(p.test, withheld.test)
    assert (p.train.lengths + p.given_up.lengths + p.test.lengths == sizes(withheld)).all()
    assert p.given_up.lengths.tolist() == p.validation.lengths.tolist()
    assert p.validation.lengths.tolist() == np.rint(0.2 * sizes(withheld)).tolist()


def test_fresh_validation_is_like_the_node() -> None:
    data = balanced(6000, 5)
    p = dealt(data, 5, labelled=2000, pool=500, shard=100, sizes="equal", validation="fresh")
    for i in range(5):
        own = np.bincount(data.labels[np.setdiff1d(held(p, i), p.validation[i])], minlength=5) / 400
        fresh = np.bincount(data.labels[p.validation[i]], minlength=5) / 80
        np.testing.assert_allclose(fresh, own, atol=0.03)


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 12))
def test_label_skew_overlapping(seed: int, n: int) -> None:
    some = {"labelled": n * 60, "sizes": "equal", "minimum": 10, "pool": 50, "shard": 9}
    p = dealt(balanced(300, 5), n, seed, draws="overlapping", **some)
    assert (sizes(p) == 60).all()
    assert all(len(set(held(p, i))) == 60 for i in range(n))


@settings(max_examples=40)
@given(
    seed=SEEDS,
    n=st.integers(1, 12),
    fractions=st.sampled_from([(0.15, 0.2), (0.5, 0.25), (0.5, 0.45), (0.3, 0.6)]),
    size=st.integers(3, 40),
)
def test_per_class_rounding_is_to_the_nearest_as_python_rounds(
    seed: int, n: int, fractions: tuple[float, float], size: int
) -> None:
    """So classes that a node has few of are not tested; a node always has something to train on."""
    data, (to_test, to_validation) = balanced(800, 10), fractions
    some = {"labelled": n * size, "minimum": 3, "pool": 100, "shard": 5, "sizes": "equal"}
    split = {"test_fraction": to_test, "val_fraction": to_validation, "split": "per_class_nearest"}
    p = dealt(data, n, seed, **some, **split)
    for i in range(n):
        train, validation, test = (
            np.bincount(data.labels[a[i]], minlength=10) for a in (p.train, p.validation, p.test)
        )
        count = (train + validation + test).tolist()
        wanted_test = [round(to_test * c) for c in count]
        wanted = [min(round(to_validation * c), c - t) for c, t in zip(count, wanted_test, strict=True)]
        taken_back = sum(wanted_test) + sum(wanted) == size  # nothing would be left to train on
        assert sum(wanted_test) - test.sum() + sum(wanted) - validation.sum() == taken_back
        assert train.sum() >= 1
        if not taken_back:
            assert (test.tolist(), validation.tolist()) == (wanted_test, wanted)


@settings(max_examples=30)
@given(seed=SEEDS, n=st.integers(1, 8), shard=st.integers(0, 250))
def test_an_overlapping_pool_has_what_nobody_trains_on_and_then_anything(
    seed: int, n: int, shard: int
) -> None:
    data = balanced(300, 5)
    some = {"labelled": n * 60, "sizes": "equal", "minimum": 10, "pool": 50, "draws": "overlapping"}
    p = dealt(data, n, seed, shard=shard, pool_draws="overlapping", **some)
    assert len(p.pool) == n * shard
    idle = set(range(300)) - set(p.train.values)
    first = p.pool[: len(idle)]
    assert set(first) <= idle
    assert len(set(first)) == len(first), "each once"
    if n * shard > 1200:  # 300 once and 900 drawn
        assert set(p.pool) & set(p.train.values), "anybody's"
        assert set(p.pool) & set(p.test.values)
    apart = dealt(data, n, seed, shard=0, **some | {"pool": 0})
    assert same(p.test, apart.test), "nothing is set aside: as if there were no pool"


def test_sizes_may_be_one_draw_for_all_seeds() -> None:
    data, some = balanced(2000, 5), {"labelled": 1000, "minimum": 20, "pool": 100, "shard": 9}
    one, other = (dealt(data, 12, seed, size_seed=0, **some) for seed in (0, 7))
    assert sizes(one).tolist() == sizes(other).tolist() == sizes(dealt(data, 12, 0, **some)).tolist()
    assert sizes(dealt(data, 12, 7, **some)).tolist() != sizes(one).tolist()
    assert not same(one.train, other.train)
    hubs = dealt(data, 12, 7, np.arange(12)[::-1].copy(), size_seed=0, **some)
    assert sizes(hubs).tolist() != sizes(one).tolist(), "degrees are the graph's"


def test_only_the_official_training_set_may_be_held() -> None:
    training = np.random.default_rng(1).random(600) < 0.8
    data = replace(balanced(600, 5), official_training=training)
    some = {"labelled": 300, "minimum": 10, "pool": 50, "shard": 20, "examples": "official_training"}
    for more in ({}, {"draws": "overlapping"}, {"validation": "fresh"}, {"pool_draws": "overlapping"}):
        p = dealt(data, 6, **some | more)
        used = np.concatenate([p.pool, *(held(p, i) for i in range(6))])
        assert training[used].all()


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 6), most=st.integers(20, 200))
def test_regions_at_random(seed: int, n: int, most: int) -> None:
    data = earth(seed % 50)
    p = dealt(data, n, seed, by="region", pool=60, shard=20, per_region=most)
    assert sizes(p).max() <= most
    assert (np.bincount(data.labels[p.pool]) == 15).all()
    assert p.centres is not None
    assert p.centres.shape == (n, 2)
    assert (p.favoured_share >= 1 / 4).all()


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 6), most=st.integers(20, 200), share=st.sampled_from([0.05, 0.2, 0.5]))
def test_fresh_validation_is_of_the_nodes_own_region(seed: int, n: int, most: int, share: float) -> None:
    data, some = earth(seed % 50), {"by": "region", "pool": 60, "shard": 20, "val_fraction": share}
    whole = dealt(data, n, seed, per_region=10**6, **some)
    p = dealt(data, n, seed, per_region=most, validation="fresh", **some)
    for i in range(n):
        assert set(held(p, i)) <= set(held(whole, i)), "of its region"
        allotted = len(p.train[i]) + len(p.given_up[i]) + len(p.test[i])
        assert allotted == min(most, int(len(held(whole, i)) / (1 + share)))
        assert len(p.validation[i]) == len(p.given_up[i]) == max(1, np.rint(share * allotted))


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 6), most=st.integers(20, 200), pool=st.integers(0, 120))
def test_regions_by_blocks(seed: int, n: int, most: int, pool: int) -> None:
    data, some = earth(seed % 50), {"pool": pool, "shard": min(pool, 20), "per_region": most}
    p = dealt(data, n, seed, by="region", split="blocks", block_km=2.0, **some)
    assert len(p.pool) == pool
    assert sizes(p).max() <= most
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
@given(seed=SEEDS, pool_fraction=st.sampled_from([0.0, 0.1, 0.3]))
def test_people_keep_segments_together(seed: int, pool_fraction: float) -> None:
    data = people(seed % 20)
    p = dealt(data, 6, seed, by="subject", pool_fraction=pool_fraction, shard=5)
    assert data.segment is not None
    assert data.subject is not None
    sides = [set(data.segment[ids]) for ids in (p.train.values, p.validation.values, p.test.values, p.pool)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == data.segment.max() + 1
    for i in range(6):
        mine = held(p, i)
        assert (data.subject[mine] == 10 + i).all()
        assert 0.15 * len(mine) <= len(p.test[i]) <= 0.15 * len(mine) + 9
        assert len(p.validation[i]) >= 0.2 * len(mine)
        segments, classes = len(set(data.segment[p.test[i]])), len(set(data.labels[mine]))
        assert len(set(data.labels[p.test[i]])) == min(segments, classes)  # dealt class by class


SKEW = {"labelled": 300, "minimum": 10, "pool": 100}
BLOCKS = {"split": "blocks", "block_km": 2.0, "per_region": 50}
KINDS: dict[str, tuple[Callable[[], Dataset], int, dict[str, Any]]] = {
    "skew": (lambda: balanced(500, 5), 8, SKEW),
    "overlapping": (lambda: balanced(500, 5), 8, {**SKEW, "draws": "overlapping"}),
    "region": (lambda: earth(0), 5, {"by": "region", "pool": 100}),
    "blocks": (lambda: earth(0), 5, {"by": "region", "pool": 100, **BLOCKS}),
    "subject": (lambda: people(0), 6, {"by": "subject", "pool_fraction": 0.3}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_and_streams(kind: str) -> None:
    """The same seed gives the same world; another shard size moves nothing but shards."""
    make, n, wanted = KINDS[kind]
    p, again, small = (dealt(make(), n, 7, shard=shard, **wanted) for shard in (20, 20, 11))
    for name in ("train", "validation", "test"):
        assert same(getattr(p, name), getattr(again, name))
        assert same(getattr(p, name), getattr(small, name))
    assert same(p.shard, again.shard)
    np.testing.assert_array_equal(p.pool, small.pool)
    other = dealt(make(), n, 8, shard=20, **wanted)
    assert not same(p.train, other.train)
    assert not same(p.shard, other.shard)


BASE = {"labelled": 400, "pool": 100, "shard": 10, "minimum": 5}
TOY, UNEVEN = balanced(600, 10), dataset(np.array([0] * 90 + [1] * 10), 2)
FEW, PEOPLE = {"labelled": 50, "pool": 40, "minimum": 3}, {"by": "subject"}
FRESH = {"validation": "fresh", "val_fraction": 0.5}
ONE_BLOCK = {"by": "region", "split": "blocks", "pool": 0, "block_km": 4000.0}


@pytest.mark.parametrize(
    ("data", "n", "wanted", "says"),
    [
        (TOY, 8, BASE | {"labelled": 500, "pool": 200}, "d = 500 .*pool = 200 need 700 .*; toy has 600"),
        (TOY, 8, BASE | {"minimum": 60}, "minimum = 60 for 8 nodes needs 480 labelled.*labelled = 400"),
        (TOY, 8, BASE | {"shard": 101}, r"partition\.shard = 101: the pool holds 100 examples"),
        (TOY, 8, BASE | FRESH, r"needs \d+ examples nobody holds; .* leaves 100"),
        (TOY, 8, BASE | {"draws": "overlapping", "labelled": 5000}, r"node \d needs \d+ .* there are 500"),
        (TOY, 8, BASE | {"examples": "official_training"}, r"toy has no official training set; use .* = all"),
        (TOY, 8, BASE | {"by": "region"}, r"partition\.by = region: toy has no coordinates"),
        (TOY, 8, BASE | {"by": "subject"}, r"partition\.by = subject: toy does not say whose"),
        (UNEVEN, 2, FEW, r"pool = 40 takes 20 of each of 2 classes; class 'c1' .* has 10"),
        (earth(0), 5, {"by": "region", "pool": 590}, r"pool = 590 and 3 .* need 605 examples; toy has 600"),
        (earth(0), 5, ONE_BLOCK, r"partition\.block_km = 4000\.0: region 0 has"),
        (people(0), 7, PEOPLE, r"graph\.nodes = 7: toy has 6 people.* set graph\.nodes = 6"),
        (replace(people(0), segment=people(0).subject), 6, PEOPLE, "person 0 of toy has 1 segments"),
        (replace(people(0), segment=people(0).labels), 6, PEOPLE, "a segment holds windows of two people"),
    ],
)
def test_refusals(data: Dataset, n: int, wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(LNTrustError, match=says):
        dealt(data, n, **wanted)


@real_data
def test_cifar10_as_published() -> None:
    data = load_dataset("cifar10")
    smallest, largest, share = [], [], []
    for seed in range(5):
        graph = make_graph(GraphSettings(density=0.1), seed)
        p = dealt(data, 50, seed, np.array([graph.degree[i] for i in range(50)]))
        assert (sizes(p).sum(), sizes(p).min()) == (50_000, 100)
        assert (np.bincount(data.labels[p.pool]) == 1000).all()
        smallest.append((sizes(p) == 100).sum())
        largest.append(sizes(p).max())
        share.append(p.favoured_share[np.argsort(-sizes(p))[:3]].mean())
    assert 24 <= np.mean(smallest) <= 34
    assert 5_000 <= np.mean(largest) <= 12_000
    assert 0.28 <= np.mean(share) <= 0.47


@real_data
@pytest.mark.parametrize(("name", "most_untested"), [("cifar10", 0), ("cifar100", 8)])
def test_cifar_as_the_authors_code_deals_it(name: str, most_untested: int) -> None:
    data = load_dataset(name)
    study = load_study(f"sparse-{name}", ["reading=paper"])
    degrees = np.array([make_graph(study.graph, 0).degree[i] for i in range(50)])
    p = make_partition(data, study.partition, degrees, 0)
    assert data.official_training is not None
    assert (np.bincount(data.labels[data.official_training]) == 50_000 // len(data.classes)).all()
    assert data.official_training[np.concatenate([p.pool, p.train.values, p.test.values])].all()
    assert (sizes(p).sum(), len(p.pool), p.shard.lengths.tolist()) == (50_000, 100_000, [2000] * 50)
    assert (p.test.lengths == 0).sum() <= most_untested, "rounded down it would be 20 and more of cifar100"


@real_data
@pytest.mark.parametrize("split", ["random", "blocks"])
def test_eurosat(split: str) -> None:
    p = dealt(load_dataset("eurosat"), 50, by="region", pool=5000, split=split)
    assert sizes(p).sum() == pytest.approx(21_900, rel=0.02)
    assert len(p.pool) == 5000


@real_data
def test_wearables() -> None:
    p = dealt(load_dataset("uci_har"), 30, by="subject", shard=300)
    assert sizes(p).sum() + len(p.pool) == 10_299
    assert len(p.pool) == pytest.approx(1030, rel=0.1)
