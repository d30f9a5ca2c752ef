"""The table at the end of a run: methods side by side, means over seeds."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table


def human_bytes(count: float) -> str:
    """1,234,567 → 1.2 MB; decimal units, as network speeds are."""
    for unit in ("B", "kB", "MB", "GB"):
        digits = 0 if unit == "B" else 1
        if round(count, digits) < 1000:
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _spread(values: Sequence[float | None]) -> str:
    """Mean ± standard deviation over seeds (ddof 0), or the one value."""
    present = [v for v in values if v is not None]
    if not present:
        return "–"
    if len(present) == 1:
        return f"{present[0]:.3f}"
    return f"{np.mean(present):.3f} ± {np.std(present):.3f}"


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
        caption="Test: as deployed. Self: each node's own model. Pooled: Test on the union of all test "
        "sets, weighted by each node's classes. Harmed: share of nodes worse off deployed than alone, "
        "pooled. Bytes: sent in training by all nodes; per answer: by one deployed node.",
        caption_justify="left",
    )
    # In a narrow terminal numbers wrap before names of usual length do, and nothing is cut off.
    table.add_column(
        "method", overflow="fold", no_wrap=max(map(len, "\n".join(by_method).splitlines())) <= 16
    )
    for name in ("Test", "Self", "pooled", "harmed", "bytes", "per\nanswer", "time\n(s)"):
        table.add_column(name, justify="right", overflow="fold")
    for method, runs in by_method.items():
        columns = [_spread([run[k] for run in runs]) for k in ("test", "self", "test_pooled", "harmed")]
        total = float(np.mean([run["bytes"]["total"] for run in runs]))
        asking = float(np.mean([run["bytes"]["per_deployed_query"] for run in runs]))
        seconds = float(np.mean([run["seconds"] for run in runs]))
        table.add_row(method, *columns, human_bytes(total), human_bytes(asking), f"{seconds:.1f}")
        for variant in runs[0]["variants"]:
            scores = [run["variants"][variant] for run in runs]
            plain, pooled = (_spread([s[k] for s in scores]) for k in ("test", "test_pooled"))
            table.add_row(f"+ {variant}", plain, "", pooled, *[""] * 4)
    return table
