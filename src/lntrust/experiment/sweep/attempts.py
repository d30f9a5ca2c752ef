"""Attempts: one process carries out one task, where another may believe that the task is its own.

A worker that is lost may only be out of reach, and go on. So a process that takes up a run first takes a
number in its folder, `attempt-N.json`, and the highest number owns the run. A hard link makes it: on one
machine and on a shared file system alike one process gets each number, and its content is there at once.
An attempt looks for the next number before it writes, and stops when there is one. Between that look and a
write there is an instant in which a newer attempt may begin; nothing is spoilt, since every file appears
whole, by one rename, and both attempts make the same bits.
"""

import gc
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from lntrust.core.errors import CannotStackError, LNTrustError
from lntrust.core.files import read_json, write_json
from lntrust.core.plugins import users_fault
from lntrust.experiment.driver import Progress, Runs
from lntrust.experiment.store.identity import checkpoint, slug
from lntrust.experiment.store.records import evaluated_rounds, evaluation_file
from lntrust.experiment.store.schemas import Identity
from lntrust.experiment.sweep.plan import Answer, Summary, Task, Work, is_finished
from lntrust.learners.views import Views, pick_device
from lntrust.study.settings import Study
from lntrust.world import Dataset


class Superseded(LNTrustError):  # noqa: N818 - it is no error
    """A newer attempt owns the run: this one stops and writes nothing more."""


@dataclass(frozen=True)
class Attempt:
    """One number in one run folder."""

    folder: Path
    number: int

    def check(self) -> None:
        """Numbers have no gaps, so a newer attempt exists exactly when the next number does."""
        newer = _file(self.folder, self.number + 1)
        if newer.exists():
            raise Superseded(f"{self.folder}: attempt {self.number} stops, since {newer.name} is newer")


def claim(folder: Path, resumed: int = 0) -> Attempt:
    """Take the next number of a run folder. `resumed` is the round of the checkpoint that is found there."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"host": socket.gethostname(), "pid": os.getpid(), "started": started, "resumed": resumed}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".attempt-") as own:
            taken = [int(path.stem.removeprefix("attempt-")) for path in folder.glob("attempt-*.json")]
            number, content = max(taken, default=0), Path(own, "content")
            while not content.exists() or content.stat().st_nlink == 1:
                number += 1
                write_json(content, {"number": number, **about})
                with suppress(FileExistsError):  # also of our own link, where NFS has lost its first answer
                    os.link(content, _file(folder, number))
    except OSError as error:
        needed = "it must be writable, on a file system with hard links"
        raise LNTrustError(f"cannot write {folder}: {error}; {needed}") from None
    return Attempt(folder, number)


def _file(folder: Path, number: int) -> Path:
    return folder / f"attempt-{number}.json"


# -- work -----------------------------------------------------------------------------------------


def carry_out(
    task: Task,
    views: Views,
    folder: Path,
    *,
    guard: Callable[[], None] = lambda: None,
    progress: Progress = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> list[Summary]:
    """Finish the runs of a task: keep those that are done, go on with the others from their checkpoint."""
    runs = task.on(views.dataset).identities
    waiting = [of for of in runs if not is_finished(folder, of)]
    waiting = runs if waiting and goes_on(task.study, folder, runs) else waiting  # a stack that was stopped
    attempts: list[Attempt] = []

    def guarded() -> None:
        guard()
        for attempt in attempts:
            attempt.check()

    def go(seeds: list[int]) -> None:
        runs = Runs(
            task.study, task.method, seeds, views,
            backend=task.backend, certify=task.certify, folder=folder, notice=notice, guard=guarded,
            share_stage1=folder if task.share_stage1 else None,
        )  # fmt: skip
        if not attempts:  # what is refused has left nothing
            resumed = round_of(folder / checkpoint(waiting))
            attempts.extend(claim(folder / slug(of), resumed) for of in waiting)
        runs(resume=True, progress=progress)

    seeds = [of["seed"] for of in waiting]
    try:
        if seeds:
            go(seeds)
    except CannotStackError as why:
        if len(seeds) == 1:
            raise
        notice(f"{task.method}: {why}; so they are")
        for seed in seeds:
            go([seed])
    return [read_json(folder / slug(of) / "summary.json") for of in runs]


def round_of(path: Path) -> int:
    """The round of a checkpoint; what cannot be read is the run's to complain about."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(file.metadata()["round"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return 0


def goes_on(study: Study, folder: Path, of: Sequence[Identity]) -> bool:
    """Whether these runs have a checkpoint of their stack to go on from.

    Not if one of them has been finished or made anew by itself since; what is left of the stack then goes.
    A stack that has trained to its end still has summaries to write, whoever has one.
    """
    path = folder / checkpoint(of)
    if len(of) == 1 or not path.is_file():
        return False
    folders, done, due = [folder / slug(each) for each in of], round_of(path), evaluated_rounds(study)
    kept = all(evaluation_file(each, n).is_file() for each in folders for n in due if n <= done)
    ended = done == study.training.rounds
    if kept and (ended or not any((each / "summary.json").is_file() for each in folders)):
        return True
    shutil.rmtree(path.parent, ignore_errors=True)
    return False


_kept: dict[tuple[str, ...], Views] = {}  # decoded once in a process, for all tasks of a sweep


def answer(
    text: str,
    shared: str,
    load: Callable[[str], Dataset],
    guard: Callable[[], None] = lambda: None,
    progress: Progress = lambda *_: None,
) -> str:
    """Carry out a task given as JSON. Whatever goes wrong with it is an answer too, and ends nothing else.

    `shared` is the sweep's `Work` as JSON; `load` finds a dataset by its name.
    """
    made, work = Answer(), Work.model_validate_json(shared)
    gc.collect()  # what the last task held on a GPU goes now, and not when Python finds the time
    torch.set_num_threads(work.threads)
    try:
        task = Task.model_validate_json(text)
        dataset, precision = task.study.data.dataset, task.study.training.precision
        key = (shared, dataset, precision, task.device)
        if key not in _kept:
            _kept[key] = Views(load(dataset), pick_device(task.device), getattr(torch, precision))
        told: dict[str, Any] = {"guard": guard, "progress": progress, "notice": made.notices.append}
        made.summaries = carry_out(task, _kept[key], work.folder, **told)
    except LNTrustError as error:
        made.error, made.superseded = str(error), isinstance(error, Superseded)
    except torch.cuda.OutOfMemoryError:
        made.error = "the GPU's memory does not hold this stack; give fewer seeds at a time"
    except Exception as error:
        made.error = users_fault(error) or f"internal error: {type(error).__name__}: {error}"
    return made.model_dump_json()
