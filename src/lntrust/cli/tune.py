"""`lntrust tune`: the settings of methods, searched on validation data."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lntrust.cli.options import DataDir, Debug, Device, Sets, StudyName, err, interruptible, out
from lntrust.core.errors import LNTrustError
from lntrust.study.loading import list_studies, load_study
from lntrust.study.settings import STUDY_NAME


def tune(
    study: StudyName,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method's name; may be given several times. Default: those the study compares."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials a method, the study as it stands included.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="The seed of every trial.")] = 0,
    set_: Sets = None,
    device: Device = "auto",
    data: DataDir = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.toml", help="The winning study. Default: STUDY-tuned.toml here."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Search the settings of methods on validation data, and write the winning study.

    Every method gets the same number of trials. Trials train on training data
    and are scored on validation data; test data take no part. The ranges are
    in `lntrust methods NAME`. The log, FILE.jsonl, lies beside the study, a
    line for each trial. What is in it is not done again, so the command can
    be stopped and repeated, and given other methods later. A trial that
    diverges is worse than any other.
    """
    from lntrust.experiment.tune import Search, best, write_study
    from lntrust.learners.views import load_views

    chosen = load_study(study, set_ or [])
    target = to or Path(f"{chosen.name}-tuned.toml")
    log = target.with_suffix(".jsonl")
    if target.suffix != ".toml" or not re.fullmatch(STUDY_NAME, target.stem):
        raise LNTrustError(
            f"--out {target}: must end in .toml after a name of letters, digits, '.', '_', '-'"
        )
    if Path(study).suffix == ".toml" and target.resolve() == Path(study).resolve():
        raise LNTrustError(f"--out {target}: is the study itself; the winning study needs a file of its own")
    methods = method or [name for name in chosen.compare if name != "centralized"]
    if "centralized" in methods:
        raise LNTrustError("--method centralized: a reference that trains until it stops; nothing to tune")
    with err.status(f"loading {chosen.data.dataset}") if err.is_terminal else nullcontext():
        views = load_views(chosen, device, data)
    searches = {name: Search(chosen, name, seed, views, log) for name in methods}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        interruptible("the same command"),
        Progress(*columns, console=err, disable=not err.is_terminal) as bar,
    ):
        for name, search in searches.items():

            def watch(number: int, name: str = name) -> Any:
                task = bar.add_task(f"{escape(name)}, trial {number + 1} of {trials}")
                return lambda done, total, _: bar.update(task, completed=done, total=total)

            search(trials, watch)
            write_study(target, chosen, seed, None if set_ else _inherited(study), log, search.data)
    table = Table("method", "trials", "before", "best", "its settings", title=escape(f"{chosen.name}, tuned"))
    for name, search in searches.items():
        won = best(search.lines)
        scores = [_score(line) for line in (search.lines[0], won)]
        pairs = [(k, f"{v:.3g}" if isinstance(v, float) else str(v)) for k, v in won["settings"].items()]
        shown = [f"{k} = {v}" for k, v in pairs]
        table.add_row(escape(name), str(len(search.lines)), *scores, escape(", ".join(shown)))
    out.print(table)
    text = f"Scores are on validation data. Before: the study as it stands. Study: {target}; log: {log}"
    out.print(text, highlight=False, soft_wrap=True)


def _score(line: dict[str, Any]) -> str:
    if line["score"] is None:
        return f"diverged at round {line['diverged']}"
    return f"{line['score']:.3f}"


def _inherited(study: str) -> str:
    return study if study in list_studies() else str(Path(study).resolve())
