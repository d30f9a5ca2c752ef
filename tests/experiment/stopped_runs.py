"""What tests of runs share: runs that are stopped, and all that a run leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lntrust.core.files import read_tensors
from lntrust.experiment import Run, Runs
from lntrust.methods import Method

Make = Callable[..., Any]  # the fixture `make`
LINEAR = 'population.learners=[{name="linear",kind="linear",view="pixels"}]'


def named(method: type[Method]) -> str:
    """As the command line names a method of one's own."""
    return f"{method.__module__}:{method.__name__}"


class Stopped(BaseException):
    """A run that was stopped in the midst of it."""


def stop_after(rounds: int | None) -> Callable[..., None]:
    """Progress that stops a run after so many rounds."""

    def progress(done: int, *_: object) -> None:
        if done == rounds:
            raise Stopped

    return progress


def stop(run: Runs, rounds: int, resume: bool = False) -> None:
    """Carry out a run, but only so far."""
    with pytest.raises(Stopped):
        run(resume=resume, progress=stop_after(rounds))


def rounds_of(run: Runs, resume: bool = False) -> list[int]:
    """Carry out a run; the rounds it went through, the one it began at first."""
    seen: list[int] = []
    run(resume=resume, progress=lambda done, *_: seen.append(done))
    return seen


def folder_of(run: Run) -> Path:
    """Carry out a run; where its results lie."""
    run()
    assert run.folder is not None
    return run.folder


def list_attempts(folder: Path) -> list[dict[str, Any]]:
    """All attempts at a run, the owner last."""
    found = [json.loads(file.read_text()) for file in folder.glob("attempt-*.json")]
    return sorted(found, key=lambda attempt: attempt["number"])


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    """All of a summary that must be equal: everything but how long it took."""
    return {name: value for name, value in summary.items() if name != "seconds"}


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of the one run in a folder."""
    (file,) = folder.rglob("summary.json")
    return timeless(json.loads(file.read_text()))


def results(folder: Path) -> dict[str, Any]:
    """All that the one run in a folder has left, bit for bit, but for its checkpoint and how long it took."""
    (summary,) = folder.rglob("summary.json")
    place = summary.parent
    return {
        "summary": read_summary(place),
        **{file.name: pq.read_table(file).to_pylist() for file in place.glob("*.parquet")},
        **{file.name: file.read_bytes() for file in place.glob("evaluations/round-*")},
    }


def checkpointed(folder: Path) -> dict[str, Any]:
    """What the checkpoint of the one run in a folder holds, bit for bit."""
    (file,) = folder.rglob("checkpoint.safetensors")
    tensors, metadata = read_tensors(file)
    return {**timeless(metadata), **{n: (t.dtype, t.shape, t.numpy().tobytes()) for n, t in tensors.items()}}
