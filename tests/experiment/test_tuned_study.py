"""What tuning leaves: the winner, a study that says so, and scores that no test label can move."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lntrust import Study, load_study
from lntrust.experiment import Run
from lntrust.experiment.driver import Progress
from lntrust.experiment.tune import Line, Search, best, read_log, search_key, write_study
from lntrust.learners import batch
from lntrust.learners.views import Views
from lntrust.world import Dataset, build_world

SMALL = """
inherits = "digits"

[graph]
nodes = 4

[partition]
labelled = 200
pool = 60
shard = 30

[training]
stage1_rounds = 1
stage2_rounds = 2
refresh = 2

[[population.learners]]
name = "linear"
kind = "linear"
view = "pixels"

[methods.mean_teacher]
unlabelled = 5
"""


def quiet(_: int) -> Progress:
    return lambda *_: None


@pytest.fixture(autouse=True)
def _few_batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a few steps draws millions ahead otherwise; test_batch shows that it is the same."""
    monkeypatch.setattr(batch, "_DRAWN_AT_ONCE", 2_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, "utf-8")
    return path


@pytest.fixture
def study(file: Path) -> Study:
    return load_study(file)


def line(study: Study, method: str, trial: int, score: float, **settings: float) -> Line:
    """A trial as the log has it."""
    return {
        "method": method, "trial": trial, "score": score, "settings": settings,
        "of": search_key(study, method, 0),
    }  # fmt: skip


def write_log(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    return path


class TestBest:
    def test_the_highest_score_wins(self, study: Study) -> None:
        lines = [line(study, "uniform", k, score) for k, score in enumerate([0.4, 0.6, 0.5])]
        assert best(lines)["trial"] == 1

    @pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]])
    def test_of_equals_the_earlier(self, study: Study, order: list[int]) -> None:
        """The study as it stands is trial 0: nothing is changed for nothing."""
        scores = [0.5, 0.7, 0.7, 0.5]
        assert best([line(study, "uniform", k, scores[k]) for k in order])["trial"] == 1
        assert best([line(study, "uniform", k, 0.5) for k in order])["trial"] == 0


class TestStudy:
    """The file that `lntrust run` takes afterwards."""

    def write(self, study: Study, file: Path, inherits: bool = True) -> Path:
        lines = [
            line(study, "uniform", 0, 0.5, lr=0.05),
            line(study, "mean_teacher", 0, 0.5, lr=0.05, weight=100.0, decay=0.99),
            line(study, "uniform", 1, 0.6, lr=0.0125),
            line(study, "mean_teacher", 1, 0.4, lr=0.01, weight=3.0, decay=0.9),
            {**line(study, "uniform", 2, 0.9, lr=0.09), "of": "another study's"},
        ]
        to = file.parent / "elsewhere" / "small-tuned.toml"
        log = write_log(file.parent / "log.jsonl", lines)
        write_study(to, study, 0, str(file) if inherits else None, log)
        return to

    def test_has_the_winning_settings_and_compares_all_that_were_tuned(
        self, study: Study, file: Path
    ) -> None:
        tuned = load_study(self.write(study, file))
        assert tuned.compare == ["mean_teacher", "uniform"]
        assert tuned.methods["uniform"] == {"lr": 0.0125}
        assert tuned.methods["mean_teacher"] == {
            "lr": 0.05, "weight": 100.0, "decay": 0.99, "unlabelled": 5
        }  # fmt: skip
        assert tuned.name == "small-tuned"
        assert tuned.about == f"{study.about}; tuned by 2 trials of each method on validation data, seed 0"

    def test_keeps_what_other_methods_are_set_to_and_has_no_none(self, study: Study, file: Path) -> None:
        """What decides a crossed run stands in another method's table; TOML cannot say none."""
        methods = {**study.methods, "lntrust": {"strength": 0.3, "top_k": None}}
        changed = study.model_copy(update={"methods": methods})
        log = write_log(file.parent / "log.jsonl", [line(changed, "uniform", 0, 0.5, lr=0.05)])
        to = file.parent / "whole.toml"
        write_study(to, changed, 0, None, log)
        tuned = load_study(to)
        assert tuned.methods["lntrust"] == {"strength": 0.3}
        assert tuned.methods["uniform"] == {"lr": 0.05}
        assert tuned.compare == ["uniform"]

    def test_inherits_the_rest(self, study: Study, file: Path) -> None:
        to = self.write(study, file)
        written = tomllib.loads(to.read_text("utf-8"))
        assert set(written) == {"inherits", "name", "about", "compare", "methods"}
        assert written["inherits"] == str(file)
        own = {"name", "about", "compare", "methods"}
        assert load_study(to).model_dump(exclude=own) == study.model_dump(exclude=own)

    def test_or_holds_everything_itself(self, study: Study, file: Path) -> None:
        """Where --set has changed the study, there is no file to inherit from."""
        changed = study.model_copy(update={"graph": study.graph.model_copy(update={"attach": 1})})
        to = self.write(changed, file, inherits=False)
        file.unlink()
        own = {"name", "about", "compare", "methods"}
        tuned = load_study(to)
        assert tuned.model_dump(exclude=own) == changed.model_dump(exclude=own)
        assert tuned.methods["mean_teacher"]["unlabelled"] == 5
        assert tuned.methods["uniform"] == {"lr": 0.0125}

    def test_running_it_uses_the_tuned_learning_rate(
        self, study: Study, file: Path, views: Views, tmp_path: Path
    ) -> None:
        tuned = load_study(self.write(study, file))
        before, after = (Run(s, "uniform", 0, views, folder=tmp_path / "runs") for s in (study, tuned))
        assert (before.population.training.lr, after.population.training.lr) == (0.05, 0.0125)
        assert before()["per_node"] != after()["per_node"]
        (told,) = (tmp_path / "runs" / "small-tuned" / "uniform").glob("seed-0-*/run.json")
        assert json.loads(told.read_text("utf-8"))["settings"]["lr"] == 0.0125
        assert after.fingerprint != before.fingerprint

    def test_a_real_search_ends_in_a_study_that_loads(self, study: Study, views: Views, file: Path) -> None:
        log, to = file.parent / "real.jsonl", file.parent / "real.toml"
        won = {}
        for method in ("independent", "fedpae"):
            won[method] = best(Search(study, method, 0, views, log)(2, quiet))["settings"]
        write_study(to, study, 0, str(file), log)
        tuned = load_study(to)
        assert {name: tuned.methods[name] for name in won} == won
        assert tuned.compare == ["fedpae", "independent"]


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
        return [one["score"] for one in Search(study, method, 0, views, log)(3, quiet)]

    @pytest.mark.parametrize("method", ["independent", "uniform", "fedpae"])
    def test_do_not_change_a_score(self, file: Path, placed: Dataset, method: str, tmp_path: Path) -> None:
        """One that trains, one that asks, one that fits to validation labels."""
        study = load_study(
            file, ["partition.by=region", "partition.per_region=60", "partition.pool=0", "partition.shard=0"]
        )
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


SHIPPED = sorted((Path(__file__).parents[2] / "benchmarks" / "results" / "tuning").glob("*.jsonl"))


@pytest.mark.parametrize("log", SHIPPED, ids=lambda path: path.stem)
def test_a_tuned_study_that_ships_holds_what_won_in_its_log(log: Path) -> None:
    tuned = load_study(log.stem)
    trials: dict[str, list[Any]] = {}
    for each in read_log(log):
        trials.setdefault(each["method"], []).append(each)
    assert tuned.compare == sorted(trials)
    for method, lines in trials.items():
        assert [each["trial"] for each in lines] == list(range(len(lines)))
        assert tuned.methods[method].items() >= best(lines)["settings"].items()
