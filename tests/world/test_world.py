"""The world put together: kinds of learners, who trains on what, which labels anyone may see."""

from typing import Any

import numpy as np
import pytest

from lntrust import LNTrustError, load_study
from lntrust.study.settings import LearnerSettings, PopulationSettings
from lntrust.world import Ragged, World, build_world, load_dataset
from lntrust.world.world import SealedLabels, assign_kinds

DIGITS = load_dataset("digits")


def population(assign: str, *shares: float | None) -> PopulationSettings:
    learners = [
        LearnerSettings(name=f"l{k}", kind="linear", view="pixels", share=share)
        for k, share in enumerate(shares)
    ]
    return PopulationSettings(assign=assign, learners=learners)  # type: ignore[arg-type]


class TestKinds:
    @pytest.mark.parametrize(("n", "hubs"), [(50, 5), (14, 1), (16, 2), (4, 0), (1, 0)])
    def test_by_degree_the_highest_get_the_first(self, n: int, hubs: int) -> None:
        degrees = np.random.default_rng(n).permutation(n)
        kinds = assign_kinds(population("by_degree", 0.1, None), degrees)
        assert set(np.flatnonzero(kinds == 0)) == set(np.argsort(-degrees)[:hubs])
        assert (kinds[kinds != 0] == 1).all()

    def test_ties_go_to_the_lower_index(self) -> None:
        degrees = np.array([1, 3, 2, 3, 3, 2, 1, 1, 1, 1])
        settings = population("by_degree", 0.2, 0.2, None)
        assert assign_kinds(settings, degrees).tolist() == [2, 0, 1, 0, 1, 2, 2, 2, 2, 2]

    def test_in_turn(self) -> None:
        kinds = assign_kinds(population("in_turn", None, None, None), np.array([9, 1, 1, 1, 5, 1, 7]))
        assert kinds.tolist() == [0, 1, 2, 0, 1, 2, 0]

    def test_the_degrees_are_the_graphs(self) -> None:
        hubs = ["population.assign=by_degree", "population.learners.0.share=0.1"]
        shares = [f"population.learners.{k}.share=0.3" for k in (1, 2)]
        world = build_world(load_study("digits", hubs + shares), DIGITS, 0)
        assert world.degrees.tolist() == [world.graph.degree(i) for i in range(world.n)]
        assert np.bincount(world.kinds).tolist() == [2, 6, 6, 6]
        assert world.degrees[world.kinds == 0].min() >= world.degrees[world.kinds != 0].max()


@pytest.fixture(params=["withheld", "fresh"])
def world(request: pytest.FixtureRequest, tiny: Any) -> World:
    return build_world(tiny(f"partition.validation={request.param}"), DIGITS, 0)


def lists(ragged: Ragged) -> list[list[int]]:
    return [sorted(one.tolist()) for one in ragged]


class TestLabels:
    @pytest.mark.parametrize("stage", [1, 2, 3])
    def test_who_uses_validation_labels_trains_on_them_in_the_final_rounds_only(
        self, world: World, stage: int
    ) -> None:
        """Of a fresh set, as many are given up for Stage 2 as come in."""
        p, fresh = world.partition, world.study.partition.validation == "fresh"
        every = lists(p.train.joined(p.given_up if fresh else p.validation))
        assert lists(world.labelled(stage, uses_validation=False)) == every
        own = every if stage == 3 or (fresh and stage == 1) else lists(p.train)
        assert lists(world.labelled(stage, uses_validation=True)) == own
        assert p.validation.lengths.min() > 0

    def test_those_of_test_and_pool_nobody_has(self, world: World) -> None:
        p = world.partition
        assert len(p.pool) == 600
        known = np.concatenate([p.train.values, p.validation.values, p.given_up.values])
        assert np.flatnonzero(world.labels >= 0).tolist() == sorted(known)
        assert (world.labels[known] == DIGITS.labels[known]).all()
        assert not np.isin(np.concatenate([p.test.values, p.pool]), known).any()
        assert set(np.unique(world.labels)) == {-1, *range(10)}

    def test_class_distribution(self, world: World) -> None:
        p = world.partition
        for i in range(world.n):
            held = DIGITS.labels[np.concatenate([p.train[i], p.validation[i]])]
            assert world.class_distribution[i] == pytest.approx(np.bincount(held, minlength=10) / len(held))

    def test_the_seal_opens_once(self, world: World) -> None:
        sealed = SealedLabels(np.array([5, 6, 7]))
        assert sealed.open(np.array([2, 0])).tolist() == [7, 5]
        with pytest.raises(RuntimeError, match="test labels have been read already"):
            sealed.open(np.array([1]))
        assert "sealed" not in repr(world)


def test_the_same_seed_builds_the_same_world(tiny: Any) -> None:
    one, same, other = (build_world(tiny(), DIGITS, seed) for seed in (4, 4, 5))
    assert one.edges.tolist() == same.edges.tolist()
    assert one.labels.tolist() == same.labels.tolist()
    assert lists(one.partition.test) == lists(same.partition.test)
    assert lists(one.partition.test) != lists(other.partition.test)


def test_another_dataset(tiny: Any) -> None:
    with pytest.raises(LNTrustError, match=r"data\.dataset = 'cifar10': got digits instead"):
        build_world(tiny("data.dataset=cifar10"), DIGITS, 0)
