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
        assert (kinds == 0).sum() == hubs
        assert set(np.flatnonzero(kinds == 0)) == set(np.argsort(-degrees)[:hubs])
        assert (kinds[kinds != 0] == 1).all()

    def test_ties_go_to_the_lower_index(self) -> None:
        degrees = np.array([1, 3, 2, 3, 3, 2, 1, 1, 1, 1])
        settings = population("by_degree", 0.2, 0.2, None)
        assert assign_kinds(settings, degrees).tolist() == [2, 0, 1, 0, 1, 2, 2, 2, 2, 2]
        all_equal = assign_kinds(population("by_degree", 0.1, None), np.full(20, 4))
        assert np.flatnonzero(all_equal == 0).tolist() == [0, 1]

    def test_in_turn(self) -> None:
        degrees = np.array([9, 1, 1, 1, 5, 1, 7])
        kinds = assign_kinds(population("in_turn", None, None, None), degrees)
        assert kinds.tolist() == [0, 1, 2, 0, 1, 2, 0]

    def test_the_degrees_are_the_graphs(self) -> None:
        hubs = ["population.assign=by_degree", "population.learners.0.share=0.1"]
        shares = [f"population.learners.{k}.share=0.3" for k in (1, 2)]
        world = build_world(load_study("digits", hubs + shares), DIGITS, 0)
        assert world.degrees.tolist() == [world.graph.degree(i) for i in range(world.n)]
        assert np.bincount(world.kinds).tolist() == [2, 6, 6, 6]
        assert world.degrees[world.kinds == 0].min() >= world.degrees[world.kinds != 0].max()


def world(tiny: Any, validation: str) -> World:
    return build_world(tiny(f"partition.validation={validation}"), DIGITS, 0)


def lists(ragged: Ragged) -> list[list[int]]:
    return [sorted(one.tolist()) for one in ragged]


@pytest.mark.parametrize("validation", ["withheld", "fresh"])
class TestLabelled:
    @pytest.mark.parametrize("stage", [1, 2])
    def test_what_a_method_trains_on(self, tiny: Any, validation: str, stage: int) -> None:
        """As many training examples are given up for Stage 2 as fresh validation examples come in."""
        one = world(tiny, validation)
        p, fresh = one.partition, validation == "fresh"
        every = p.train.joined(p.given_up if fresh else p.validation)
        assert lists(one.labelled(stage, uses_validation=False)) == lists(every)
        some = every if fresh and stage == 1 else p.train
        assert lists(one.labelled(stage, uses_validation=True)) == lists(some)
        assert p.validation.lengths.min() > 0
        assert (
            p.given_up.lengths.tolist() == (p.validation.lengths if fresh else 0 * p.train.lengths).tolist()
        )

    @pytest.mark.parametrize("uses_validation", [False, True])
    def test_in_the_final_rounds_all_that_others_train_on(
        self, tiny: Any, validation: str, uses_validation: bool
    ) -> None:
        one = world(tiny, validation)
        others = lists(one.labelled(2, uses_validation=False))
        assert lists(one.labelled(3, uses_validation)) == others

    @pytest.mark.parametrize("uses_validation", [False, True])
    def test_nobody_trains_on_test_or_pool_nor_on_validation_and_uses_it(
        self, tiny: Any, validation: str, uses_validation: bool
    ) -> None:
        one = world(tiny, validation)
        away = set(one.partition.test.values.tolist()) | set(one.partition.pool.tolist())
        for stage in (1, 2, 3):
            trained = one.labelled(stage, uses_validation).values
            own = set(one.partition.validation.values.tolist()) if uses_validation and stage < 3 else set()
            assert not set(trained.tolist()) & (away | own)
            assert (one.labels[trained] == DIGITS.labels[trained]).all()


class TestLabels:
    @pytest.mark.parametrize("validation", ["withheld", "fresh"])
    def test_test_and_pool_have_none(self, tiny: Any, validation: str) -> None:
        one = world(tiny, validation)
        p = one.partition
        assert len(p.test.values) > 0
        assert len(p.pool) == 600
        assert (one.labels[p.test.values] == -1).all()
        assert (one.labels[p.pool] == -1).all()
        known = set(np.flatnonzero(one.labels >= 0).tolist())
        assert known == {i for part in (p.train, p.validation, p.given_up) for i in part.values.tolist()}

    def test_class_distribution(self, tiny: Any) -> None:
        one = world(tiny, "withheld")
        p = one.partition
        for i in range(one.n):
            held = DIGITS.labels[np.concatenate([p.train[i], p.validation[i]])]
            assert one.class_distribution[i] == pytest.approx(np.bincount(held, minlength=10) / len(held))

    def test_the_seal_opens_once(self, tiny: Any) -> None:
        sealed = SealedLabels(np.array([5, 6, 7]))
        assert sealed.open(np.array([2, 0])).tolist() == [7, 5]
        with pytest.raises(RuntimeError, match="test labels have been read already"):
            sealed.open(np.array([1]))
        assert "sealed" not in repr(world(tiny, "withheld"))


class TestBuild:
    def test_the_same_seed_builds_the_same_world(self, tiny: Any) -> None:
        one, same, other = (build_world(tiny(), DIGITS, seed) for seed in (4, 4, 5))
        assert one.edges.tolist() == same.edges.tolist()
        assert one.labels.tolist() == same.labels.tolist()
        assert lists(one.partition.test) == lists(same.partition.test)
        assert lists(one.partition.test) != lists(other.partition.test)

    def test_another_dataset(self, tiny: Any) -> None:
        with pytest.raises(LNTrustError, match=r"data\.dataset = 'cifar10': got digits instead"):
            build_world(tiny("data.dataset=cifar10"), DIGITS, 0)
