"""Methods beside each other: seeds in one stack where that pays, Stage 1 once for all who have the same."""

import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from lntrust.core.threads import FEW
from lntrust.experiment.driver import Progress, Runs
from lntrust.experiment.stacks import goes_on, stacked_or_alone
from lntrust.experiment.store.changes import kept_and_anew
from lntrust.experiment.store.identity import checkpoint, data_digest, identities, slug
from lntrust.experiment.sweep.local import run_tasks
from lntrust.experiment.sweep.plan import Summary, Task, Work, forget
from lntrust.learners.views import Views, numbers_in_a_step
from lntrust.study.settings import Study

_WORTH_A_WORKER = 500  # rounds that take longer than a worker takes to start
Begin = Callable[[str, Sequence[int], int], Progress]  # of a method, seeds, and how many rounds they have


def compared(
    study: Study,
    methods: Sequence[str],
    seeds: Sequence[int],
    views: Views,
    folder: Path,
    *,
    resume: bool = False,
    begin: Begin = lambda *_: lambda *_: None,
    workers: int | None = None,
    data: Path | None = None,
    **options: Any,
) -> Iterator[list[Summary]]:
    """Every method with every seed: the summaries of a method, as soon as it has them all.

    So many `workers`, which find the dataset in `data`, share the methods; none: as many as pay.
    """
    kept = folder / f".stage1-{uuid4().hex}"  # its own: a fresh start takes no earlier Stage 1
    shared = kept if len(methods) > 1 else None
    resumed = folder if resume else None
    stacks = {method: _stacks(study, method, sorted(seeds), views, resumed, options) for method in methods}
    tasks = [
        Task(study=study, method=method, seeds=some, device="cpu", setting={}).on(views.dataset)
        for method in methods for some in stacks[method]
    ]  # fmt: skip
    todo = [task for task in tasks if not (resume and task.finished(folder))]
    workers = workers or _workers(todo, views, options)
    moves: dict[str, Progress] = {}

    def move(method: str, some: Sequence[int], rounds: int) -> Progress:
        key = f"{method} {some}"
        moves[key] = moves.get(key) or begin(method, some, rounds)
        return moves[key]

    def go(method: str, some: list[int]) -> list[Summary]:
        runs = Runs(study, method, some, views, folder=folder, share_stage1=shared, **options)
        return runs(resume=resume or workers > 1, progress=move(method, some, runs.rounds))

    def by_workers() -> Generator[str, None, None]:
        """The methods in their order, each when its runs are made."""
        if not resume:
            forget(todo, folder)
        work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve())

        def watch(task: Task, part: float) -> None:
            rounds = task.study.training.rounds
            move(task.method, task.seeds, rounds)(int(part * rounds), rounds, None)

        due, waiting = Counter(task.method for task in todo), list(methods)
        with closing(run_tasks(todo, work, workers, watch)) as answers:
            for task, _ in answers:  # an error is made again in this process, where it has its traceback
                due[task.method] -= 1
                while waiting and not due[waiting[0]]:
                    yield waiting.pop(0)

    try:
        with closing(by_workers() if workers > 1 and todo else (method for method in methods)) as ready:
            for method in ready:
                go_on = partial(go, method)
                made = [each for some in stacks[method] for each in stacked_or_alone(go_on, some)]
                yield sorted(made, key=lambda summary: seeds.index(summary["seed"]))
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def _workers(todo: Sequence[Task], views: Views, options: dict[str, Any]) -> int:
    """How many pay: as many as there are cores, where each run keeps one busy, and for longer than a start.

    What is the user's own, or what a worker is not told of, runs in this process.
    """
    here = (
        any(":" in task.method for task in todo) or options.get("certify") or options.get("backend") == "loop"
    )
    short = sum(task.study.training.rounds for task in todo) < _WORTH_A_WORKER
    if here or short or views.device.type == "cuda" or not _little(todo[0].study, views):
        return 1
    return min(torch.get_num_threads(), len(todo))


def _little(study: Study, views: Views) -> bool:
    """Whether a step of one world has no work for two threads."""
    return numbers_in_a_step(study, views, study.graph.nodes) < FEW


def finished_before(
    study: Study, methods: Sequence[str], seeds: Sequence[int], views: Views, folder: Path, backend: str,
    certify: bool,
) -> str | None:  # fmt: skip
    """What is kept of earlier runs, and what is made anew and why, in words; none: there were none."""
    made = (views.device.type, data_digest(study, views.dataset), backend, certify)
    every = [of for method in methods for of in identities(study, method, seeds, *made)]
    kept = [of for of in every if (folder / slug(of) / "summary.json").is_file()]
    return kept_and_anew(folder, kept, [of for of in every if of not in kept])


def _stacks(
    study: Study, method: str, seeds: list[int], views: Views, resumed: Path | None, options: dict[str, Any]
) -> list[list[int]]:
    """The seeds that run together.

    On a CPU a stack saves what a call costs beside its work. Where there is much work it only takes memory,
    and a method of the user's may never have been meant for several worlds.
    """
    pays = views.device.type == "cuda" or _little(study, views)
    alone = [[seed] for seed in seeds]
    if ":" in method or options.get("certify") or options.get("backend") == "loop" or not pays:
        return alone
    if resumed is None:
        return [seeds]
    runs = identities(study, method, seeds, views.device.type, data_digest(study, views.dataset))
    if goes_on(study, resumed, runs):
        return [seeds]
    # What has ended, or has begun alone, stays alone.
    own = {of["seed"]: (resumed / slug(of) / "summary.json", resumed / checkpoint([of])) for of in runs}
    rest = [seed for seed in seeds if not any(file.is_file() for file in own[seed])]
    return [one for one in alone if one[0] not in rest] + ([rest] if rest else [])
