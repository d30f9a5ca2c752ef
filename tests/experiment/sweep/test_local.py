"""Sweeps by processes of this machine: stopped, killed, and gone on with."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stopped_runs import folder_of, list_attempts, results

from lntrust.experiment import Run
from lntrust.experiment.sweep.local import ATTEMPTS
from lntrust.learners.views import Views
from lntrust.study.loading import load_study


@pytest.fixture
def quick(tmp_path: Path, quick_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with methods that meet trouble beside it; commands are given there."""
    shutil.copy(Path(__file__).parents[1] / "troubled.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("troubled", None)
    more = "\n[training]\nstage2_rounds = 12\n\n[evaluation]\nevery = 4\n"
    quick_file.write_text(quick_file.read_text("utf-8") + more, "utf-8")
    return quick_file


def runs(folder: Path) -> dict[int, Path]:
    """Run folders by seed."""
    return {int(path.name.split("-")[1]): path for path in folder.glob("*/*/seed-*")}


def files(folder: Path) -> set[Path]:
    """What there is but for attempts; hidden files are what is being written."""
    found = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
    return {path for path in found if not path.name.startswith("attempt-")}


def until(what: Callable[[], Any], child: "subprocess.Popen[str] | None" = None) -> Any:
    deadline = time.monotonic() + 60
    while not (found := what()):
        assert child is None or child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_task_of_a_killed_worker_goes_on_in_another_and_nothing_runs_twice(
    lntrust: Any, quick: Path, views: Views, tmp_path: Path
) -> None:
    some = ["--method", "troubled:DiesOnce", "--seed", "0-2", "--device", "cpu"]
    got = lntrust("sweep", quick, *some, "--out", "runs")
    assert got.code == 0, got.err
    folders = runs(tmp_path / "runs")
    assert set(folders) == {0, 1, 2}
    tried = {seed: list_attempts(folder) for seed, folder in folders.items()}
    # Two rounds of Stage 1 and two of Stage 2 were in the checkpoint; the dead process had begun a third.
    assert [(a["number"], a["resumed"]) for a in tried[0]] == [(1, 0), (2, 4)]
    assert [(a["number"], a["resumed"]) for seed in (1, 2) for a in tried[seed]] == [(1, 0), (1, 0)]
    first, second = (a["pid"] for a in tried[0])
    assert first != second
    assert {a["pid"] for seed in (1, 2) for a in tried[seed]} == {second}
    for seed, folder in folders.items():
        one = Run(load_study(quick), "troubled:DiesOnce", seed, views, folder=tmp_path / "whole")
        whole = folder_of(one)
        assert results(folder) == results(whole)
        assert files(folder) == files(whole)


def test_a_task_that_no_worker_survives_is_given_up_and_the_others_are_not(
    lntrust: Any, quick: Path, tmp_path: Path
) -> None:
    methods = "troubled:Deadly,troubled:Fails"
    got = lntrust(
        "sweep", quick, "--method", methods, "--seed", "0,1", "--workers", "2", "--device", "cpu",
        "--json", "--out", "runs",
    )  # fmt: skip
    assert got.code == 2
    done = [json.loads(line) for line in got.out.splitlines()]
    assert {(one["method"], one["seed"]) for one in done} == {("troubled:Deadly", 1), ("troubled:Fails", 1)}
    listed = got.err.split("error: ")[1]
    assert listed.splitlines() == [
        "2 of 4 tasks failed:",
        f"  troubled:Deadly, seed 0: the process that worked on it died {ATTEMPTS} times (SIGKILL)",
        "  troubled:Fails, seed 0: not with this seed",
    ]
    (folder,) = (tmp_path / "runs").glob("quick/troubled-Deadly/seed-0-*")
    assert [a["number"] for a in list_attempts(folder)] == list(range(1, ATTEMPTS + 1))


class TestStopped:
    @pytest.fixture
    def command(self, quick: Path) -> list[str]:
        command = [sys.executable, "-m", "lntrust.cli", "sweep", "quick.toml"]
        return [*command, "--method", "troubled:Slow", "--seed", "0-1", "--device", "cpu", "--out", "runs"]

    def started(self, command: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Where tests run in the background SIGINT is ignored, and would be by the child.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def test_ctrl_c_and_the_same_command_again(
        self, command: list[str], lntrust: Any, tmp_path: Path
    ) -> None:
        folder = tmp_path / "runs"
        child = self.started(command)
        try:
            until(lambda: (f := runs(folder).get(1)) and (f / "checkpoint.safetensors").exists(), child)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
        assert child.returncode == 130
        assert said.endswith("interrupted; what was done is kept, and the same command continues\n")
        (before,) = list_attempts(runs(folder)[1])
        assert not alive(before["pid"])
        assert not (runs(folder)[1] / "summary.json").exists()
        assert not list(folder.rglob(".*")), "half-written files were removed"
        kept = (runs(folder)[0] / "summary.json").stat().st_mtime_ns
        got = lntrust(*command[3:])
        assert got.code == 0
        assert got.err.startswith("kept 1; --fresh makes them anew\ntroubled:Slow, seed 1: test")
        assert (runs(folder)[0] / "summary.json").stat().st_mtime_ns == kept
        assert len(list_attempts(runs(folder)[0])) == 1
        again = list_attempts(runs(folder)[1])
        assert [a["number"] for a in again] == [1, 2]
        assert again[1]["resumed"] > 0
        assert "quick, seeds 0, 1" in got.out

    def test_a_worker_whose_sweep_is_killed_stops_by_itself(self, command: list[str], tmp_path: Path) -> None:
        child = self.started(command)
        try:
            until(lambda: list((tmp_path / "runs").rglob("checkpoint.safetensors")), child)
        finally:
            child.kill()
            child.communicate()
        (worker,) = list_attempts(runs(tmp_path / "runs")[0])
        until(lambda: not alive(worker["pid"]))
        assert not list((tmp_path / "runs").rglob("summary.json"))
