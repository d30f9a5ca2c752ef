"""The table at the end of a run: methods side by side, means over seeds."""

import textwrap
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from lntrust.experiment.divergence import what_diverged

_USUAL = 16  # letters that a method's name has at most


def human_bytes(count: float) -> str:
    """1,234,567 → 1.2 MB; decimal units, as network speeds are."""
    for unit in ("B", "kB", "MB", "GB"):
        digits = 0 if unit == "B" else 1
        if round(count, digits) < 1000:
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _short_bytes(count: float) -> str:
    """The same in at most seven columns, up to terabytes."""
    number, unit = human_bytes(count).split()
    return f"{float(number):.0f} {unit}" if len(number) > 3 else f"{number} {unit}"


def _mean(values: Sequence[float | None], spread: bool = False) -> str:
    """Mean over seeds and, if wanted, ± standard deviation (ddof 0): `.792 ±.012`."""
    present = [v for v in values if v is not None]
    if not present:
        return "–"
    deviation = f" ±{_short(float(np.std(present)))}" if spread and len(present) > 1 else ""
    return _short(float(np.mean(present))) + deviation


def _short(score: float) -> str:
    return f"{score:.3f}".removeprefix("0")


def _settings(setting: dict[str, Any]) -> list[str]:
    """What tells a setting from the others, a line each: `skew=20`. How it is deployed is told already."""
    return [f"  {path.rpartition('.')[2]}={value}" for path, value in setting.items() if path != "deploy"]


def results_table(summaries: Sequence[dict[str, Any]]) -> Table:
    """One row per method, and → how it is deployed where the study says so; in a sweep, one per setting."""
    by_method: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for summary in summaries:
        deploy = summary["deploy"]
        name = summary["method"] + (f" → {deploy}" if deploy else "")
        by_method["\n".join([name, *_settings(summary.get("setting", {}))])].append(summary)
    first = summaries[0]
    seeds = sorted({s["seed"] for s in summaries})
    table = Table(
        title=f"{first['study']}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        caption=f"Test: as deployed{', ± deviation over seeds' if len(seeds) > 1 else ''}. "
        "Self: each node's own model. Pooled: Test on the union of all test sets, weighted by each node's "
        "classes. Harmed: share of nodes worse off deployed than alone, pooled. Bytes: sent in training by "
        "all nodes; per answer: by one deployed node.",
        caption_justify="left",
    )
    # A method is one line of 80 columns, so only Test has its ±. In a narrower terminal numbers wrap before
    # names of usual length do, and nothing is cut off.
    longest = max(map(len, "\n".join(by_method).splitlines()))
    table.add_column("method", overflow="fold", no_wrap=longest <= _USUAL)
    for name in ("Test", "Self", "pooled", "harmed", "bytes", "per\nanswer", "time\n(s)"):
        table.add_column(name, justify="right", overflow="fold")
    for method, every in by_method.items():
        remark = textwrap.wrap(what_diverged(every), _USUAL - 2)
        name = "\n  ".join([method, *remark])
        runs = [run for run in every if run.get("diverged") is None]
        seconds = float(np.mean([run["seconds"] for run in runs or every]))
        time = f"{seconds:.{1 if seconds < 99.95 else 0}f}"
        if not runs:
            table.add_row(name, *["–"] * 6, time)
            continue
        test, *others = ([run[k] for run in runs] for k in ("test", "self", "test_pooled", "harmed"))
        scores = [_mean(test, spread=True), *map(_mean, others)]
        total = float(np.mean([run["bytes"]["total"] for run in runs]))
        asking = float(np.mean([run["bytes"]["per_deployed_query"] for run in runs]))
        table.add_row(name, *scores, _short_bytes(total), _short_bytes(asking), time)
        for variant in runs[0]["variants"]:
            plain, pooled = ([run["variants"][variant][k] for run in runs] for k in ("test", "test_pooled"))
            table.add_row(f"+ {variant}", _mean(plain, spread=True), "", _mean(pooled), *[""] * 4)
    return table
