"""Nothing that was made from other things is taken for a result; and what is made anew says why."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lntrust.cli.board import Board
from lntrust.core.files import read_json
from lntrust.experiment import Run
from lntrust.experiment.store import changes, read_runs
from lntrust.experiment.sweep import Task, Work
from lntrust.learners.views import Views
from lntrust.report.rows import rows_of
from lntrust.world import Dataset

Call = Callable[..., tuple[list[dict[str, Any]], str]]

METHOD = """
from lntrust.methods import Method
from steps import how_many


class Eager(Method):
    about = "labelled steps, on a part of the rounds"

    def round(self, site, state, t):
        return super().round(site, state, t) if t <= how_many() else state
"""
MODEL = """
from torch import nn


def wide(shape, classes, width=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))
"""


@pytest.fixture
def place(tmp_path: Path, quick_file: Path) -> Path:
    (tmp_path / "eager.py").write_text(METHOD)
    (tmp_path / "steps.py").write_text("def how_many():\n    return 1\n")
    (tmp_path / "models.py").write_text(MODEL)
    (tmp_path / "idle.py").write_text("UNUSED = 1\n")
    own = '}, { name = "wide", kind = "models:wide", view = "pixels" }]'
    quick_file.write_text(quick_file.read_text().replace("}]", own))
    return tmp_path


@pytest.fixture
def command(place: Path) -> Call:
    """A process of its own for each command, as the user who edits a file has it."""

    def call(*words: str) -> tuple[list[dict[str, Any]], str]:
        done = subprocess.run(
            [sys.executable, "-m", "lntrust.cli", *words, "--device", "cpu", "--json"], cwd=place,
            capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return call


@pytest.mark.parametrize("verb", [["sweep", "--method"], ["run", "--method"]])
class TestAnEditedPlugin:
    def test_is_run_again_and_the_others_are_kept(self, verb: list[str], command: Call, place: Path) -> None:
        def both() -> tuple[list[dict[str, Any]], str]:
            many = [verb[1], "independent", verb[1], "eager:Eager"]
            return command(verb[0], "quick.toml", *many, "--set", "seeds=[0,1]")

        first, _ = both()
        kept, said = both()
        assert kept == first
        assert "kept 4; --fresh makes them anew" in said
        (place / "idle.py").write_text("UNUSED = 2\n")
        assert both()[0] == first, "it has nothing to do with it"
        (place / "steps.py").write_text("def how_many():\n    return 3\n")
        now, said = both()
        assert "kept 2, making 2 anew: steps.py has changed" in said
        assert now[:2] == first[:2]
        assert [run["test"] for run in now[2:]] != [run["test"] for run in first[2:]]
        (place / "models.py").write_text(MODEL.replace("nn.ReLU", "nn.Tanh"))
        then, said = both()
        assert "making 4 anew: models.py has changed" in said
        assert all(a["test_pooled"] != b["test_pooled"] for a, b in zip(then, now, strict=True))

    def test_fresh_makes_all_anew_and_what_another_revision_made_is_kept_and_said(
        self, verb: list[str], command: Call, place: Path
    ) -> None:
        words = [verb[0], "quick.toml", verb[1], "independent"]
        ((first,), _) = command(*words)
        (file,) = place.rglob("run.json")
        run = read_json(file)
        run["versions"]["revision"] = "0123456789ab"
        file.write_text(json.dumps(run))
        _, said = command(*words)
        assert "kept 1 (made by revision 0123456789ab of lntrust); --fresh makes them anew" in said
        (place / "models.py").write_text(MODEL.replace("nn.ReLU", "nn.Tanh"))
        command(*words)
        (place / "models.py").write_text(MODEL)
        (file.parent / "summary.json").write_text("{}")  # not what a run would give
        ((again,), said) = command(*words, "--fresh")
        assert "kept" not in said
        assert "has changed" not in said, "what was asked for need not be said"
        assert again["per_node"] == first["per_node"]


def scaled(dataset: Dataset, by: float) -> Dataset:
    """Other data under the same name."""
    views = {name: (lambda name=name: by * np.asarray(dataset.view(name))) for name in dataset.views}
    return replace(dataset, views=views)


class TestData:
    def test_a_second_dataset_of_one_name_is_another_run(
        self, tiny: Any, views: Views, tmp_path: Path
    ) -> None:
        mine, yours = views, Views(scaled(views.dataset, 0.1), torch.device("cpu"), torch.float32)
        first = Run(tiny(), "independent", 0, mine, folder=tmp_path)(resume=True)
        other = Run(tiny(), "independent", 0, yours, folder=tmp_path)(resume=True)
        assert other["test_pooled"] != first["test_pooled"]
        assert Run(tiny(), "independent", 0, mine, folder=tmp_path)(resume=True) == first
        Run(tiny(), "independent", 1, mine, folder=tmp_path)()
        rows = {row.label: row.seeds for row in rows_of(read_runs([tmp_path]))["tiny"]}
        other_data = yours.dataset.digest(["pixels"])
        assert rows == {"independent": [0, 1], f"independent, content = {other_data}": [0]}

    def test_the_digest_is_of_the_content(self, views: Views) -> None:
        digits = views.dataset
        moved = replace(digits, labels=np.roll(digits.labels, 1))
        every = (digits, scaled(digits, 1.0), scaled(digits, 0.5), moved)
        found = {each.digest(["pixels"]) for each in every}
        assert len(found | {digits.digest(["pixels", "image"])}) == 4


def test_however_many_wait_each_finished_run_is_read_once(
    tiny: Any, views: Views, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Before the first of a thousand begins, nobody waits for a million files."""
    tasks = [
        Task(study=tiny(f"training.lr={lr}"), method="uniform", seeds=[s], device="cpu", setting={"lr": lr})
        for lr in ("0.1", "0.2", "0.3")
        for s in (0, 1)
    ]
    for task in [task.on(views.dataset) for task in tasks]:
        (identity,), (folder,) = task.identities, task.folders
        before = tmp_path / folder.parent / f"{folder.name}-before"
        before.mkdir(parents=True)
        (before / "run.json").write_text(json.dumps({**identity, "content": {"schema": 2, "data": "before"}}))
        (before / "summary.json").write_text("{}")
    read: list[Path] = []
    monkeypatch.setattr(changes, "read_json", lambda path: read.append(path) or read_json(path))
    work = Work(folder=tmp_path, here=tmp_path)
    Board(tasks, {"digits": views.dataset}, work, resume=True)
    assert "making 6 anew: the data of digits have changed" in capsys.readouterr().err
    assert len(read) == len(set(read)) == 6
