"""`lntrust run`: a study, every method with every seed."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typer import Option

from lntrust.cli import options
from lntrust.cli.console import bars, err, interruptible, notes, out, say
from lntrust.core.text import seeds_text
from lntrust.study.loading import load_study

_FEW = 30  # nodes whose trust is shown one by one after a run; larger runs have it in trust.parquet


def run(
    study: options.StudyName = "digits",
    method: options.Methods = None,
    preset: Annotated[
        Literal["lean", "safe", "best"] | None,
        Option(
            help="Run LNTrust with this preset: lean, a hundredth of the replies; safe, seldom worse "
            "together than by a node's own model; best, both. Short for --method lntrust+PRESET."
        ),
    ] = None,
    seed: options.Seeds = None,
    set_: options.Sets = None,
    device: options.Device = "auto",
    backend: Annotated[
        Literal["batched", "loop"], Option(help="All nodes at once, or one at a time (slow, to be read).")
    ] = "batched",
    data: options.DataDir = None,
    folder: options.Out = Path("runs"),
    resume: options.Resume = True,
    certify: Annotated[
        bool, Option("--certify", help="Report the paper's bounds beside what happened (lntrust only).")
    ] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run a study: every method with every seed, then a table.

    Without arguments: the digits demo, 20 nodes on embedded data, in less than two minutes: nodes alone,
    the plain mean, LNTrust as published and its preset best, three seeds each.
    Results lie in DIR/study/method/seed-…: summary.json, rounds.parquet, run.json.
    The same command again keeps finished runs and continues begun ones, unless what they were made of has
    changed since: the data, a graph's file, the source of a method or model of your own.
    A run that diverges ends there, has a row that says so and no scores, and the others go on.
    """
    from lntrust.experiment.compared import compared
    from lntrust.experiment.divergence import what_diverged
    from lntrust.learners.views import load_views
    from lntrust.methods import find_method
    from lntrust.methods.lntrust.presets import hidden_by

    chosen = load_study(study, set_ or [])
    named = [*(method or []), *([f"lntrust+{preset}"] if preset else [])]
    methods, seeds = options.methods_of(named or chosen.compare), options.seeds_of(seed) or chosen.seeds
    for name in methods:  # before hours of work, not in their midst
        find_method(name, chosen)
        for field in hidden_by(name, set_ or []):
            say(f"note: {name} has its own {field}; to change it: --set 'methods.{name}.{field}=…'", err)
    with err.status(f"loading {chosen.data.dataset}"):
        views = load_views(chosen, device, data)
    summaries: list[dict[str, Any]] = []
    note = notes()
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} rounds"),
        TextColumn("{task.fields[loss]}"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with interruptible(resume), bars(*columns) as begin:
        for made in compared(
            chosen, methods, seeds, views, folder, resume=resume, backend=backend, certify=certify,
            begin=lambda name, some, _: begin(f"{name}, {seeds_text(some)}"), notice=note, data=data,
        ):  # fmt: skip
            summaries += made
            for summary in made:
                if bad := what_diverged([summary]):
                    which = f"{summary['method']}, seed {summary['seed']}"
                    note(f"{which}: {bad}, no scores; if its steps were too large, a smaller lr helps")
                if as_json:
                    print(json.dumps(summary, allow_nan=False), flush=True)
    if as_json:
        return
    from lntrust.report import certificate_table, results_table, trust_table
    from lntrust.world import build_world

    out.print(results_table(summaries))
    shown = next(s for s in summaries if s["method"] == methods[-1])  # of its seeds the first
    if {"trust", "together"} <= shown["method_report"].keys() and chosen.graph.nodes <= _FEW:
        kinds = build_world(chosen, views.dataset, shown["seed"]).kinds.tolist()
        out.print(trust_table(shown, kinds, chosen))
    for name in methods:
        if certified := [s for s in summaries if s["method"] == name and "certificate" in s["method_report"]]:
            out.print(certificate_table(certified))
    say(f"Run folders: {folder / chosen.name}")
