"""`lntrust tune` as its users see it."""

import json
from pathlib import Path
from typing import Any

from lntrust import load_study
from lntrust.methods import Method, Site, State


class Interrupted(Method):
    """Somebody presses Ctrl-C while it trains."""

    def start(self, site: Site) -> State:
        raise KeyboardInterrupt


def test_two_trials_a_method_and_a_study_to_run(lntrust: Any, quick_file: Path, here: Path) -> None:
    """Without options: all that the study compares, but for the reference that is not tuned."""
    compare = '["centralized", "uniform", "independent"]'
    Path("few.toml").write_text(f'inherits = "quick.toml"\ncompare = {compare}\n')
    got = lntrust("tune", "few.toml", "--trials", "2")
    assert (got.code, got.err) == (0, "")
    lines = [json.loads(line) for line in Path("few-tuned.jsonl").read_text().splitlines()]
    trials = [(line["method"], line["trial"]) for line in lines]
    assert trials == [("uniform", 0), ("uniform", 1), ("independent", 0), ("independent", 1)]
    assert lines[0]["settings"] == {"lr": 0.05}
    assert "Scores are on validation data" in got.out
    tuned = load_study("few-tuned.toml")
    assert (tuned.name, tuned.compare) == ("few-tuned", ["independent", "uniform"])
    assert tuned.graph.nodes == 5
    assert list(got.cells) == ["uniform", "independent"]
    printed = lntrust("tune", "few.toml", "--trials", "2", "--json").out
    again = [json.loads(line) for line in printed.splitlines()]
    for (name, shown), as_json in zip(got.cells.items(), again, strict=True):
        own = [line for line in lines if line["method"] == name]
        best = max(own, key=lambda line: line["score"])
        scores = [f"{line['score']:.3f}" for line in (own[0], best)]
        assert shown == ["2", *scores, f"lr={best['settings']['lr']:.3g}"]
        assert tuned.methods[name] == best["settings"]
        found = {"before": own[0]["score"], "best": best["score"], "settings": best["settings"]}
        assert as_json == {"method": name, "trials": 2, **found}
    done = lntrust("run", "few-tuned.toml", "--method", "uniform", "--json")
    assert json.loads(done.out)["study"] == "few-tuned"


def test_what_is_done_is_kept_and_other_methods_come_beside_it(
    lntrust: Any, quick_file: Path, tmp_path: Path
) -> None:
    to = tmp_path / "new" / "mine.toml"
    arguments = ["tune", quick_file, "--trials", "1", "--set", "training.lr=0.02", "--out", to]
    assert lntrust(*arguments, "--method", "uniform").code == 0
    tuned = load_study(to)  # what was set is in it
    assert tuned.training.lr == tuned.methods["uniform"]["lr"] == 0.02
    assert "inherits" not in to.read_text()
    log = to.with_suffix(".jsonl")
    first = log.read_text()
    assert load_study(to).compare == ["uniform"]
    assert lntrust(*arguments, "--method", "uniform", "--resume").code == 0
    assert log.read_text() == first
    assert lntrust(*arguments, "--method", "independent").code == 0
    assert log.read_text().startswith(first)
    assert len(log.read_text().splitlines()) == 2
    assert load_study(to).compare == ["independent", "uniform"]
    assert lntrust(*arguments, "--method", "independent", "--fresh").code == 0
    assert len(log.read_text().splitlines()) == 1
    assert load_study(to).compare == ["independent"]


def test_ctrl_c_keeps_the_log_and_says_what_there_is_to_do(
    lntrust: Any, quick_file: Path, tmp_path: Path
) -> None:
    to = tmp_path / "mine.toml"
    methods = ["--method", f"uniform,{__name__}:Interrupted"]
    got = lntrust("tune", quick_file, "--trials", "1", "--out", to, *methods)
    assert got.code == 130
    assert got.err == "interrupted; what was done is kept, and the same command continues\n"
    assert len(to.with_suffix(".jsonl").read_text().splitlines()) == 1
    assert load_study(to).compare == ["uniform"]
