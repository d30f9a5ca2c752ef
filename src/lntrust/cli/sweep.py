"""`lntrust sweep`: methods × seeds × settings, on this machine or on many."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from lntrust.cli import options
from lntrust.cli.board import Board
from lntrust.cli.console import interruptible, out
from lntrust.core.errors import LNTrustError


def sweep(
    study: options.StudyName,
    method: options.Methods = None,
    seed: options.Seeds = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="path.to.field=value,…",
            help="Values of a field to try, written as for --set. Several grids: every combination.",
        ),
    ] = None,
    set_: options.Sets = None,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option(
            help="Processes of this machine, or a Ray cluster (needs lntrust\\[ray]; --out is then a folder "
            "that all its machines share)."
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="ray: an existing cluster, HOST:PORT or auto. Default: one is started on this machine."
        ),
    ] = None,
    workers: options.Workers = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of a task. Default: local, cores over workers; ray, 1."),
    ] = None,
    device: options.Device = "auto",
    data: options.DataDir = None,
    folder: options.Out = Path("runs"),
    resume: options.Resume = True,
    as_json: options.Json = False,
    debug: options.Debug = False,
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

    if address and on != "ray":
        raise LNTrustError(f"--address {address}: is for --on ray")
    if workers and on != "local":
        raise LNTrustError(f"--workers {workers}: is for --on local; Ray uses all the room there is")
    asked = (study, set_ or [], grid or [], options.methods_of(method), options.seeds_of(seed))
    datasets = datasets_of(plan(*asked, "cpu"), data)  # what is wrong is said before a cluster is started

    def planned(kind: str) -> list[Task]:
        tasks = [task.on(datasets[task.study.data.dataset]) for task in plan(*asked, kind)]
        if not resume:
            forget(tasks, folder)
        return tasks

    work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve(), threads=threads or 1)
    with interruptible(resume), ExitStack() as stack:
        if on == "ray":
            from lntrust.experiment.sweep import ray as ray_cluster

            stack.enter_context(ray_cluster.connected(address))
            tasks = planned(ray_cluster.device_of_cluster(device))
            board = stack.enter_context(Board(tasks, work.folder, as_json, resume))
            board.watch(ray_cluster.run_tasks(board.todo, work, datasets))
        else:
            from lntrust.experiment.sweep import local as local_pool
            from lntrust.learners.views import pick_device

            tasks = planned(pick_device(device).type)
            count, cores = local_pool.workers_and_threads(tasks[0].device, workers)
            board = stack.enter_context(Board(tasks, work.folder, as_json, resume))
            work = work.model_copy(update={"threads": threads or cores})
            board.watch(local_pool.run_tasks(board.todo, work, count, board.part))
    summaries = [line for task in tasks for line in board.lines.get(str(task), [])]
    if summaries and not as_json:
        from lntrust.report import results_table

        out.print(results_table(summaries))
        out.print(f"Run folders: {folder / summaries[0]['study']}", highlight=False)
    board.check()
