"""`lntrust sweep`: methods × seeds × settings, on this machine or on many."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from lntrust.cli import options
from lntrust.cli.board import Board
from lntrust.cli.console import interruptible, out, say
from lntrust.core.errors import LNTrustError


def sweep(
    study: options.StudyName,
    method: options.Methods = None,
    seed: options.Seeds = None,
    grid: Annotated[
        list[str] | None,
        Option(
            metavar="path.to.field=value,…",
            help="Values of a field to try, written as for --set. Several grids: every combination.",
        ),
    ] = None,
    set_: options.Sets = None,
    on: Annotated[
        Literal["local", "ray"],
        Option(
            help="Processes of this machine, or a Ray cluster (needs lntrust\\[ray]; --out is then a folder "
            "that all its machines share)."
        ),
    ] = "local",
    address: Annotated[
        str | None,
        Option(help="ray: an existing cluster, HOST:PORT or auto. Default: one is started on this machine."),
    ] = None,
    workers: options.Workers = None,
    threads: Annotated[
        int | None, Option(min=1, help="CPU threads of a task. Default: local, cores over workers; ray, 1.")
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
    from lntrust.experiment.sweep import Work, datasets_of, plan

    if address and on != "ray":
        raise LNTrustError(f"--address {address}: is for --on ray")
    if workers and on != "local":
        raise LNTrustError(f"--workers {workers}: is for --on local; Ray uses all the room there is")
    asked = (study, set_ or [], grid or [], options.methods_of(method), options.seeds_of(seed))
    datasets = datasets_of(plan(*asked, "cpu"), data)  # what is wrong is said before a cluster is started
    work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve(), threads=threads or 1)
    with interruptible(resume):
        if on == "ray":
            from lntrust.experiment.sweep import ray as cluster

            with cluster.connected(address):
                tasks = plan(*asked, cluster.device_of_cluster(device))
                board = Board(tasks, datasets, work, resume, as_json)
                board.watch(cluster.run_tasks(board.todo, work, datasets))
        else:
            from lntrust.learners.views import pick_device

            board = Board(plan(*asked, pick_device(device).type), datasets, work, resume, as_json)
            board.run_here(workers, threads)
    if board.lines and not as_json:
        from lntrust.report import results_table

        out.print(results_table(board.lines))
        say(f"Run folders: {folder / board.lines[0]['study']}")
    board.check()
