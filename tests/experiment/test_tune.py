"""Tuning: searched on validation data, so that no test label can have a say in what wins."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from lntrust import LNTrustError, Study, load_study
from lntrust.experiment import Run
from lntrust.experiment.driver import Progress
from lntrust.experiment.tune import Search, first_part, read_log, search_key, search_space, tuning_world
from lntrust.learners import batch
from lntrust.learners.views import Views
from lntrust.methods import Method, list_methods
from lntrust.study.settings import MethodSettings, PartitionSettings, Range, Settings
from lntrust.world import World, build_world, load_dataset
from lntrust.world.partition.partition import groups

SMALL = [
    "graph.nodes=4", "partition.labelled=200", "partition.pool=60", "partition.shard=30",
    "training.stage1_rounds=1", "training.stage2_rounds=2", "training.refresh=2", "evaluation.every=100",
    'population.learners=[{name="linear",kind="linear",view="pixels"}]',
]  # fmt: skip
Make = Callable[..., Search]


def small(*overrides: str) -> Study:
    return load_study("digits", [*SMALL, *overrides])


def quiet(_: int) -> Progress:
    return lambda *_: None


@pytest.fixture(autouse=True)
def _few_batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a few steps draws millions ahead otherwise; test_batch shows that it is the same."""
    monkeypatch.setattr(batch, "_DRAWN_AT_ONCE", 2_000)


def never(number: int) -> Progress:
    raise AssertionError(f"trial {number} was begun")


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


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "tuned.jsonl"


@pytest.fixture
def search(views: Views, log: Path) -> Make:
    """A search on the small study, with overrides; all share one log."""

    def make(*overrides: str, method: str = "independent", seed: int = 0) -> Search:
        return Search(small(*overrides), method, seed, views, log)

    return make


class TestWorld:
    """The true test set does not exist in it, and what scores a trial is behind the seal."""

    @pytest.fixture(params=["withheld", "fresh"])
    def study(self, request: pytest.FixtureRequest) -> Study:
        return small(f"partition.validation={request.param}", "partition.val_fraction=0.3")

    @pytest.fixture(params=[False, True], ids=["scored by all", "scored by half"])
    def halved(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture
    def worlds(self, study: Study, views: Views, halved: bool) -> tuple[World, World]:
        """As it is, and for tuning."""
        return build_world(study, views.dataset, 0), tuning_world(study, views.dataset, 0, halved)

    def test_what_scores_is_validation_or_the_second_half_of_it(
        self, worlds: tuple[World, World], halved: bool
    ) -> None:
        whole, tuning = (world.partition for world in worlds)
        for i, ids in enumerate(whole.validation):
            cut = len(ids) // 2 if halved else 0
            assert tuning.validation[i].tolist() == ids[:cut].tolist()
            assert tuning.test[i].tolist() == ids[cut:].tolist()
            assert len(tuning.test[i]) > 0

    def test_the_true_test_set_is_nowhere(self, worlds: tuple[World, World]) -> None:
        truth = worlds[0].partition.test.values
        p = worlds[1].partition
        for lists in (p.train, p.validation, p.test, p.shard, p.given_up):
            assert not np.isin(lists.values, truth).any()
        assert not np.isin(p.pool, truth).any()
        assert (worlds[1].labels[truth] == -1).all()

    def test_no_label_is_known_but_of_what_is_trained_on_and_fitted_to(
        self, worlds: tuple[World, World], views: Views
    ) -> None:
        p, labels = worlds[1].partition, worlds[1].labels
        known = np.unique(np.concatenate([p.train.values, p.given_up.values, p.validation.values]))
        assert np.flatnonzero(labels >= 0).tolist() == known.tolist()
        assert (labels[known] == views.dataset.labels[known]).all()
        assert set(labels[np.setdiff1d(np.arange(len(labels)), known)]) == {-1}

    def test_behind_the_seal_are_the_scoring_labels_and_no_others(
        self, worlds: tuple[World, World], views: Views
    ) -> None:
        scored = worlds[1].partition.test.values
        sealed = worlds[1].sealed.open(np.arange(len(views.dataset.labels)))
        assert np.flatnonzero(sealed >= 0).tolist() == sorted(scored.tolist())
        assert (sealed[scored] == views.dataset.labels[scored]).all()
        assert not np.isin(scored, worlds[1].partition.train.values).any()
        assert not np.isin(scored, worlds[1].partition.validation.values).any()

    def test_nobody_is_told_the_classes_of_what_scores(
        self, worlds: tuple[World, World], views: Views
    ) -> None:
        p = worlds[1].partition
        for i in range(4):
            ids = np.concatenate([p.train[i], p.validation[i]])
            count = np.bincount(views.dataset.labels[ids], minlength=10)
            np.testing.assert_allclose(worlds[1].class_distribution[i], count / count.sum())

    def test_all_else_is_the_studys_own(self, worlds: tuple[World, World]) -> None:
        whole, tuning = worlds
        assert tuning.edges.tolist() == whole.edges.tolist()
        assert tuning.kinds.tolist() == whole.kinds.tolist()
        for name in ("train", "shard", "given_up"):
            one, other = getattr(tuning.partition, name), getattr(whole.partition, name)
            assert one.values.tolist() == other.values.tolist()
        assert tuning.partition.pool.tolist() == whole.partition.pool.tolist()

    def test_everybody_trains_on_train_only(self, views: Views) -> None:
        for uses in (False, True):
            world = tuning_world(small(), views.dataset, 0, uses)
            for stage in (1, 2):
                trained_on = world.labelled(stage, uses)
                assert trained_on.values.tolist() == world.partition.train.values.tolist()

    @pytest.mark.parametrize("uses", [False, True])
    def test_overlapping_draws_keep_their_training_labels(self, views: Views, uses: bool) -> None:
        """One node's validation example may be another's to train on: sealing it must not unlabel it."""
        world = tuning_world(small("partition.draws=overlapping"), views.dataset, 0, uses)
        for lists in (world.partition.train, world.partition.validation):
            assert (world.labels[lists.values] == views.dataset.labels[lists.values]).all()


class Bare(Method):
    """Nothing of it can be tuned."""

    settings_class = Settings


class RangedSettings(MethodSettings):
    depth: Annotated[int, Range(choices=(1, 2, 3))] = Field(2, description="one of three")
    plain: int = Field(3, description="nobody's to search")
    share: Annotated[float, Range(0.25, 0.75)] = Field(0.5, ge=0, le=1, description="evenly")


class Ranged(Method):
    settings_class = RangedSettings


class TestSpace:
    def test_holds_what_declares_a_range_in_order(self) -> None:
        found = search_space(RangedSettings)
        assert list(found) == ["lr", "depth", "share"]
        assert found["depth"].choices == (1, 2, 3)
        assert (found["share"].low, found["share"].high, found["share"].log) == (0.25, 0.75, False)
        assert found["lr"].log
        assert search_space(Settings) == {}

    @pytest.mark.parametrize("name", [name for name in list_methods() if name != "centralized"])
    def test_every_method_has_its_learning_rate_to_tune(self, name: str) -> None:
        cls = list_methods()[name]
        space = search_space(cls.settings_class)
        assert "lr" in space
        for field, where in space.items():  # every end of a range is a setting that can be had
            for value in where.choices or (where.low, where.high):
                cls.settings_class.model_validate({field: value})

    def test_a_method_without_ranges_is_refused(self, search: Make) -> None:
        with pytest.raises(LNTrustError, match="Bare: none of its settings declares a range to search"):
            search(method=f"{__name__}:Bare")

    def test_without_optuna_the_error_says_what_to_install(
        self, search: Make, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(LNTrustError, match=r"optuna.*pip install 'lntrust\[tune\]'"):
            search()(1, quiet)
        assert not log.exists()


class TestTrials:
    def test_the_first_is_the_study_as_it_stands(self, search: Make, views: Views) -> None:
        (line,) = search()(1, quiet)
        plain = Run(small(), "independent", 0, views, make_world=tuning_world)()
        assert line["settings"] == {"lr": 0.05}  # digits' training.lr
        assert (line["own"], line["pooled"], line["score"]) == (
            plain["test"], plain["test_pooled"], plain["test_pooled"]
        )  # fmt: skip

    def test_the_first_takes_the_methods_own_settings_from_the_study(self, search: Make) -> None:
        own = "methods.mean_teacher={lr=0.3, decay=0.5, unlabelled=4}"  # outside the ranges, all the same
        first, second = search(own, method="mean_teacher")(2, quiet)
        assert first["settings"] == {"lr": 0.3, "weight": 100.0, "decay": 0.5}
        assert 0.002 <= second["settings"]["lr"] <= 0.1
        assert "unlabelled" not in second["settings"]

    def test_there_are_as_many_as_asked_for_and_their_values_lie_in_their_ranges(self, search: Make) -> None:
        """More than the sampler draws blindly, so that what it makes of scores is seen too."""
        watched: list[int] = []

        def watch(number: int) -> Progress:
            watched.append(number)
            return lambda *_: None

        lines = search(method=f"{__name__}:Ranged")(8, watch)
        assert [line["trial"] for line in lines] == watched == list(range(8))
        drawn = [line["settings"] for line in lines[1:]]
        assert all(0.002 <= s["lr"] <= 0.1 for s in drawn)
        assert all(s["depth"] in (1, 2, 3) for s in drawn)
        assert all(0.25 <= s["share"] <= 0.75 for s in drawn)
        assert len({s["lr"] for s in drawn}) == 7
        assert all(0 <= line["score"] <= 1 for line in lines)

    def test_settings_of_a_trial_decide_its_score(self, search: Make, views: Views) -> None:
        lines = search()(3, quiet)
        for line in lines:
            study = small(f"methods.independent.lr={line['settings']['lr']!r}")
            again = Run(study, "independent", 0, views, make_world=tuning_world)()
            assert again["test_pooled"] == line["score"]
        assert len({line["score"] for line in lines}) > 1

    def test_the_same_search_draws_the_same_trials(self, views: Views, tmp_path: Path) -> None:
        def settings(name: str, seed: int) -> list[dict[str, Any]]:
            lines = Search(small(), "independent", seed, views, tmp_path / name)(3, quiet)
            return [line["settings"] for line in lines]

        assert settings("a.jsonl", 0) == settings("b.jsonl", 0)
        assert settings("a.jsonl", 1) != settings("a.jsonl", 0)

    def test_overlapping_draws_can_be_tuned(self, search: Make) -> None:
        (line,) = search("partition.draws=overlapping")(1, quiet)
        assert line["pooled"] is None
        assert line["score"] == line["own"]


class TestLog:
    def test_has_a_line_of_json_for_each_trial(self, search: Make, log: Path) -> None:
        lines = search(method="mean_teacher")(2, quiet)
        told = [json.loads(text) for text in log.read_text("utf-8").splitlines()]
        assert told == lines == read_log(log)
        for number, line in enumerate(told):
            assert set(line["settings"]) == {"lr", "weight", "decay"}
            assert isinstance(line["score"], float)
            found = [line[k] for k in ("study", "method", "seed", "trial", "device")]
            assert found == ["digits", "mean_teacher", 0, number, "cpu"]
            assert {"lntrust", "torch"} <= set(line["versions"])
            assert line["of"] == search_key(small(), "mean_teacher", 0)

    def test_what_is_in_it_is_not_done_again(self, search: Make, log: Path) -> None:
        first = search()(2, quiet)
        before = log.read_bytes()
        assert search()(2, never) == first
        assert search()(1, never) == first
        assert log.read_bytes() == before
        more = search()(3, quiet)
        assert more[:2] == first
        assert [line["trial"] for line in read_log(log)] == [0, 1, 2]
        assert log.read_bytes().startswith(before)

    def test_methods_and_seeds_stand_side_by_side(self, search: Make, log: Path) -> None:
        search()(1, quiet)
        search(method="uniform")(1, quiet)
        search(seed=1)(1, quiet)
        assert [(line["method"], line["seed"], line["trial"]) for line in read_log(log)] == [
            ("independent", 0, 0), ("uniform", 0, 0), ("independent", 1, 0)
        ]  # fmt: skip
        assert len(search().lines) == len(search(method="uniform").lines) == 1

    def test_for_a_changed_study_the_search_begins_anew(self, search: Make, log: Path) -> None:
        search()(1, quiet)
        for change in ("training.stage2_rounds=3", "methods.independent.lr=0.02", "deploy=uniform"):
            assert search(change).lines == []
        (line,) = search("training.stage2_rounds=3")(1, quiet)
        assert line["trial"] == 0
        assert len(read_log(log)) == 2
        for nothing in (
            "about=other",
            "seeds=[4]",
            'compare=["uniform"]',
            "name=another",
            "methods.uniform={}",
        ):
            assert len(search(nothing).lines) == 1

    def test_who_answers_is_part_of_what_trials_are_about(self) -> None:
        """Under `deploy = trust` the settings of lntrust decide the scores of every method."""
        of = {
            search_key(small("deploy=trust", f"methods.lntrust.budget={b}"), "independent", 0) for b in (40, 80)
        }
        assert len(of) == 2

    @pytest.mark.parametrize(
        "text", ["no json\n", '{"of": "x"\n', '{"score": 1}\n', "[1, 2]\n", "3\n", '{"of": "x"}\n']
    )
    def test_a_broken_one_is_refused_by_name(self, search: Make, log: Path, text: str) -> None:
        log.parent.mkdir()
        log.write_text(text, "utf-8")
        with pytest.raises(LNTrustError, match=r"tuned\.jsonl: not a log of trials"):
            search()

    def test_a_picture_or_a_folder_is_none_either(self, search: Make, log: Path) -> None:
        log.parent.mkdir()
        log.write_bytes(b"\x89PNG\xff\xfe")
        with pytest.raises(LNTrustError, match="not a log of trials"):
            search()
        log.unlink()
        log.mkdir()
        with pytest.raises(LNTrustError, match="not a log of trials"):
            search()
