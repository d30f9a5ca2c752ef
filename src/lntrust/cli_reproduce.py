"""`lntrust reproduce`: the paper's tables and figures, a command each."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lntrust.cli_board import Board
from lntrust.cli_compare import say_verdicts, write_tables
from lntrust.cli_options import DataDir, Debug, Device, err, interruptible, out, seeds_of
from lntrust.errors import LNTrustError

if TYPE_CHECKING:
    from lntrust.experiment.collection import Record
    from lntrust.experiment.reproduction import Reproduction
    from lntrust.experiment.sweep import Task


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…", help="Tables and figures by name, or all; without a name, the list of them."
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(help="Seeds and ranges of them: 0,1,2 or 0-9. Default: as the paper, 0,1,2."),
    ] = None,
    from_: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="RUNS",
            help="Take runs that lie here, in a folder or a collection, whatever device they were made on.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Tasks at a time. Default: 1 on a CPU, one for each GPU.")
    ] = None,
    device: Device = "auto",
    data: DataDir = None,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run folders go.")] = Path(
        "runs"
    ),
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="Where tables and figures go: NAME.md, .tex, .parquet, …")
    ] = Path("reproduction"),
    debug: Debug = False,
) -> None:
    """Make tables and figures of the paper: run what is missing, then show ours beside the paper's.

    Finished runs are kept and begun ones go on where they stopped, so the
    same command continues what was interrupted. All of it is some 380 runs:
    minutes on a GPU, a night or two on a laptop. Each table is a TOML file
    that names its runs; a file of your own works as well.
    """
    from lntrust.experiment.reproduction import list_reproductions, load_reproduction

    known = list_reproductions()
    if not names:
        return _show_list()
    wanted = list(known) if names == ["all"] else list(dict.fromkeys(names))
    chosen = [load_reproduction(name) for name in wanted]
    for path in (folder, to):
        if path.is_file():
            raise LNTrustError(f"{path}: is a file; must be a folder, or a name for a new one")
    numbers = [seed for text in seeds or [] for seed in seeds_of(text)]
    records = _runs(chosen, numbers, from_ or [], workers, device, data, folder)
    for one in chosen:
        _show(one, records, numbers, to)
    return None


def _show_list() -> None:
    from lntrust.experiment.reproduction import list_reproductions, load_reproduction

    table = Table("name", "in the paper", "title", "runs", caption="lntrust reproduce NAME, or all. Tables share runs.")
    for name in list_reproductions():
        one = load_reproduction(name)
        runs = {str(path) for task in one.tasks("cpu") for path in task.folders}
        table.add_row(name, one.place, one.title, str(len(runs)))
    out.print(table)


def _runs(
    chosen: "Sequence[Reproduction]",
    seeds: Sequence[int],
    given: Sequence[Path],
    workers: int | None,
    device: str,
    data: Path | None,
    folder: Path,
) -> "list[Record]":
    """All runs that are asked for: found, or made."""
    from lntrust.experiment import local_pool
    from lntrust.experiment.collection import read_runs, row_key
    from lntrust.experiment.sweep import Work, datasets_of
    from lntrust.learners.views import pick_device

    found = read_runs(given) if given else []
    here = {(record.row_key, record.seed) for record in found}
    kind = pick_device(device).type
    tasks: dict[str, Task] = {}
    for one in chosen:
        for task in one.tasks(kind, seeds):
            identity = task.identities[0]
            if not all((row_key(identity), seed) in here for seed in task.seeds):
                tasks.setdefault(str(task.folders), task)
    if not tasks:
        return found
    datasets_of(list(tasks.values()), data)  # what is missing is said before hours of work
    count, cores = local_pool.room(kind, workers)
    work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve(), threads=cores)
    with interruptible("the same command"), ExitStack() as stack:
        board = stack.enter_context(Board(list(tasks.values()), work.folder, False, _called))
        answers = local_pool.carried_out_here(board.todo, work, count, board.part)
        stack.enter_context(closing(answers))
        for task, answer in answers:
            board.ended(task, answer)
    if board.failed:
        reasons = "\n".join(f"  {task}: {reason}" for task, reason in board.failed.items())
        raise LNTrustError(f"{len(board.failed)} of {len(tasks)} tasks failed:\n{reasons}")
    made = [work.folder / path for task in tasks.values() for path in task.folders]
    return [*read_runs(made), *found]


def _called(task: "Task") -> str:
    return f"{task.study.name}: {task}"


def _show(one: "Reproduction", records: "Sequence[Record]", seeds: Sequence[int], to: Path) -> None:
    """The tables on the screen, and all files."""
    from lntrust.report import figures, render
    from lntrust.report.sections import sections_of_one

    sections = sections_of_one(one, records, seeds)
    for section in sections:
        out.print(render.terminal(section))
        say_verdicts(section)
    written = [to / f"{one.name}{suffix}" for suffix in (".md", ".tex", ".parquet")]
    for path in written:
        write_tables(path, sections)
    for section in sections:
        for f in section.figures:
            drawn = figures.draw(
                f.kind, section.rows, title=section.title, x=section.x, node=f.node, seed=f.seed
            )
            written += figures.save(drawn, to / f"{section.name}-{f.kind}")
    err.print(f"written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
