"""Tuning: searched on validation data, so that no test label can have a say in what wins."""

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from lntrust import LNTrustError, Study, load_study
from lntrust.experiment import Run
from lntrust.experiment.driver import Progress
from lntrust.experiment.tune import (
    Line,
    Search,
    append_line,
    best,
    read_log,
    search_key,
    search_space,
    tuning_world,
    write_study,
)
from lntrust.learners.views import Views
from lntrust.methods import Method, list_methods
from lntrust.study.settings import MethodSettings, Range, Settings

Make = Callable[..., Search]
FOUR = ("graph.nodes=4", "partition.labelled=200", "training.stage1_rounds=1", "training.stage2_rounds=2")


def quiet(_: str) -> Progress:
    return lambda *_: None


@pytest.fixture
def file(quick_file: Path) -> Path:
    """A study with a method's settings of its own."""
    own = "\n[methods.mean_teacher]\nunlabelled = 5\n"
    quick_file.write_text(quick_file.read_text("utf-8") + own, "utf-8")
    return quick_file


@pytest.fixture
def small(file: Path) -> Callable[..., Study]:
    """Four nodes with linear models, three rounds; with overrides."""
    return lambda *overrides: load_study(file, [*FOUR, *overrides])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "tuned.jsonl"


@pytest.fixture
def search(small: Any, views: Views, log: Path) -> Make:
    """A search on the small study, with overrides; all share one log."""

    def make(*overrides: str, method: str = "independent", seed: int = 0) -> Search:
        return Search(small(*overrides), method, seed, views, log)

    return make


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
    @pytest.mark.parametrize("name", [name for name in list_methods() if name != "centralized"])
    def test_every_method_has_its_learning_rate_to_tune(self, name: str) -> None:
        cls = list_methods()[name]
        space = search_space(cls.settings_class)
        assert "lr" in space
        for field, where in space.items():  # every end of a range is a setting that can be had
            for value in where.choices or (where.low, where.high):
                cls.settings_class.model_validate({field: value})

    def test_without_ranges_or_without_optuna_it_is_refused(
        self, search: Make, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(LNTrustError, match="Bare: none of its settings declares a range to search"):
            search(method=f"{__name__}:Bare")
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(LNTrustError, match=r"optuna.*pip install 'lntrust\[tune\]'"):
            search()(1, quiet)
        assert not log.exists()


class TestTrials:
    def test_the_first_takes_the_methods_own_settings_from_the_study(self, search: Make) -> None:
        own = "methods.mean_teacher={lr=0.3, decay=0.5, unlabelled=4}"  # outside the ranges, all the same
        first, second = search(own, method="mean_teacher")(2, quiet)
        assert first["settings"] == {"lr": 0.3, "weight": 100.0, "decay": 0.5, "late_decay": 0.999}
        assert 0.002 <= second["settings"]["lr"] <= 0.1
        assert "unlabelled" not in second["settings"]

    def test_there_are_as_many_as_asked_for_and_their_values_lie_in_their_ranges(self, search: Make) -> None:
        """More than the sampler draws blindly, so that what it makes of scores is seen too."""
        watched: list[str] = []
        method = f"{__name__}:Ranged"
        lines = search(method=method)(8, lambda name: watched.append(name) or quiet(name))  # type: ignore[func-returns-value]
        assert [line["trial"] for line in lines] == list(range(8))
        assert watched == [f"{method}, trial {number} of 8" for number in range(1, 9)]
        for line in lines[1:]:
            drawn = line["settings"]
            assert list(drawn) == ["lr", "depth", "share"]
            assert 0.002 <= drawn["lr"] <= 0.1
            assert drawn["depth"] in (1, 2, 3)
            assert 0.25 <= drawn["share"] <= 0.75
        assert len({line["settings"]["lr"] for line in lines}) == 8

    def test_settings_of_a_trial_decide_its_score(self, search: Make, small: Any, views: Views) -> None:
        lines = search()(3, quiet)
        assert lines[0]["settings"] == {"lr": 0.05}, "the first is the study as it stands"
        for line in lines:
            study = small(f"methods.independent.lr={line['settings']['lr']!r}")
            again = Run(study, "independent", 0, views, make_world=tuning_world)()
            scores = (again["test"], again["test_pooled"], again["test_pooled"])
            assert (line["own"], line["pooled"], line["score"]) == scores
        assert len({line["score"] for line in lines}) > 1

    def test_overlapping_draws_can_be_tuned(self, search: Make) -> None:
        (line,) = search("partition.draws=overlapping")(1, quiet)
        assert line["pooled"] is None
        assert line["score"] == line["own"]


class TestLog:
    def test_has_a_line_of_json_for_each_trial(self, search: Make, small: Any, log: Path) -> None:
        lines = search(method="mean_teacher")(2, quiet)
        written = [json.loads(text) for text in log.read_text("utf-8").splitlines()]
        assert written == lines == read_log(log)
        for number, line in enumerate(written):
            assert set(line["settings"]) == {"lr", "weight", "decay", "late_decay"}
            assert isinstance(line["score"], float)
            found = [line[k] for k in ("study", "method", "seed", "trial", "device")]
            assert found == ["quick", "mean_teacher", 0, number, "cpu"]
            assert line["of"] == search_key(small(), "mean_teacher", 0)
            assert {"lntrust", "torch"} <= set(line["versions"])

    def test_what_is_in_it_is_not_done_again(self, search: Make, log: Path) -> None:
        first = search()(2, quiet)
        before = log.read_bytes()
        assert search()(2, pytest.fail) == first
        assert search()(1, pytest.fail) == first
        assert log.read_bytes() == before
        more = search()(3, quiet)
        assert [line["trial"] for line in read_log(log)] == [0, 1, 2]
        assert log.read_bytes().startswith(before)
        log.unlink()
        at_once, another = search()(3, quiet), search(seed=1)(3, quiet)
        assert [line["settings"] for line in at_once] == [line["settings"] for line in more], "as in one go"
        assert [line["settings"] for line in at_once] != [line["settings"] for line in another]

    def test_methods_seeds_and_changed_studies_stand_side_by_side(self, search: Make, log: Path) -> None:
        for method, seed in (("independent", 0), ("uniform", 0), ("independent", 1)):
            (line,) = search(method=method, seed=seed)(1, quiet)
            assert (line["method"], line["seed"], line["trial"]) == (method, seed, 0)
        assert len(search().lines) == len(search(method="uniform").lines) == 1
        for change in ("training.stage2_rounds=3", "methods.independent.lr=0.02", "deploy=uniform"):
            assert search(change).lines == []
        (line,) = search("training.stage2_rounds=3")(1, quiet)
        assert line["trial"] == 0
        assert len(read_log(log)) == 4
        for nothing in ("about=other", "seeds=[4]", 'compare=["dml"]', "name=another", "methods.uniform={}"):
            assert len(search(nothing).lines) == 1

    def test_who_answers_is_part_of_what_trials_are_about(self, small: Any) -> None:
        """Under `deploy = trust` the settings of lntrust decide the scores of every method."""
        studies = [small("deploy=trust", f"methods.lntrust.budget={budget}") for budget in (40, 80)]
        assert len({search_key(study, "independent", 0) for study in studies}) == 2

    @pytest.mark.parametrize("content", [b"no json\n", b"[1, 2]\n", b'{"of": "x"}\n', b"\x89PNG\xff", None])
    def test_a_broken_one_or_a_folder_is_refused_by_name(
        self, search: Make, log: Path, content: bytes | None
    ) -> None:
        log.parent.mkdir()
        if content is None:
            log.mkdir()
        else:
            log.write_bytes(content)
        with pytest.raises(LNTrustError, match=r"tuned\.jsonl: not a log of trials"):
            search()


def line(study: Study, method: str, trial: int, score: float, **settings: float) -> Line:
    """A trial as the log has it."""
    of = search_key(study, method, 0)
    return {"method": method, "trial": trial, "score": score, "settings": settings, "of": of}


@pytest.mark.parametrize(
    ("scores", "won"),
    [([0.4, 0.6, 0.5], 1), ([0.5, 0.7, 0.7], 1), ([0.5] * 2, 0), ([None, 0.0, None], 1), ([None] * 2, 0)],
)
def test_the_highest_score_wins_and_of_equals_the_earlier(scores: list[float | None], won: int) -> None:
    """The study as it stands is trial 0: nothing is changed for nothing. None has diverged."""
    lines = [{"trial": k, "score": score} for k, score in enumerate(scores)]
    assert best(lines)["trial"] == best(lines[::-1])["trial"] == won


class TestStudy:
    """The file that `lntrust run` takes afterwards."""

    def write(self, study: Study, file: Path, inherits: bool = True) -> Path:
        log, to = file.parent / "log.jsonl", file.parent / "elsewhere" / "quick-tuned.toml"
        for one in (
            line(study, "uniform", 0, 0.5, lr=0.05),
            line(study, "mean_teacher", 0, 0.5, lr=0.05, weight=100.0, decay=0.99),
            line(study, "uniform", 1, 0.6, lr=0.0125),
            line(study, "mean_teacher", 1, 0.4, lr=0.01, weight=3.0, decay=0.9),
            {**line(study, "uniform", 2, 0.9, lr=0.09), "of": "another study's"},
        ):
            append_line(log, one)
        write_study(to, study, 0, str(file) if inherits else None, log, "")
        return to

    def test_has_what_won_and_inherits_the_rest(self, small: Any, file: Path, views: Views) -> None:
        """It compares all that were tuned."""
        study, own = small(), {"name", "about", "compare", "methods"}
        to = self.write(study, file)
        tuned, written = load_study(to), tomllib.loads(to.read_text("utf-8"))
        run = Run(tuned, "uniform", 0, views)
        assert run.population.training.lr == run.identity["settings"]["lr"] == 0.0125
        assert tuned.compare == ["mean_teacher", "uniform"]
        assert tuned.methods["uniform"] == {"lr": 0.0125}
        won = {"lr": 0.05, "weight": 100.0, "decay": 0.99, "unlabelled": 5}
        assert tuned.methods["mean_teacher"] == won
        assert tuned.name == "quick-tuned"
        assert tuned.about == f"{study.about}; tuned by 2 trials of each method on validation data, seed 0"
        assert set(written) == {"inherits", *own}
        assert written["inherits"] == str(file)
        assert tuned.model_dump(exclude=own) == load_study(file).model_dump(exclude=own)

    def test_holds_everything_itself(self, small: Any, file: Path) -> None:
        """Where --set has changed the study, there is no file to inherit from. TOML cannot say none."""
        study, own = small(), {"name", "about", "compare", "methods"}
        answerer = {"strength": 0.3, "top_k": None}  # of a crossed run
        graph = study.graph.model_copy(update={"attach": 1})
        changed = study.model_copy(update={"graph": graph, "methods": study.methods | {"lntrust": answerer}})
        to = self.write(changed, file, inherits=False)
        file.unlink()
        tuned = load_study(to)
        assert tuned.model_dump(exclude=own) == changed.model_dump(exclude=own)
        assert tuned.methods["mean_teacher"]["unlabelled"] == 5
        assert tuned.methods["uniform"] == {"lr": 0.0125}
        assert tuned.methods["lntrust"] == {"strength": 0.3}


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
