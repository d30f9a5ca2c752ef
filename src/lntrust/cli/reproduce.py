"""`lntrust reproduce`: the paper's tables and figures, a command each."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lntrust.cli.board import Board
from lntrust.cli.compare import say_verdicts, write_tables
from lntrust.cli.options import DataDir, Debug, Device, Fresh, again, err, interruptible, out, seeds_of
from lntrust.core.errors import LNTrustError

if TYPE_CHECKING:
    from lntrust.experiment.reproduction import Reproduction
    from lntrust.experiment.store import Record
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
    fresh: Fresh = False,
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
    from lntrust.experiment.store import read_runs
    from lntrust.learners.views import pick_device

    known = list_reproductions()
    if not names:
        return _show_list()
    wanted = list(known) if "all" in names else list(dict.fromkeys(names))
    chosen = [load_reproduction(name) for name in wanted]
    for path in (folder, to):
        if path.is_file():
            raise LNTrustError(f"{path}: is a file; must be a folder, or a name for a new one")
    numbers = seeds_of(seeds or [])
    kind, given = pick_device(device).type, read_runs(from_) if from_ else []
    kept, tasks = _shared_out(chosen, numbers, given, kind)
    made, failed = _made(tasks, workers, kind, data, folder, fresh) if tasks else ([], [])
    for one in chosen:
        _show(one, [*made, *kept], numbers, to)
    if failed:
        raise LNTrustError(f"{len(failed)} of {len(tasks)} tasks failed:\n" + "\n".join(failed))
    return None


def _show_list() -> None:
    from lntrust.experiment.reproduction import list_reproductions, load_reproduction

    table = Table(
        "name", "in the paper", "title", "runs", caption="lntrust reproduce NAME, or all. Tables share runs."
    )
    for name in list_reproductions():
        one = load_reproduction(name)
        runs = {str(path) for task in one.tasks("cpu") for path in task.folders}
        table.add_row(name, one.place, one.title, str(len(runs)))
    out.print(table)


def _shared_out(
    chosen: "Sequence[Reproduction]", seeds: Sequence[int], given: "Sequence[Record]", kind: str
) -> "tuple[list[Record], list[Task]]":
    """Which of the given runs serve, and what is to be made.

    A row of which not all seeds were given, made on one device, is made anew: numbers of two are not mixed.
    """
    by_row: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in given:
        by_row[record.row_key][record.identity["device"]].append(record)
    kept: dict[int, Record] = {}
    tasks: dict[str, Task] = {}
    for one in chosen:
        for panel in one.panels:
            wanted = one.seeds_of(panel, seeds)
            for row in panel.rows:
                found = _all_of(by_row[panel.key(row)], wanted)
                kept |= {id(record): record for record in found}
                for task in [] if found else panel.tasks(row, wanted, kind):
                    tasks.setdefault(str(task.folders), task)
    return list(kept.values()), list(tasks.values())


def _all_of(devices: "dict[str, list[Record]]", seeds: Sequence[int]) -> "list[Record]":
    """The runs with these seeds on the first device that has all of them."""
    for records in devices.values():
        found = [record for record in records if record.seed in seeds]
        if len(found) == len(seeds):
            return found
    return []


def _made(
    tasks: "Sequence[Task]", workers: int | None, kind: str, data: Path | None, folder: Path, fresh: bool
) -> "tuple[list[Record], list[str]]":
    """The runs of these tasks, finished before or now, and why some failed."""
    from lntrust.experiment.store import read_runs
    from lntrust.experiment.sweep import Work, datasets_of, forget
    from lntrust.experiment.sweep import local as local_pool

    datasets = datasets_of(tasks, data)  # what is missing is said before hours of work
    tasks = [task.on(datasets[task.study.data.dataset]) for task in tasks]
    if fresh:
        forget(tasks, folder)
    count, cores = local_pool.workers_and_threads(kind, workers)
    work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve(), threads=cores)
    with interruptible(again(fresh)), ExitStack() as stack:
        board = stack.enter_context(Board(tasks, work.folder, False, fresh, _called))
        answers = local_pool.run_tasks(board.todo, work, count, board.part)
        stack.enter_context(closing(answers))
        for task, answer in answers:
            board.ended(task, answer)
    done = [task for task in tasks if _called(task) not in board.failed]
    folders = [work.folder / path for task in done for path in task.folders]
    reasons = [f"  {name}: {reason}" for name, reason in board.failed.items()]
    return read_runs(folders) if folders else [], reasons


def _called(task: "Task") -> str:
    return f"{task.study.name}: {task}"


def _show(one: "Reproduction", records: "Sequence[Record]", seeds: Sequence[int], to: Path) -> None:
    """The tables on the screen, and all files."""
    from lntrust.report import text as render
    from lntrust.report.figures import draw as figures
    from lntrust.report.sections import sections_of_one

    sections = sections_of_one(one, records, seeds)
    for section in sections:
        out.print(render.terminal(section, out.width))
        say_verdicts(section)
    written = [to / f"{one.name}{suffix}" for suffix in (".md", ".tex", ".parquet")]
    for path in written:
        write_tables(path, sections)
    for section in sections:
        for stem, drawn in figures.named_figures(section):
            written += figures.save(drawn, to / stem)
    err.print(f"written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
