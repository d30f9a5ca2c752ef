"""Runs that diverged beside others that did not, in every command that shows runs."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

STUDY = """
inherits = "tiny.toml"
methods = { uniform = { lr = 1e12 }, lntrust = { warmup = 1 } }
population.learners = [{ name = "mlp", kind = "mlp", view = "pixels", options = { hidden = 16 } }]
"""
METHODS = """
import torch
from lntrust.methods import Method

class Breaks(Method):
    def round(self, site, state, t):
        state = super().round(site, state, t)
        seeds = [world.seed for world in site.world.worlds]
        if 1 in seeds and t == 2:
            nodes = site.world.nodes_of(seeds.index(1))
            for stack in site.population.torch_stacks:
                for parameter in stack.params.values():
                    parameter[nodes] = torch.nan
        return state
"""


@pytest.fixture
def quick(here: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with a method that breaks down under seed 1, in round 4; commands are given beside it."""
    monkeypatch.syspath_prepend(here)
    sys.modules.pop("broken", None)
    Path("broken.py").write_text(METHODS, "utf-8")
    Path("quick.toml").write_text(STUDY, "utf-8")
    return here / "quick.toml"


def test_the_learning_rate_that_was_an_internal_error(lntrust: Any, tmp_path: Path) -> None:
    some = ["--method", "lntrust", "--seed", "0", "--set", "training.lr=1000", "--device", "cpu"]
    got = lntrust("run", "digits", *some, "--out", tmp_path)
    assert got.code == 0
    words = re.search(r"diverged at round (\d+)", got.words)
    assert words
    assert 1 <= int(words[1]) < 50  # in Stage 1
    assert f"note: lntrust, seed 0: {words[0]}, no scores; " in got.err
    (summary,) = (json.loads(path.read_text()) for path in tmp_path.rglob("summary.json"))
    assert (summary["diverged"], summary["test"]) == (int(words[1]), None)


BROKEN_MODEL = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

class Estimator(ClassifierMixin, BaseEstimator):
    def fit(self, x, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.full((len(x), len(self.classes_)), np.nan)
"""


def test_a_model_that_never_was_finite(lntrust: Any, quick: Path) -> None:
    """It takes no steps, and so is found out where it is evaluated."""
    Path("broken_model.py").write_text(BROKEN_MODEL, "utf-8")
    own = 'population.learners=[{name="own",kind="broken_model:Estimator",view="pixels"}]'
    got = lntrust("run", quick, "--method", "independent", "--seed", "0", "--device", "cpu", "--set", own)
    assert got.code == 0, got.err
    assert "diverged at round 2" in got.words
    assert "diverged at round 2, no scores; if its steps were too large, a smaller lr" in got.err
    assert "diverged at round 2" in lntrust("compare", "runs").words


def test_run_goes_on_with_the_rest_and_shows_all(lntrust: Any, quick: Path) -> None:
    some = ["--method", "broken:Breaks,uniform,independent", "--device", "cpu", "--seed", "0-1"]
    got = lntrust("run", quick, *some)
    assert got.code == 0
    table = got.words
    assert re.search(r"broken:Breaks \.\d{3} .*1 of 2 seeds; seed 1 diverged at round 4", table)
    assert re.search(r"uniform( –){8} \S+ seeds 0, 1 diverged at round 1", table)
    assert re.search(r"independent \.\d{3} ", table)
    assert len(re.findall(r"note: .*diverged", got.err)) == 3
    as_json = lntrust("run", quick, *some, "--json")
    assert as_json.code == 0
    lines = [json.loads(line) for line in as_json.out.splitlines()]
    assert [line["diverged"] for line in lines] == [None, 4, 1, 1, None, None]
    assert "NaN" not in as_json.out


def test_sweep_goes_on_and_keeps_what_diverged(lntrust: Any, quick: Path) -> None:
    arguments = ["sweep", quick, "--method", "independent,uniform", "--seed", "0", "--device", "cpu"]
    arguments += ["--grid", "methods.uniform.lr=1e12,0.1", "--out", "runs"]
    got = lntrust(*arguments)
    assert got.code == 0
    assert re.search(r"uniform, seed 0, methods\.uniform\.lr=1e12: diverged at round 1; \d/3 tasks", got.err)
    assert "diverged at round 1" in got.words
    assert re.search(r"independent \.\d{3}", got.words)
    again = lntrust(*arguments, "--json")
    assert again.err == "kept 3; --fresh makes them anew\n"
    assert [json.loads(line)["diverged"] for line in again.out.splitlines()] == [None, 1, None]


def test_compare_collect_report_and_figures(lntrust: Any, quick: Path) -> None:
    """Independent and LNTrust as they should be, uniform not at all, and one seed of `broken` of three."""
    methods, runs = "independent,uniform,lntrust,broken:Breaks", Path("runs")
    got = lntrust("sweep", quick, "--method", methods, "--seed", "0-2", "--device", "cpu")
    assert got.code == 0, got.err
    got = lntrust("compare", runs, "-o", "all.parquet")
    assert got.code == 0, got.err
    assert "quick, seeds 0, 1, 2" in got.words
    assert "diverged at round 1" in got.words
    rows = {row["method"]: row for row in pq.read_table("all.parquet").to_pylist()}
    assert {method: (row["seeds"], row["diverged"]) for method, row in rows.items()} == {
        "independent": ([0, 1, 2], None), "lntrust": ([0, 1, 2], None),
        "uniform": ([], "seeds 0, 1, 2 diverged at round 1"),
        "broken:Breaks": ([0, 2], "2 of 3 seeds; seed 1 diverged at round 4"),
    }  # fmt: skip
    collected = lntrust("collect", runs, "-o", "kept.parquet")
    assert collected.code == 0
    assert "12 runs" in collected.out
    assert lntrust("compare", "kept.parquet").out == lntrust("compare", runs).out
    got = lntrust("report", runs, "-o", "page.html")
    assert got.code == 0, got.err
    assert "12 runs" in got.out
    page = Path("page.html").read_text()
    assert "(2 of 3 seeds; seed 1 diverged at round 4)" in page
    assert "(seeds 0, 1, 2 diverged at round 1)" in page
    figures = lntrust("figures", runs, "-o", "drawn", "--format", "png")
    assert figures.code == 0, figures.err
    assert {"quick-curves.png", "quick-bytes.png", "quick-trust.png"} <= {
        p.name for p in Path("drawn").iterdir()
    }


def test_commands_where_everything_diverged(lntrust: Any, quick: Path) -> None:
    assert lntrust("run", quick, "--method", "uniform", "--seed", "0", "--device", "cpu").code == 0
    got = lntrust("compare", "runs")
    assert got.code == 0
    assert re.search("diverged at .*round 1", got.words)  # a long label goes on below
    assert lntrust("report", "runs", "-o", "page.html").code == 0
    drawn = lntrust("figures", "runs", "-o", "drawn")
    assert (drawn.code, drawn.err) == (2, "error: runs: nothing there that can be drawn\n")


def test_tune_goes_on_after_a_trial_that_diverged(lntrust: Any, quick: Path) -> None:
    got = lntrust("tune", quick, "--method", "uniform", "--trials", "3", "--device", "cpu")
    assert got.code == 0, got.err
    lines = [json.loads(line) for line in Path("quick-tuned.jsonl").read_text().splitlines()]
    assert [(line["diverged"], line["score"]) for line in lines[:1]] == [(1, None)]
    assert all(line["diverged"] is None and line["score"] > 0 for line in lines[1:])
    assert "diverged at round 1" in got.words
    best = max(lines[1:], key=lambda line: line["score"])
    assert f"{best['score']:.3f}" in got.out
    assert f"lr = {best['settings']['lr']}" in Path("quick-tuned.toml").read_text()
