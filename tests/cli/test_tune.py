"""`lntrust tune` as its users see it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lntrust import load_study
from lntrust.experiment.tune import search_space
from lntrust.learners import batch
from lntrust.methods import Method, Site, State, list_methods


class Interrupted(Method):
    """Somebody presses Ctrl-C while it trains."""

    def start(self, site: Site) -> State:
        raise KeyboardInterrupt


class TestTune:
    @pytest.fixture
    def quick(self, tmp_path: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The tiny study without forests, and with few batches drawn ahead: a trial takes a moment."""
        monkeypatch.setattr(batch, "_DRAWN_AT_ONCE", 2_000)
        path = tmp_path / "quick.toml"
        path.write_text(
            'inherits = "tiny.toml"\ncompare = ["centralized", "uniform", "independent"]\n'
            '[[population.learners]]\nname = "linear"\nkind = "linear"\nview = "pixels"\n'
        )
        return path

    def test_help_says_what_scores(self, lntrust: Any) -> None:
        told = " ".join(lntrust("tune", "--help").out.split())
        assert "scored on validation data; test data take no part" in told

    @pytest.mark.parametrize("name", ["mean_teacher", "lntrust"])
    def test_the_ranges_are_where_the_help_says(self, lntrust: Any, name: str) -> None:
        assert "The ranges are in `lntrust methods NAME`" in " ".join(lntrust("tune", "--help").out.split())
        shown = lntrust("methods", name).out.split("[methods.")[1]
        for where in search_space(list_methods()[name].settings_class).values():
            for end in where.choices or (where.low, where.high):
                assert (f"{end:g}" if isinstance(end, float) else str(end)) in shown

    def test_two_trials_a_method_and_a_study_to_run(
        self, lntrust: Any, quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without options: all that the study compares, but for the reference that is not tuned."""
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        got = lntrust("tune", quick, "--trials", "2")
        assert (got.code, got.err) == (0, "")
        lines = [json.loads(line) for line in Path("quick-tuned.jsonl").read_text().splitlines()]
        trials = [(line["method"], line["trial"]) for line in lines]
        assert trials == [("uniform", 0), ("uniform", 1), ("independent", 0), ("independent", 1)]
        assert lines[0]["settings"] == {"lr": 0.05}
        assert "Scores are on validation data" in got.out
        tuned = load_study("quick-tuned.toml")
        assert (tuned.name, tuned.compare) == ("quick-tuned", ["independent", "uniform"])
        assert tuned.graph.nodes == 5
        rows = [re.sub(r"\s", "", row).strip("│").split("│") for row in got.out.splitlines() if row[0] == "│"]
        assert [row[0] for row in rows] == ["uniform", "independent"]
        for name, *shown in rows:
            own = [line for line in lines if line["method"] == name]
            best = max(own, key=lambda line: line["score"])
            scores = [f"{line['score']:.3f}" for line in (own[0], best)]
            assert shown == ["2", *scores, f"lr={best['settings']['lr']:.3g}"]
            assert tuned.methods[name] == best["settings"]
        done = lntrust("run", "quick-tuned.toml", "--method", "uniform", "--json")
        assert json.loads(done.out)["study"] == "quick-tuned"

    def test_what_is_done_is_kept_and_other_methods_come_beside_it(
        self, lntrust: Any, quick: Path, tmp_path: Path
    ) -> None:
        to = tmp_path / "new" / "mine.toml"
        arguments = ["tune", quick, "--trials", "1", "--out", to]
        assert lntrust(*arguments, "--method", "uniform").code == 0
        log = to.with_suffix(".jsonl")
        first = log.read_text()
        assert load_study(to).compare == ["uniform"]
        assert lntrust(*arguments, "--method", "uniform").code == 0
        assert log.read_text() == first
        assert lntrust(*arguments, "--method", "independent").code == 0
        assert log.read_text().startswith(first)
        assert len(log.read_text().splitlines()) == 2
        assert load_study(to).compare == ["independent", "uniform"]

    def test_what_was_set_is_in_the_study_that_is_written(
        self, lntrust: Any, quick: Path, tmp_path: Path
    ) -> None:
        to = tmp_path / "set.toml"
        got = lntrust(
            "tune", quick, "--method", "uniform", "--trials", "1", "--set", "training.lr=0.02", "--out", to
        )
        assert got.code == 0
        tuned = load_study(to)
        assert tuned.training.lr == tuned.methods["uniform"]["lr"] == 0.02
        assert "inherits" not in to.read_text()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--out", "study.json"], "--out study.json: must end in .toml"),
            (["--method", "centralized"], "--method centralized: .*nothing to tune"),
            (["--method", "indepndent"], "--method indepndent: did you mean independent?"),
            (["--method", "uniform", "--method", "lntrst"], "--method lntrst: did you mean lntrust?"),
        ],
    )
    def test_what_cannot_be_tuned_is_refused_before_the_first_trial(
        self,
        lntrust: Any,
        quick: Path,
        tmp_path: Path,
        arguments: list[str],
        message: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        got = lntrust("tune", quick, *arguments)
        assert got.code == 2
        assert re.match(f"error: {message}", got.err)
        assert got.out == ""
        assert list((tmp_path / "here").iterdir()) == []

    def test_ctrl_c_keeps_the_log_and_says_what_there_is_to_do(
        self, lntrust: Any, quick: Path, tmp_path: Path
    ) -> None:
        """The same command goes on; `tune` has no --resume that could be named."""
        to = tmp_path / "mine.toml"
        methods = ["--method", "uniform", "--method", f"{__name__}:Interrupted"]
        got = lntrust("tune", quick, "--trials", "1", "--out", to, *methods)
        assert got.code == 130
        assert got.err.startswith("interrupted; what was done is kept")
        assert len(to.with_suffix(".jsonl").read_text().splitlines()) == 1
        assert load_study(to).compare == ["uniform"]
        assert "--resume" not in got.err
