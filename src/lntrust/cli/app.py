"""The command line. Commands that need more than a screen are in files of their own: their group's name."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from lntrust.cli.beside import FORWARD, run_beside
from lntrust.cli.compare import collect, compare
from lntrust.cli.figures import figures
from lntrust.cli.fleet import fleet
from lntrust.cli.node import node
from lntrust.cli.options import (
    DataDir,
    Debug,
    Device,
    Fresh,
    Sets,
    StudyName,
    again,
    err,
    interruptible,
    out,
    start,
)
from lntrust.cli.report import report
from lntrust.cli.reproduce import reproduce
from lntrust.cli.sweep import sweep
from lntrust.cli.tune import tune
from lntrust.core.errors import LNTrustError
from lntrust.study.loading import describe, list_studies, load_study
from lntrust.study.settings import once_each

app = typer.Typer(
    name="lntrust",
    help="Learned Neighbor Trust: nodes that learn whom to ask. Start with `lntrust run`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="What data is here, and how to get more.", invoke_without_command=True)
app.add_typer(data_app, name="data")
_FEW = 30  # nodes whose trust is shown one by one after a run; larger runs have it in trust.parquet


class _Notes:
    """Says each thing once, however many runs it is true of."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            err.print(f"note: {escape(text)}", highlight=False, soft_wrap=True)


@app.command("run")
def run_command(
    study: StudyName = "digits",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method's name (`lntrust methods`) or package.module:Name; may be given several "
            "times. Default: those the study compares."
        ),
    ] = None,
    preset: Annotated[
        Literal["lean", "safe", "best"] | None,
        typer.Option(
            help="Run LNTrust with this preset: lean, a hundredth of the replies; safe, hardly ever "
            "worse than alone; best, both. Short for --method lntrust+PRESET."
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="A seed; may be given several times. Default: the study's."),
    ] = None,
    set_: Sets = None,
    device: Device = "auto",
    backend: Annotated[
        Literal["batched", "loop"],
        typer.Option(help="All nodes at once, or one at a time (slow, to be read)."),
    ] = "batched",
    data: DataDir = None,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run folders go.")] = Path(
        "runs"
    ),
    fresh: Fresh = False,
    resume: Annotated[bool, typer.Option("--resume", help="The default; older scripts say it.")] = False,
    certify: Annotated[
        bool, typer.Option("--certify", help="Report the paper's bounds beside what happened (lntrust only).")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object per run on standard output, and nothing else."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a study: every method with every seed, then a table.

    Without arguments: the digits demo, 20 nodes on embedded data, in less than two minutes: nodes alone,
    the plain mean, LNTrust as published and its preset best, three seeds each.
    Results lie in DIR/study/method/seed-…: summary.json, rounds.parquet, run.json.
    The same command again keeps finished runs and continues begun ones, unless what they were made of has
    changed since: the data, a graph's file, the source of a method or model of your own.
    A run that diverges ends there, has a row that says so and no scores, and the others go on.
    """
    from lntrust.experiment.compared import compared, finished_before
    from lntrust.experiment.divergence import what_diverged
    from lntrust.learners.views import load_views
    from lntrust.methods import find_method
    from lntrust.methods.lntrust.presets import hidden_by

    chosen = load_study(study, set_ or [])
    named = [*(method or []), *([f"lntrust+{preset}"] if preset else [])]
    methods = list(dict.fromkeys(named or chosen.compare))  # a run beside its copy would look like two
    seeds = once_each(seed or chosen.seeds, "--seed")
    if folder.is_file():
        raise LNTrustError(f"--out {folder}: is a file; must be a folder, or a name for a new one")
    for name in methods:  # before hours of work, not in their midst
        find_method(name, chosen)
        for field in hidden_by(name, set_ or []):
            err.print(
                f"note: {name} has its own {field}; to change it: --set 'methods.{name}.{field}=…'",
                highlight=False, soft_wrap=True,
            )  # fmt: skip
    with err.status(f"loading {chosen.data.dataset}") if err.is_terminal else nullcontext():
        views = load_views(chosen, device, data)

    if resume and fresh:
        raise LNTrustError("--fresh: makes all runs anew, and --resume keeps them; give one of them")
    if not fresh and (news := finished_before(chosen, methods, seeds, views, folder, backend, certify)):
        err.print(escape(news), highlight=False, soft_wrap=True)
    summaries: list[dict[str, Any]] = []
    notes = _Notes()
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} rounds"),
        TextColumn("{task.fields[loss]}"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with (
        interruptible(again(fresh)),
        Progress(*columns, console=err, disable=not err.is_terminal) as bar,
    ):

        def begin(name: str, some: Sequence[int], rounds: int) -> Callable[[int, int, float | None], None]:
            which = f"seed{'s' if len(some) > 1 else ''} {', '.join(map(str, some))}"
            task = bar.add_task(f"{escape(name)}, {which}", total=rounds, loss="")

            def show(done: int, total: int, loss: float | None) -> None:
                bar.update(task, completed=done, total=total)
                if loss is not None:
                    bar.update(task, loss=f"loss {loss:.3f}")

            return show

        for made in compared(
            chosen, methods, seeds, views, folder, resume=not fresh, begin=begin,
            backend=backend, certify=certify, notice=notes.say,
        ):  # fmt: skip
            summaries += made
            for summary in made:
                if bad := what_diverged([summary]):
                    which = f"{summary['method']}, seed {summary['seed']}"
                    notes.say(f"{which}: {bad}, no scores; if its steps were too large, a smaller lr helps")
                if as_json:
                    print(json.dumps(summary, allow_nan=False), flush=True)
    if not as_json:
        from lntrust.report.table import results_table
        from lntrust.report.trust import trust_table
        from lntrust.world import build_world

        out.print(results_table(summaries))
        shown = next(s for s in summaries if s["method"] == methods[-1])  # of its seeds the first
        if {"trust", "together"} <= shown["method_report"].keys() and chosen.graph.nodes <= _FEW:
            kinds = build_world(chosen, views.dataset, shown["seed"]).kinds.tolist()
            out.print(trust_table(shown, kinds, chosen))
        out.print(f"Run folders: {folder / chosen.name}", highlight=False)


app.command()(sweep)
app.command()(tune)
app.command()(reproduce)
app.command()(compare)
app.command()(report)
app.command()(figures)
app.command()(collect)
app.add_typer(fleet, name="fleet")
app.add_typer(node, name="node")


@app.command(context_settings=FORWARD)
def bench(context: typer.Context) -> None:
    """Measure speed, memory and bytes on this machine: `python -m benchmarks.speed` in a checkout."""
    run_beside("benchmarks.speed", context.args)


@app.command()
def studies(
    name: Annotated[
        str | None, typer.Argument(help="A study's name or .toml file; without it, the list.")
    ] = None,
    set_: Sets = None,
    debug: Debug = False,
) -> None:
    """List the studies, or show every field of one: its value and what it means.

    Your own study is a TOML file with the fields that differ, and `inherits = "NAME"` for the rest.
    """
    if name is None:
        table = Table("study", "data", "nodes", "about")
        for each in list_studies():
            s = load_study(each)
            table.add_row(each, s.data.dataset, str(s.graph.nodes), s.about)
        out.print(table)
        return
    field, value = Column("field", no_wrap=True), Column("value", overflow="fold", max_width=16)
    table = Table(field, value, "meaning", title=escape(name))
    for path, given, meaning in describe(load_study(name, set_ or [])):
        table.add_row(path, "none" if given is None else escape(str(given)), escape(meaning))
    out.print(table)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method's name; without it, the list.")] = None,
    debug: Debug = False,
) -> None:
    """List the methods, or show one: what it does, what it exchanges, its settings."""
    from lntrust.methods import list_methods
    from lntrust.methods.lntrust.presets import OF, PRESETS, method_of, names

    known = list_methods()
    if name is None:
        table = Table("method", "uses validation", "about")
        for each, cls in known.items():
            table.add_row(each, "yes" if cls.uses_validation else "no", cls.about)
        for each, preset in PRESETS.items():
            table.add_row(f"{OF}+{each}", "yes", f"preset of {OF}: {preset.about}")
        out.print(table)
        return
    plain, chosen = method_of(name)
    if plain not in known:
        raise LNTrustError(f"method {name}: must be one of {', '.join([*known, *names()])}")
    cls = known[plain]
    out.print(escape((sys.modules[cls.__module__].__doc__ or "").strip()), highlight=False, soft_wrap=True)
    from lntrust.experiment.tune import search_space

    columns = ("setting", "default", "tuned in", "meaning")
    quoted = f'"{name}"' if chosen else name
    table = Table(*columns, title=f"[methods.{quoted}]".replace("[", r"\["))
    ranges = {} if plain == "centralized" else search_space(cls.settings_class)
    for field, info in cls.settings_class.model_fields.items():
        default = "none" if info.default is None else str(info.default)
        if chosen and field in chosen.settings:
            default = f"→ {chosen.settings[field]}"
        table.add_row(field, default, str(ranges.get(field, "")), info.description)
    if cls.settings_class.model_fields:
        out.print(table)


@app.command()
def graph(
    study: StudyName = "digits",
    seed: Annotated[int, typer.Option(min=0, help="The seed whose graph is drawn.")] = 0,
    set_: Sets = None,
    data: DataDir = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="PNG, PDF or SVG file. Default: STUDY-seedS.png here."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw a study's topology: degrees as colours, architectures as shapes, data sizes as areas."""
    from lntrust.report.figures.topology import draw_topology
    from lntrust.world import build_world, load_dataset

    chosen = load_study(study, set_ or [])
    path = to or Path(f"{chosen.name}-seed{seed}.png")
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise LNTrustError(f"--out {path}: must end in .png, .pdf or .svg")
    world = build_world(chosen, load_dataset(chosen.data.dataset, data), seed)
    draw_topology(world, path)
    degrees = world.degrees
    names = [learner.name for learner in chosen.population.learners]
    out.print(
        f"{path}: {world.n} nodes, {world.graph.number_of_edges()} edges, "
        f"degree {degrees.min()}–{degrees.max()}; "
        + ", ".join(f"{(world.kinds == k).sum()} {name}" for k, name in enumerate(names)),
        highlight=False, soft_wrap=True,
    )  # fmt: skip


@data_app.callback()
def data_list(context: typer.Context, data: DataDir = None, debug: Debug = False) -> None:
    """What data is here, where it was looked for, and how to get more."""
    if context.invoked_subcommand:
        return
    from lntrust.world.data.datasets import FILES, data_directory, missing_files

    folder = data_directory(data)
    columns = ("dataset", "here", Column("where", overflow="fold"))
    table = Table(*columns, title=escape(f"looked for in {folder}"))
    for name in FILES:
        missing = missing_files(name, folder)
        where = "embedded in scikit-learn" if name == "digits" else str(folder / name)
        table.add_row(name, "no" if missing else "yes", f"{missing[0]} is not there" if missing else where)
    out.print(table)
    out.print(
        "To get one: `lntrust data download NAME --to DIR`, then `lntrust data extract NAME --images DIR …`."
    )


@data_app.command("download")
def data_download(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, eurosat or uci_har.")],
    to: Annotated[Path, typer.Option(help="A new folder for the raw files.")],
    url: Annotated[str | None, typer.Option(help="Another address than the publisher's.")] = None,
    debug: Debug = False,
) -> None:
    """Fetch a dataset's raw files from its publisher, check them and unpack them."""
    from lntrust.world.data.download import download

    with Progress(console=err) as bar:
        task = bar.add_task(f"downloading {name}", total=None)
        download(name, to, url, lambda done, total: bar.update(task, completed=done, total=total or None))
    out.print(
        f"{to}: {name} is there; next: lntrust data extract {name} --images {to} --help",
        highlight=False,
    )


@data_app.command("extract")
def data_extract(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, eurosat or uci_har.")],
    images: Annotated[Path, typer.Option(help="The folder with the raw files.")],
    backbone: Annotated[
        Literal["mobilenet_v2", "efficientnet_b0"], typer.Option(help="Whose features to compute.")
    ] = "mobilenet_v2",
    onnx: Annotated[
        Path | None,
        typer.Option(help="Take the backbone from this ONNX file, not from torchvision."),
    ] = None,
    coordinates: Annotated[
        Path | None, typer.Option(help="eurosat: a CSV with file, latitude, longitude.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 64,
    device: Device = "auto",
    data: DataDir = None,
    debug: Debug = False,
) -> None:
    """Compute the features that the studies use from raw images (uci_har: put the windows in order)."""
    from lntrust.learners.views import pick_device
    from lntrust.world.data.datasets import data_directory
    from lntrust.world.data.extract import extract, extract_windows

    folder = data_directory(data)
    if name == "uci_har":
        extract_windows(images, folder)
    else:
        with Progress(console=err) as bar:
            task = bar.add_task(f"{name}, {backbone}", total=None)
            extract(
                name, images, folder, backbone, onnx=onnx, coordinates=coordinates, batch=batch,
                device=str(pick_device(device)),
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )  # fmt: skip
    out.print(f"{folder / name}: written", highlight=False)


def main() -> None:
    """The entry point."""
    start(app)
