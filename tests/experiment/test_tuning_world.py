"""The world of a trial: the true test set does not exist in it, so no test label can have a say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stopped_runs import LINEAR

from lntrust import Study
from lntrust.experiment.tune import Search, first_part, tuning_world
from lntrust.learners.views import Views
from lntrust.study.settings import PartitionSettings
from lntrust.world import Dataset, World, build_world, load_dataset
from lntrust.world.partition.partition import groups

Worlds = tuple[World, World]


class TestHalves:
    @given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.floats(0, 1))
    def test_what_belongs_together_stays_together(self, group: list[int], share: float) -> None:
        """Overlapping windows on both sides would let a trial be scored on what it was fitted to."""
        groups = np.array(group)
        ids = np.arange(len(group))
        first, most = first_part(ids, groups, share), int(share * len(ids))
        assert not set(groups[first]) & set(groups[~first])
        assert first.sum() <= most
        if len(set(group)) == len(group):
            assert first.tolist() == [k < most for k in range(len(ids))]

    def test_segments_of_people_and_blocks_on_the_ground(self) -> None:
        digits = load_dataset("digits")
        N = len(digits.labels)
        windows = replace(digits, segment=np.arange(N) // 3)
        person = PartitionSettings.model_validate({"by": "subject"})
        assert np.array_equal(groups(person, windows), np.arange(N) // 3)
        place = replace(digits, latitude=np.repeat([50.0, 60.0], [N // 2, N - N // 2]), longitude=np.zeros(N))
        blocks = PartitionSettings.model_validate({"by": "region", "split": "blocks"})
        assert len(set(groups(blocks, place).tolist())) == 2
        assert len(set(groups(PartitionSettings.model_validate({}), digits).tolist())) == N


@pytest.mark.parametrize("halved", [False, True], ids=["scored by all", "scored by half"])
class TestWorld:
    """The true test set does not exist in it, and what scores a trial is behind the seal."""

    @pytest.fixture(params=["withheld", "fresh"])
    def worlds(self, request: pytest.FixtureRequest, small: Any, views: Views, halved: bool) -> Worlds:
        """As it is, and for tuning."""
        study = small(LINEAR, f"partition.validation={request.param}", "partition.val_fraction=0.3")
        return build_world(study, views.dataset, 0), tuning_world(study, views.dataset, 0, halved)

    def test_what_scores_is_validation_or_the_second_half_of_it(self, worlds: Worlds, halved: bool) -> None:
        """All else is the study's own."""
        whole, tuning = (world.partition for world in worlds)
        for i, ids in enumerate(whole.validation):
            cut = len(ids) // 2 if halved else 0
            assert tuning.validation[i].tolist() == ids[:cut].tolist()
            assert tuning.test[i].tolist() == ids[cut:].tolist()
            assert len(tuning.test[i]) > 0
        for name in ("edges", "kinds"):
            assert getattr(worlds[1], name).tolist() == getattr(worlds[0], name).tolist()
        for name in ("train", "shard"):
            assert getattr(tuning, name).values.tolist() == getattr(whole, name).values.tolist()
        assert tuning.pool.tolist() == whole.pool.tolist()

    def test_no_label_is_known_but_of_what_is_fitted_to(self, worlds: Worlds, views: Views) -> None:
        """And the true test set is nowhere."""
        truth, p, labels = worlds[0].partition.test.values, worlds[1].partition, worlds[1].labels
        for ids in (p.train.values, p.validation.values, p.test.values, p.shard.values, p.pool):
            assert not np.isin(ids, truth).any()
        known = np.unique(np.concatenate([p.train.values, p.given_up.values, p.validation.values]))
        assert np.flatnonzero(labels >= 0).tolist() == known.tolist()
        assert (labels[known] == views.dataset.labels[known]).all()
        assert set(labels[np.setdiff1d(np.arange(len(labels)), known)]) == {-1}

    def test_behind_the_seal_are_the_scoring_labels_and_no_others(self, worlds: Worlds, views: Views) -> None:
        p = worlds[1].partition
        scored = p.test.values
        sealed = worlds[1].sealed.open(np.arange(len(views.dataset.labels)))
        assert np.flatnonzero(sealed >= 0).tolist() == sorted(scored.tolist())
        assert (sealed[scored] == views.dataset.labels[scored]).all()
        assert not np.isin(scored, np.concatenate([p.train.values, p.validation.values])).any()
        for i in range(worlds[1].n):  # nobody knows the classes of what scores
            ids = np.concatenate([p.train[i], p.validation[i]])
            count = np.bincount(views.dataset.labels[ids], minlength=10)
            np.testing.assert_allclose(worlds[1].class_distribution[i], count / count.sum())

    @pytest.mark.parametrize("draws", ["disjoint", "overlapping"])
    def test_everybody_trains_on_train_only(self, small: Any, views: Views, halved: bool, draws: str) -> None:
        """One node's validation example may be another's to train on: sealing it must not unlabel it."""
        world = tuning_world(small(f"partition.draws={draws}"), views.dataset, 0, halved)
        for stage in (1, 2):
            assert world.labelled(stage, halved).values.tolist() == world.partition.train.values.tolist()
        for lists in (world.partition.train, world.partition.validation):
            assert (world.labels[lists.values] == views.dataset.labels[lists.values]).all()


class TestTestLabels:
    """Trials must come out the same whatever the labels of the true test set are."""

    @pytest.fixture
    def placed(self, views: Views) -> Dataset:
        """The digits with places: by region and without a pool, no label decides who holds what."""
        rng = np.random.default_rng(0)
        latitude, longitude = rng.uniform(45, 55, 1797), rng.uniform(5, 15, 1797)
        return replace(views.dataset, latitude=latitude, longitude=longitude)

    def scores(self, study: Study, method: str, dataset: Dataset, log: Path) -> list[float]:
        views = Views(dataset, torch.device("cpu"), torch.float32)
        return [one["score"] for one in Search(study, method, 0, views, log)(3, lambda _: lambda *_: None)]

    @pytest.mark.parametrize("method", ["independent", "uniform", "fedpae", "stacking", "knn_per"])
    def test_do_not_change_a_score(self, small: Any, placed: Dataset, method: str, tmp_path: Path) -> None:
        """One that trains, one that asks, one that fits to validation labels."""
        regions = ("partition.by=region", "partition.per_region=60", "partition.pool=0", "partition.shard=0")
        study = small(LINEAR, *regions)
        p = build_world(study, placed, 0).partition
        scores = self.scores(study, method, placed, tmp_path / "right.jsonl")
        for part, same in ((p.test.values, True), (p.validation.values, False)):
            labels = placed.labels.copy()
            labels[part] = (labels[part] + 1) % 10  # every one of them is wrong now
            twisted = replace(placed, labels=labels)
            q = build_world(study, twisted, 0).partition
            for name in ("train", "validation", "test"):
                assert getattr(q, name).values.tolist() == getattr(p, name).values.tolist()
            got = self.scores(study, method, twisted, tmp_path / f"{same}.jsonl")
            assert (got == scores) == same
