"""`lntrust reproduce`: the paper's tables and figures, a command each."""

import json
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Option

from lntrust.cli import options
from lntrust.cli.board import Board
from lntrust.cli.console import err, interruptible, out, say
from lntrust.cli.results import show, write_tables


def reproduce(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="NAME…", help="Tables and figures by name, or all; without a name, the list of them."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        Option(help="Only the rows of this method; several with commas between, or several times."),
    ] = None,
    seed: options.Seeds = None,
    from_: Annotated[
        list[Path] | None,
        Option(
            "--from",
            metavar="RUNS",
            help="Take runs that lie here, in a folder or a collection, whatever device they were made on.",
        ),
    ] = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    data: options.DataDir = None,
    folder: options.Out = Path("runs"),
    resume: options.Resume = True,
    to: Annotated[
        Path,
        Option(metavar="DIR", callback=options.no_file, help="Where NAME.md, .tex, .parquet and figures go."),
    ] = Path("reproduction"),
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Make tables and figures of the paper: run what is missing, then show ours beside the paper's.

    Finished runs are kept and begun ones go on where they stopped, so the
    same command continues what was interrupted. All of it is some 650 runs:
    minutes on a GPU, some nights on a laptop. Each table is a TOML file
    that names its runs; a file of your own works as well.
    """
    from lntrust.experiment.reproduction import given_and_missing, list_reproductions, load_reproduction
    from lntrust.experiment.store import read_runs
    from lntrust.experiment.sweep import Work, datasets_of
    from lntrust.learners.views import pick_device

    known = list_reproductions()
    if not names:
        caption = "lntrust reproduce NAME, or all. Tables share runs."
        table = Table("name", "in the paper", "title", "runs", caption=caption)
        for name in known:
            one = load_reproduction(name)
            runs = {str(path) for task in one.tasks("cpu") for path in task.folders}
            table.add_row(name, one.place, one.title, str(len(runs)))
        out.print(table)
        return
    wanted = list(known) if "all" in names else list(dict.fromkeys(names))
    chosen = [load_reproduction(name) for name in wanted]
    seeds, kind, given = options.seeds_of(seed), pick_device(device).type, read_runs(from_) if from_ else []
    records, tasks = given_and_missing(chosen, seeds, given, kind, options.methods_of(method))
    board = None
    if tasks:
        datasets = datasets_of(tasks, data)  # what is missing is said before hours of work
        work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve())
        with interruptible(resume):
            board = Board(tasks, datasets, work, resume, name=lambda task: f"{task.study.name}: {task}")
            board.run_here(workers)
        made = [Path(line["folder"]) for line in board.lines]
        records = [*(read_runs(made) if made else []), *records]
    if as_json:
        for record in records:
            print(json.dumps(record.summary, allow_nan=False), flush=True)
    from lntrust.report import figures, sections_of_one

    for one in chosen:
        sections = sections_of_one(one, records, seeds)
        if not as_json:
            show(sections)
        written = [to / f"{one.name}{suffix}" for suffix in (".md", ".tex", ".parquet")]
        for path in written:
            write_tables(path, sections)
        for section in sections:
            for stem, drawn in figures.named_figures(section):
                written += figures.save(drawn, to / stem)
        say(f"written: {', '.join(map(str, written))}", err)
    if board:
        board.check()
