"""`lntrust tune`: the settings of methods, searched on validation data."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer import Option

from lntrust.cli import options
from lntrust.cli.console import bars, err, interruptible, out, say
from lntrust.core.errors import LNTrustError
from lntrust.study.loading import list_studies, load_study
from lntrust.study.settings import STUDY_NAME


def tune(
    study: options.StudyName,
    method: options.Methods = None,
    trials: Annotated[int, Option(min=1, help="Trials a method, the study as it stands included.")] = 8,
    seed: options.Seed = None,
    set_: options.Sets = None,
    device: options.Device = "auto",
    data: options.DataDir = None,
    to: Annotated[
        Path | None,
        Option("--out", metavar="FILE.toml", help="The winning study. Default: STUDY-tuned.toml here."),
    ] = None,
    resume: options.Resume = True,
    as_json: options.Json = False,
    debug: options.Debug = False,
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

    chosen, seed_ = load_study(study, set_ or []), options.seed_of(seed)
    target = to or Path(f"{chosen.name}-tuned.toml")
    log = target.with_suffix(".jsonl")
    if target.suffix != ".toml" or not re.fullmatch(STUDY_NAME, target.stem):
        raise LNTrustError(
            f"--out {target}: must end in .toml after a name of letters, digits, '.', '_', '-'"
        )
    if Path(study).suffix == ".toml" and target.resolve() == Path(study).resolve():
        raise LNTrustError(f"--out {target}: is the study itself; the winning study needs a file of its own")
    methods = options.methods_of(method) or [name for name in chosen.compare if name != "centralized"]
    if "centralized" in methods:
        raise LNTrustError("--method centralized: a reference that trains until it stops; nothing to tune")
    with err.status(f"loading {chosen.data.dataset}"):
        views = load_views(chosen, device, data)
    searches = {name: Search(chosen, name, seed_, views, log) for name in methods}  # says what is wrong
    if not resume:
        log.unlink(missing_ok=True)
        searches = {name: Search(chosen, name, seed_, views, log) for name in methods}
    inherited = None if set_ else study if study in list_studies() else str(Path(study).resolve())
    with interruptible(), bars(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()) as begin:
        for search in searches.values():
            search(trials, begin)
            write_study(target, chosen, seed_, inherited, log, search.data)
    table = Table("method", "trials", "before", "best", "its settings", title=escape(f"{chosen.name}, tuned"))
    for name, search in searches.items():
        before, won = search.lines[0], best(search.lines)
        if as_json:
            scores = {"before": before["score"], "best": won["score"], "settings": won["settings"]}
            print(json.dumps({"method": name, "trials": len(search.lines), **scores}), flush=True)
        pairs = [(k, f"{v:.3g}" if isinstance(v, float) else str(v)) for k, v in won["settings"].items()]
        shown = escape(", ".join(f"{k} = {v}" for k, v in pairs))
        table.add_row(escape(name), str(len(search.lines)), _score(before), _score(won), shown)
    if not as_json:
        out.print(table)
        say(f"Scores are on validation data. Before: the study as it stands. Study: {target}; log: {log}")


def _score(line: dict[str, Any]) -> str:
    return f"diverged at round {line['diverged']}" if line["score"] is None else f"{line['score']:.3f}"
