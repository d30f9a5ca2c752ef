"""`lntrust sweep`: methods × seeds × settings, on this machine or on many."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from lntrust.cli.board import Board
from lntrust.cli.options import (
    DataDir,
    Debug,
    Device,
    Fresh,
    Sets,
    StudyName,
    again,
    interruptible,
    out,
    seeds_of,
)
from lntrust.core.errors import LNTrustError


def sweep(
    study: StudyName,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Methods, with commas between. Default: those the study compares."),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(help="Seeds and ranges of them: 0,1,2 or 0-9. Default: the study's."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="path.to.field=value,…",
            help="Values of a field to try, written as for --set. Several grids: every combination.",
        ),
    ] = None,
    set_: Sets = None,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Processes of this machine, or a Ray cluster (needs lntrust\\[ray])."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="ray: an existing cluster, HOST:PORT or auto. Default: one is started on this machine."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="local: tasks at a time. Default: 1 on a CPU, since one run uses all cores. More pay where "
            "a run uses one core only, as it does below a million input numbers a step (nodes × batch × "
            "features), and where memory holds the data as often. On GPUs: one for each.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of a task. Default: local, cores over workers; ray, 1."),
    ] = None,
    device: Device = "auto",
    data: DataDir = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Where run folders go; with ray, a folder all machines share."
        ),
    ] = Path("runs"),
    fresh: Fresh = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object per run on standard output, and nothing else there."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a study with many methods, seeds and settings, then show a table.

    On a CPU each method, seed and setting is a task. On a GPU a task is one
    method and setting, all seeds in one stack, and has the GPU to itself.

    A sweep can be stopped (Ctrl-C) and continued: give the same command
    again. Finished runs are kept, begun ones go on from their checkpoint,
    unless what they were made of has changed since: the data, a graph's
    file, the source of a method or model of your own.
    When a worker is lost, its task runs again, up to three times in all. A
    task that fails does not stop the others; the failures are listed at the
    end, and the exit code is 2. A run that diverges is no failure: it has a
    row without scores.
    """
    from lntrust.experiment.sweep import Task, Work, datasets_of, forget, plan

    if folder.is_file():
        raise LNTrustError(f"--out {folder}: is a file; must be a folder, or a name for a new one")
    if address and on != "ray":
        raise LNTrustError(f"--address {address}: is for --on ray")
    if workers and on != "local":
        raise LNTrustError(f"--workers {workers}: is for --on local; Ray uses all the room there is")
    names = [name for text in methods or [] for name in text.split(",")]
    numbers = seeds_of(seeds or [])
    asked = (study, set_ or [], grid or [], names, numbers)
    datasets = datasets_of(plan(*asked, "cpu"), data)  # what is wrong is said before a cluster is started

    def planned(kind: str) -> list[Task]:
        tasks = [task.on(datasets[task.study.data.dataset]) for task in plan(*asked, kind)]
        if fresh:
            forget(tasks, folder)
        return tasks

    work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve(), threads=threads or 1)
    with interruptible(again(fresh)), ExitStack() as stack:
        if on == "ray":
            from lntrust.experiment.sweep import ray as ray_cluster

            stack.enter_context(ray_cluster.connected(address))
            tasks = planned(ray_cluster.device_of_cluster(device))
            board = stack.enter_context(Board(tasks, work.folder, as_json, fresh))
            answers = ray_cluster.run_tasks(board.todo, work, datasets)
        else:
            from lntrust.experiment.sweep import local as local_pool
            from lntrust.learners.views import pick_device

            tasks = planned(pick_device(device).type)
            count, cores = local_pool.workers_and_threads(tasks[0].device, workers)
            board = stack.enter_context(Board(tasks, work.folder, as_json, fresh))
            work = work.model_copy(update={"threads": threads or cores})
            answers = local_pool.run_tasks(board.todo, work, count, board.part)
        stack.enter_context(closing(answers))
        for task, answer in answers:
            board.ended(task, answer)
    _report(board, folder, as_json)


def _report(board: Board, folder: Path, as_json: bool) -> None:
    """The table, where the folders are, and what failed."""
    from lntrust.report.table import results_table

    summaries = [line for task in board.tasks for line in board.lines.get(str(task), [])]
    if summaries and not as_json:
        out.print(results_table(summaries))
        out.print(f"Run folders: {folder / summaries[0]['study']}", highlight=False)
    if board.failed:
        failed = [task for task in map(str, board.tasks) if task in board.failed]
        reasons = "\n".join(f"  {task}: {board.failed[task]}" for task in failed)
        raise LNTrustError(f"{len(board.failed)} of {len(board.tasks)} tasks failed:\n{reasons}")
