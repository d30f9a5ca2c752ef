"""Presets on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from lntrust.learners import batch
from lntrust.methods.lntrust.presets import LEAN, names

SMALL = ["--set", "graph.nodes=5", "--set", "partition.labelled=250", "--set", "training.stage1_rounds=2",
         "--set", "training.stage2_rounds=3"]  # fmt: skip


@pytest.fixture(autouse=True)
def _few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few steps draw millions of positions ahead otherwise; it changes no result."""
    monkeypatch.setattr(batch, "_DRAWN_AT_ONCE", 2_000)


class TestRun:
    def test_a_preset_of_a_shipped_study(self, lntrust: Any, tmp_path: Path) -> None:
        few = ("--set", "methods.lntrust+lean.final_rounds=0")  # or it says that this run is too short for 50
        got = lntrust(
            "run",
            "digits",
            "--preset",
            "lean",
            "--seed",
            "0",
            *SMALL,
            *few,
            "--json",
            "--out",
            tmp_path / "out",
        )
        assert (got.code, got.err) == (0, "")
        (summary,) = map(json.loads, got.out.splitlines())
        assert summary["method"] == "lntrust+lean"
        (folder,) = (tmp_path / "out" / "digits" / "lntrust+lean").glob("seed-0-*")
        told = json.loads((folder / "run.json").read_text())
        assert told["method"] == "lntrust+lean"
        assert {**LEAN.settings, "final_rounds": 0}.items() <= {"final_rounds": 0, **told["settings"]}.items()
        assert json.loads((folder / "summary.json").read_text()) == summary

    def test_it_is_short_for_a_method_s_name(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        told = []
        for k, how in enumerate((["--preset", "safe"], ["--method", "lntrust+safe"])):
            got = lntrust("run", tiny_file, *how, "--json", "--out", tmp_path / str(k))
            assert got.code == 0
            assert "trust is learned once" in got.err  # 50 final rounds, and Stage 2 has three
            summary = json.loads(got.out)
            del summary["seconds"]
            told.append(summary)
        assert told[0] == told[1]
        (first,), (second,) = ((tmp_path / str(k)).glob("tiny/lntrust+safe/seed-0-*") for k in (0, 1))
        assert first.name == second.name

    def test_beside_methods(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        got = lntrust("run", tiny_file, "--method", "independent", "--preset", "best", "--json",
                      "--out", tmp_path / "out")  # fmt: skip
        assert [json.loads(line)["method"] for line in got.out.splitlines()] == [
            "independent",
            "lntrust+best",
        ]

    def test_set_wins(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        got = lntrust("run", tiny_file, "--preset", "lean", "--set", "methods.lntrust+lean.top_k=3",
                      "--set", "methods.lntrust+lean.final_rounds=0",
                      "--json", "--out", tmp_path / "out")  # fmt: skip
        assert (got.code, got.err) == (0, "")
        (path,) = (tmp_path / "out").glob("tiny/lntrust+lean/*/run.json")
        assert json.loads(path.read_text())["settings"]["top_k"] == 3

    def test_an_unknown_one(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        got = lntrust("run", tiny_file, "--preset", "fast", "--out", tmp_path / "out")
        assert got.code != 0
        assert "--preset" in got.err
        assert all(name in got.err for name in ("lean", "safe", "best"))
        got = lntrust("run", tiny_file, "--method", "lntrust+leen", "--out", tmp_path / "out")
        assert got.code != 0
        assert "did you mean lntrust+lean?" in " ".join(got.err.split())
        assert not (tmp_path / "out").exists()


class TestShown:
    def test_among_the_methods(self, lntrust: Any) -> None:
        got = lntrust("methods")
        assert got.code == 0
        assert all(name in got.out for name in names())

    @pytest.mark.parametrize("name", names())
    def test_with_its_settings(self, lntrust: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        got = lntrust("methods", name)
        assert (got.code, got.err) == (0, "")
        assert f'[methods."{name}"]' in got.out
        assert "→ " in got.out
        plain = lntrust("methods", "lntrust")
        assert "→ " not in plain.out

    def test_an_unknown_one(self, lntrust: Any) -> None:
        got = lntrust("methods", "lntrust+leen")
        assert got.code != 0
        assert all(name in got.err for name in names())
