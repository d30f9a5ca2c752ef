"""`python -m benchmarks.speed` as its users see it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.speed import ci, scale, speed
from benchmarks.speed.data import random_views
from lntrust import Study
from lntrust.learners.views import Views
from lntrust.world import build_world

THEMES = ("roofline", "speed", "scale", "peer")


class TestRoofline:
    def test_a_table_and_a_file(self, measured: Any) -> None:
        got, written = measured(
            "roofline", "--random-data", "--method", "lntrust,independent", "--threads", "1"
        )
        assert "sparse-cifar10, lntrust, seed 0" in got.out
        assert (written["theme"], written["random_data"]) == ("roofline", True)
        assert written["study"]["graph"]["nodes"] == 10
        assert written["hardware"]["threads"] == 1
        both = written["results"]
        assert [each["method"] for each in both] == ["lntrust", "independent"]
        for each, distilling in zip(both, (5, 0), strict=True):
            assert f"{each['ratio']['run']:.2f}" in got.out
            rows = {"step", "supervised_round", "run"} | ({"distilling_round"} if distilling else set())
            for part in ("ratio", "roofline_seconds", "run_seconds", "flops"):
                assert set(each[part]) == rows
            for row in rows:
                assert each["ratio"][row] == each["run_seconds"][row] / each["roofline_seconds"][row]
                assert each["ratio"][row] > 1, "nothing is faster than its own products"
            assert each["schedule"] == {"rounds": 8, "distilling": distilling, "steps": 2}
            assert [stack["budget"] for stack in each["stacks"]] == [20 if distilling else 0] * 2
        together, alone = (each["roofline_seconds"] for each in both)
        assert alone["step"] == together["step"], "the same yardstick for all"
        assert alone["run"] < together["run"]

    def test_shorter_without_data_and_as_json(self, measured: Any, tmp_path: Path) -> None:
        some = ["--rounds", "4", "--data", tmp_path / "none", "--method", "independent", "--json"]
        got, written = measured("roofline", *some)
        assert json.loads(got.out) == written
        assert written["results"][0]["schedule"]["rounds"] == 4
        assert written["random_data"] is True


def test_speed_has_a_row_for_every_study_and_method(measured: Any) -> None:
    some = ["sparse-cifar10", "--random-data", "--seed", "3", "--loop-rounds", "2"]
    _, written = measured("speed", *some)
    rows = written["results"]
    assert [(row["method"], row["seeds"]) for row in rows] == [("lntrust", [3]), ("independent", [3])]
    for row in rows:
        assert (row["study"], row["stacked"]) == ("sparse-cifar10", False)
        steps = 8 * 2 * 10  # rounds, steps, nodes
        assert row["node_steps_per_second"] == pytest.approx(steps / row["seconds_per_run"])
        assert 0 < row["build_seconds_per_run"] < row["seconds_per_run"]
        loop = row["loop"]
        assert loop["rounds"] == 2
        assert loop["ratio"] == loop["loop_seconds"] / loop["batched_seconds"] > 0
    assert set(written["study"]) == {"sparse-cifar10"}


def test_seeds_are_stacked_as_a_gpu_has_them(heads: Study, codes: Views) -> None:
    assert min(speed.all_at_once(heads, "independent", [0, 1], codes)) > 0


SETS = (
    "partition.pool=200", "partition.shard=50", "methods.lntrust.budget=20", "methods.lntrust.sample=10",
    "training.batch=8",
)  # fmt: skip


def test_the_world_that_is_measured() -> None:
    """Mean degree 4.88, 100 labels each, drawn by every node for itself."""
    study = scale.scale_study(60, SETS)
    views = random_views(study, rows=1500, features=8)
    world = build_world(study, views.dataset, 0)
    assert world.graph.number_of_edges() == int(4.88 / 59 * (60 * 59 // 2)) == 146
    parts = [getattr(world.partition, name) for name in ("train", "validation", "test")]
    assert set(sum(part.lengths for part in parts).tolist()) == {100}
    owned = np.concatenate([part.values for part in parts])
    assert len(np.unique(owned)) < len(owned) == 6000
    assert study.training.stage1_rounds == 0


def test_scale_has_a_table_a_file_and_a_plot(measured: Any, tmp_path: Path) -> None:
    sizes = ["--nodes", "40", "--nodes", "20", "--rows", "1500", "--features", "8", "--device", "cpu"]
    _, written = measured("scale", *sizes, sets=SETS[:3])
    assert [(row["nodes"], row["edges"]) for row in written["results"]] == [(20, 48), (40, 97)]
    for row in written["results"]:
        assert min(row["seconds"]["supervised"], row["seconds"]["distilling"]) > 0
        assert row["peak_memory_gb"] >= row["memory_before_gb"] > 0
        # 20 inputs of 3,072 bytes one way and 20·10 probabilities back, on every directed edge; and framing.
        payload = 2 * row["edges"] * 20 * (3072 + 4 * 10)
        assert payload < row["bytes"]["distilling"] < 1.05 * payload
        assert row["bytes"]["supervised"] == 0
    assert not re.search("accuracy|test", json.dumps(written["results"]))
    (plot,) = tmp_path.rglob("*.png")
    assert plot.with_suffix(".json").is_file()
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_peer_without_a_peer_is_our_side_alone(measured: Any) -> None:
    few = ["--rounds", "2", "--repeats", "1", "--threads", "1", "--device", "cpu"]
    got, written = measured("peer", *few, sets=())
    assert "gossipy was not measured" in got.out
    assert written["best"]["lntrust"]["updates"] == 200
    assert (written["ratio"], written["peer_versions"]) == (None, None)
    assert written["notes"]


class TestCI:
    @pytest.fixture
    def baseline(self, tmp_path: Path) -> Path:
        path = tmp_path / "baseline.json"
        ci.write_baseline(path, {"run": 3.0}, {})
        return path

    @pytest.mark.parametrize(("factor", "code"), [(1.9, 0), (2.0, 1)])
    def test_the_exit_code(
        self, bench: Any, baseline: Path, monkeypatch: pytest.MonkeyPatch, factor: float, code: int
    ) -> None:
        monkeypatch.setattr(ci, "measure", lambda: {"run": 3.0 * factor})
        got = bench("ci", "--baseline", baseline)
        assert got.code == code
        assert got.err.startswith("slower: run: ") is (code == 1)
        assert list(baseline.parent.iterdir()) == [baseline]

    def test_what_is_written(
        self, bench: Any, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ci, "measure", lambda: {"run": 4.0, "new": 1.23456})
        assert bench("ci", "--baseline", baseline, "--out", tmp_path / "out").code == 0
        (path,) = (tmp_path / "out").iterdir()
        written = json.loads(path.read_text())
        assert (written["ratios"], written["committed"]) == ({"run": 4.0, "new": 1.23456}, {"run": 3.0})
        assert bench("ci", "--baseline", baseline, "--update").code == 0
        assert ci.read_baseline(baseline) == {"run": 4.0, "new": 1.2346}
        assert set(json.loads(baseline.read_text())) == {"ratios", "hardware", "versions"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roofline", "sprase-cifar10"], "sprase-cifar10"),
        (["roofline", "--method", "lntrst"], "--method lntrst: did you mean lntrust?"),
        (["roofline", "--method", "dml", "--random-data"], "--method dml: the roofline is known for"),
        (["roofline", "--seed", "0-1"], "--seed 0-1: must be one seed here"),
        (["roofline", "digits"], "learner .* is no linear head"),
        (["roofline", "digits", "--random-data"], "--random-data: stands in for cifar10 and cifar100"),
        (["speed", "digits", "nothing.toml"], "nothing.toml"),
        (["speed", "digits", "--method", "lntrst"], "--method lntrst: did you mean lntrust?"),
        (["scale", "--nodes", "5"], "--nodes 5: must be at least 6"),
        (["peer", "--python", "/no/python"], "--python /no/python: cannot be run"),
        (["ci", "--baseline", "none.json"], "--baseline none.json: is not there; --update writes it"),
        *(([theme, "--out", __file__], "--out .*: is a file; must be a folder") for theme in THEMES),
        *(([theme, "--device", "cuda"], "--device cuda: torch sees no GPU here") for theme in THEMES),
    ],
)  # fmt: skip
def test_bad_input(
    bench: Any, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    got = bench(*arguments)
    assert (got.code, got.out) == (2, "")
    assert re.search(f"error: .*{message}", got.err)
    assert list(tmp_path.iterdir()) == []
