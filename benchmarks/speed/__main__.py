"""`python -m benchmarks.speed THEME`: how fast it is here, in figures that name their hardware."""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from lntrust.cli import options
from lntrust.cli.console import err, out, say, start
from lntrust.core.text import bytes_text, time_text
from lntrust.study.loading import load_study

bench = typer.Typer(
    help="Measure speed, memory and bytes on this machine. Every theme prints a table, and writes a JSON "
    "file with hardware, versions, study and revision (`ci` where --out is given).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Out = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", callback=options.no_file, help="Where the result file goes."),
]
Json = Annotated[bool, typer.Option("--json", help="The result as one JSON object, and no table.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads on the CPU, at most: small studies use one. Default: as torch has it."),
]
RandomData = Annotated[
    bool,
    typer.Option("--random-data", help="Random codes of the data's shape, even where the data is here."),
]
Rounds = Annotated[
    int | None, typer.Option(min=2, help="Fewer rounds, both stages in proportion. Default: the study's.")
]
RESULTS = Path("benchmarks/results")


def _threads(count: int | None) -> int:
    """Set the most threads there may be, before the views have their say; returns what now holds."""
    import torch

    if count is not None:
        torch.set_num_threads(count)
    return torch.get_num_threads()


def _finish(path: Path, as_json: bool, *shown: Table | str) -> None:
    """Show a result that was written: its tables and notes, or the object itself."""
    if as_json:
        print(json.dumps(json.loads(path.read_text("utf-8")), allow_nan=False))
        return
    for each in shown:
        out.print(each, highlight=False, soft_wrap=isinstance(each, str))
    say(f"Result: {path}")


@bench.command(cls=options.Command)
def roofline(
    study: options.StudyName = "sparse-cifar10",
    method: Annotated[
        list[str] | None, typer.Option(help="lntrust, independent or uniform, or several. Default: lntrust.")
    ] = None,
    seed: options.Seed = None,
    rounds: Rounds = None,
    set_: options.Sets = None,
    device: options.Device = "auto",
    threads: Threads = None,
    data: options.DataDir = None,
    random_data: RandomData = False,
    folder: Out = RESULTS,
    as_json: Json = False,
    debug: options.Debug = False,
) -> None:
    """A run against its roofline: the matrix products it cannot do without, and nothing else.

    Per supervised step, two products of every head's weights with a batch.
    Per distilling round, one product for the predictions asked for, and two
    with the examples distilled on. Data resident, no gather, no dropout, the
    same threads, and each product in the fastest form found. The ratio says
    how many times the roofline a run takes; 1 cannot be beaten.
    """
    from benchmarks.speed import roofline as theme
    from benchmarks.speed.data import bench_views
    from benchmarks.speed.results import write_result
    from lntrust.methods import find_method

    chosen, seed_ = theme.shortened(load_study(study, set_ or []), rounds), options.seed_of(seed)
    methods = options.methods_of(method) or ["lntrust"]
    for name in methods:
        find_method(name, chosen)
        theme.check_method(name)
    _threads(threads)
    views, random = bench_views(chosen, device, data, random_data)
    results = theme.compare(chosen, methods, seed_, views)
    tables = []
    for got in results:
        title = escape(f"{chosen.name}, {got['method']}, seed {seed_}")
        tables.append(Table("", "roofline", "run", "ratio", title=title))
        for row in got["ratio"]:
            times = (time_text(got["roofline_seconds"][row]), time_text(got["run_seconds"][row]))
            tables[-1].add_row(row.replace("_", " "), *times, f"{got['ratio'][row]:.2f}")
    body = {"random_data": random, "results": results}
    path = write_result("roofline", views.device, chosen.model_dump(mode="json"), body, folder)
    _finish(path, as_json, *tables)


@bench.command(cls=options.Command)
def speed(
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY…", help="Studies by name or file. Default: sparse-cifar10."),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="A method, or several. Default: lntrust and independent.")
    ] = None,
    seed: Annotated[
        list[str] | None, typer.Option(help="Seeds and ranges of them, as 0,2 or 0-4. Default: 0-2.")
    ] = None,
    rounds: Rounds = None,
    loop_rounds: Annotated[
        int, typer.Option(min=0, help="Rounds for the comparison with the loop backend; 0: none.")
    ] = 10,
    set_: options.Sets = None,
    device: options.Device = "auto",
    threads: Threads = None,
    data: options.DataDir = None,
    random_data: RandomData = False,
    folder: Out = RESULTS,
    as_json: Json = False,
    debug: options.Debug = False,
) -> None:
    """Whole runs, after the data is on the device: seconds, steps, memory.

    A short run warms up first. On a GPU all seeds run at once, stacked on the
    node axis, and seconds per run are the total divided by the seeds. The
    last column is how many times faster all nodes at once are than one node
    at a time, on the same study with few rounds, in the same process.
    """
    from benchmarks.speed import speed as theme
    from benchmarks.speed.data import bench_views
    from benchmarks.speed.results import write_result
    from benchmarks.speed.roofline import shortened
    from lntrust.methods import find_method

    names = options.methods_of(method) or ["lntrust", "independent"]
    seeds = options.seeds_of(seed) or [0, 1, 2]
    chosen = [shortened(load_study(each, set_ or []), rounds) for each in studies or ["sparse-cifar10"]]
    for one in chosen:
        for name in names:
            find_method(name, one)
    table = Table("study", "method", "s/run", "node steps/s", "peak memory", "loop / batched")
    rows = []
    for one in chosen:
        _threads(threads)
        views, random = bench_views(one, device, data, random_data)
        for name in names:
            row = theme.measure(one, name, seeds, views, loop_rounds)
            rows.append(row | {"random_data": random})
            table.add_row(
                escape(one.name), escape(name), f"{row['seconds_per_run']:.3g}",
                f"{row['node_steps_per_second']:,.0f}", f"{row['peak_memory_gb']:.2f} GB",
                f"{row['loop']['ratio']:.1f}" if "loop" in row else "",
            )  # fmt: skip
    held = {one.name: one.model_dump(mode="json") for one in chosen}
    _finish(write_result("speed", views.device, held, {"results": rows}, folder), as_json, table)


@bench.command(cls=options.Command)
def scale(
    nodes: Annotated[
        list[int] | None,
        typer.Option(
            min=2, help="Nodes; may be given several times. Default: 50, 500, 5000, and 10000 on a GPU."
        ),
    ] = None,
    set_: options.Sets = None,
    device: options.Device = "auto",
    threads: Threads = None,
    rows: Annotated[int, typer.Option(min=100, help="Examples.")] = 60_000,
    features: Annotated[int, typer.Option(min=1, help="Numbers per example, D.")] = 1280,
    seed: options.Seed = None,
    folder: Out = RESULTS,
    as_json: Json = False,
    debug: options.Debug = False,
) -> None:
    """Rounds of LNTrust as the nodes grow in number: seconds, memory, bytes.

    Random graphs of mean degree 4.88, 100 labels per node by overlapping
    draws, the learners of sparse-cifar10 on random codes; no accuracy. A plot
    lies beside the result file, everything against nodes and against edges.
    """
    from benchmarks.speed import scale as theme
    from benchmarks.speed.data import random_views
    from benchmarks.speed.results import write_result
    from lntrust.experiment.store import hardware
    from lntrust.learners.views import pick_device

    where, seed_ = pick_device(device), options.seed_of(seed)
    wanted = sorted(set(nodes or theme.NODES + (theme.MORE_NODES if where.type == "cuda" else ())))
    studies = [theme.scale_study(n, set_ or []) for n in wanted]
    _threads(threads)
    views = random_views(studies[-1], device, rows, features)
    columns = ("nodes", "edges", "supervised", "distilling", "refresh", "bytes/round", "memory", "world")
    table = Table(*columns, title="LNTrust, seconds per round")
    results = []
    for n in wanted:
        if err.is_terminal:
            say(f"{n} nodes …", err)
        row = theme.measure(n, views, set_ or [], seed_)
        results.append(row)
        seconds = [time_text(row["seconds"][kind]) for kind in ("supervised", "distilling", "refresh")]
        table.add_row(
            f"{n:,}", f"{row['edges']:,}", *seconds, bytes_text(row["bytes"]["distilling"]),
            f"{row['peak_memory_gb']:.2f} GB", time_text(row["build_seconds"]["world"]),
        )  # fmt: skip
    body = {"random_data": True, "rows": rows, "features": features, "seed": seed_, "results": results}
    path = write_result("scale", where, studies[-1].model_dump(mode="json"), body, folder)
    plot, held = path.with_suffix(".png"), hardware(where)
    machine = str(held["gpu"] or f"{held['cpu']}, threads: {held['threads']}")
    theme.plot(results, plot, f"LNTrust, mean degree {theme.DEGREE}, {machine}")
    _finish(path, as_json, table, escape(f"Plot: {plot}"))


@bench.command(cls=options.Command)
def peer(
    python: Annotated[
        Path | None,
        typer.Option(help="An interpreter that has gossipy (gossipy-dfl). Without it, our side alone."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds: 100 updates each.")] = 20,
    repeats: Annotated[int, typer.Option(min=1, help="Times each side is measured; the best counts.")] = 3,
    device: options.Device = "auto",
    threads: Threads = None,
    folder: Out = RESULTS,
    as_json: Json = False,
    debug: options.Debug = False,
) -> None:
    """Gossip averaging of 100 linear heads, here and in gossipy, side by side.

    Same data, graph, model and sample gradients. One update is one merge and
    two SGD steps of 50 examples. gossipy is run by an interpreter of its own:

      python -m venv ENV && ENV/bin/pip install gossipy-dfl
      python -m benchmarks.speed peer --python ENV/bin/python
    """
    from benchmarks.speed import peer as theme
    from benchmarks.speed.results import write_result
    from lntrust.learners.views import pick_device

    where = pick_device(device)
    got = theme.compare(where, python, rounds, _threads(threads), repeats)
    table = Table("", "updates/s", "merges", "updates", "SGD steps", "sample gradients", "seconds")
    for name, one in got["best"].items():
        counts = [f"{one[key]:,}" for key in ("merges", "updates", "steps", "samples")]
        table.add_row(name, f"{got['updates_per_second'][name]:,.0f}", *counts, f"{one['seconds']:.3f}")
    verdict = "gossipy was not measured: --python names an interpreter that has it."
    if got["ratio"] is not None:
        verdict = f"lntrust does {got['ratio']:.1f} times as many updates per second."
    path = write_result("peer", where, theme.peer_study().model_dump(mode="json"), got, folder)
    _finish(path, as_json, table, verdict, *(escape(f"- {note}") for note in got["notes"]))


@bench.command()
def ci(
    baseline: Annotated[Path, typer.Option(help="The committed ratios.")] = Path(
        "benchmarks/ci_baseline.json"
    ),
    update: Annotated[
        bool, typer.Option("--update", help="Write what is measured as the new committed ratios.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", callback=options.no_file, help="Also write a result file there."
        ),
    ] = None,
    debug: options.Debug = False,
) -> None:
    """A minute's check that nothing became slow: ratios, the best of three.

    A run to its roofline, and all nodes at once to one at a time, on random
    codes in small. Smaller is better. Ends with exit code 1 where a ratio is
    worse than the committed one by a factor of 2 or more.
    """
    import torch

    from benchmarks.speed import ci as theme
    from benchmarks.speed.results import write_result
    from lntrust.experiment.store import hardware

    committed = {} if update else theme.read_baseline(baseline)
    ratios = theme.measure()
    table = Table("ratio", "here", "committed", "fails from", title="smaller is better")
    for name, ratio in ratios.items():
        was = committed.get(name)
        limits = ("", "") if was is None else (f"{was:.3f}", f"{theme.FACTOR * was:.3f}")
        table.add_row(name, f"{ratio:.3f}", *limits)
    out.print(table)
    cpu = torch.device("cpu")
    if folder is not None:
        body = {"ratios": ratios, "committed": committed}
        path = write_result("ci", cpu, theme.small_study().model_dump(mode="json"), body, folder)
        say(f"Result: {path}")
    if update:
        theme.write_baseline(baseline, ratios, hardware(cpu))
        say(f"{baseline}: written")
        return
    problems = theme.worse(ratios, committed)
    for problem in problems:
        say(f"slower: {problem}", err, style="red")
    if problems:
        raise typer.Exit(1)


@bench.command(cls=options.Command)
def fleet(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each turn of throughput takes.")] = 2.0,
    turns: Annotated[int, typer.Option(min=1, help="Turns of echo and node, after one to warm up.")] = 5,
    questions: Annotated[int, typer.Option(min=10, help="Single examples through the HTTP door.")] = 2000,
    folder: Out = RESULTS,
    as_json: Json = False,
    debug: options.Debug = False,
) -> None:
    """Live nodes on loopback: predictions a second, and one answer's latency.

    Throughput of one node with a linear head on 1280 features, in batches of
    256, against a bare Zenoh echo of the same sizes; latency of one example
    over five neighbours through the HTTP door, while nobody trains and while
    all do. Mutual TLS, access control, no shared memory. Takes a minute or two.
    """
    import torch

    from benchmarks.speed import fleet as theme
    from benchmarks.speed.results import write_result

    body: dict[str, Any] = {"throughput": [], "latency": []}
    rates = Table("in flight", "node, predictions/s", "bare echo", "ratio")
    times = Table("one example, five neighbours", "p50", "p99", "worst", "members")
    with tempfile.TemporaryDirectory(prefix="lntrust-bench-") as place:
        for in_flight in (1, 8):
            with err.status(f"throughput, {in_flight} in flight"):
                row = theme.throughput(Path(place) / f"throughput-{in_flight}", seconds, turns, in_flight)
            body["throughput"].append(row)
            node, echo = f"{row['node_per_second']:,.0f}", f"{row['echo_per_second']:,.0f}"
            rates.add_row(str(in_flight), node, echo, f"{row['ratio']:.2f}")
        for training in (False, True):
            with err.status("latency" + (", all nodes train" if training else "")):
                row = theme.latency(Path(place) / f"latency-{training}", questions, training)
            body["latency"].append(row)
            ms = [f"{row[name]:.2f} ms" for name in ("p50_ms", "p99_ms", "worst_ms")]
            times.add_row("all train" if training else "nobody trains", *ms, f"{row['mean_members']:.1f}")
    path = write_result("fleet", torch.device("cpu"), None, body, folder)
    _finish(path, as_json, rates, times)


if __name__ == "__main__":
    start(bench)
