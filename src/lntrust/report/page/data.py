"""What the page's charts are drawn from: numbers by section, as small as they can be."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lntrust.experiment.store import Record, fingerprint
from lntrust.report.rows import Row, Spread
from lntrust.report.sections import Section

Data = dict[str, Any]
_POINTS = 80  # of a curve; more cannot be told apart
_CHARTS = {"communication": "per_gb", "bytes": "bytes", "curves": "curves", "ablation": "ablation",
           "importance": "importance"}  # fmt: skip


def all_sections(sections: Sequence[Section], main: Mapping[str, Row]) -> Data:
    """Sections name their rows; what a row holds stands once, however many sections it is in."""
    rows: dict[str, Data] = {}
    alone: dict[str, list[list[float | None]]] = {}
    out = []
    for section in sections:
        named = []
        for row in section.rows:
            key = row_name(row.runs)
            if key not in rows:
                rows[key] = _row(row)
            if row.independent is not None and _compared(row):
                rows[key]["alone"] = row_name(row.independent)
                alone[row_name(row.independent)] = _scores(row.independent)
            told = {"label": row.label, "x": row.x, "paper": row.paper, "main": main.get(section.name) is row}
            named.append({"key": key, **told})
        out.append({"title": section.title, "x": section.x, "rows": named})
    return {"sections": out, "rows": rows, "alone": alone}


def row_name(records: Sequence[Record]) -> str:
    """The same for the same runs."""
    return fingerprint({"runs": [(record.key, record.identity["device"]) for record in records]})


def charts_of(section: Section) -> tuple[list[str], list[str]]:
    """Which charts say something about a section: those to be seen at once, and more."""
    rows = [row for row in section.rows if row.records]
    possible = []
    if section.x is not None and sum(row.x is not None for row in rows) > 1:
        possible.append("ablation")
    courses = [row for row in rows if _evaluated(row)]
    possible += ["bytes"] * any(row.gigabytes() > 0 for row in courses)
    if len(rows) > 1 and len(courses) == len(rows):
        possible += ["per_gb"] * (sum(row.gigabytes() > 0 for row in rows) > 1)
        possible += ["curves", *["scatter"] * any(_compared(row) for row in rows)]
    possible += ["importance"] * any(_importance(row) for row in rows)
    asked = [_CHARTS[figure.kind] for figure in section.figures if figure.kind in _CHARTS]
    if not asked and "ablation" not in possible:
        return possible, []
    asked += ["ablation", "scatter", *["per_gb"] * ("bytes" in asked)]
    if section.x is None and "importance" not in asked:
        asked.append("bytes")  # what accuracy costs is shown for every study; not in pictures of other things
    shown, more = [c for c in possible if c in asked], [c for c in possible if c not in asked]
    return (shown, more) if shown else (more, [])


def _evaluated(row: Row) -> bool:
    """Whether there is a course to draw: there are rounds at which every run has a score."""
    return len(_rounds(row.records)) > 0


def _row(row: Row) -> Data:
    first = row.first
    return {
        "method": first.method,
        "test": _pair(row.test),
        "self": _pair(row.spread("self")),
        "seeds": row.seeds,
        "gb": {kind: _short(row.gigabytes(kind)) for kind in ("reply", "parameters", "anchors", "total")}
        | {"answers": _short(row.answers)},
        "curve": _curve(row),
        "nodes": _nodes(row) if _compared(row) else None,
        "importance": _importance(row),
    }


def _pair(spread: Spread | None) -> list[float] | None:
    return None if spread is None else [round(spread.mean, 4), round(spread.std, 4)]


def _short(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def _scored(record: Record) -> dict[int, Data]:
    """What is known of the rounds that were evaluated."""
    if "test" not in record.rounds.column_names:
        return {}
    return {row["round"]: row for row in record.rounds.to_pylist() if row["test"] is not None}


def _rounds(records: Sequence[Record]) -> list[int]:
    """Those that all runs evaluated."""
    return sorted(set.intersection(*(set(_scored(record)) for record in records))) if records else []


def _curve(row: Row) -> Data:
    """Means over seeds at the rounds that all of them evaluated; bytes are per node, in GB."""
    runs, rounds = [_scored(record) for record in row.records], _rounds(row.records)
    if len(rounds) > _POINTS:
        rounds = [rounds[i] for i in np.unique(np.linspace(0, len(rounds) - 1, _POINTS).astype(int))]
    nodes = [record.summary["nodes"] for record in row.records]
    sent = [float(np.mean([run[r]["bytes"] / n for run, n in zip(runs, nodes, strict=True)])) for r in rounds]
    # All that was sent led to the last score, also what was sent after the last round.
    sent[-1:] = [1e9 * row.gigabytes()] * (len(sent) > 0)
    means = {
        score: [round(float(np.mean([run[r][score] for run in runs])), 4) for r in rounds]
        for score in ("test", "self")
    }
    return {"round": rounds, "gb": [_short(value / 1e9) for value in sent], **means}


def _compared(row: Row) -> bool:
    return row.independent is not None and row.first.method != "independent"


def _nodes(row: Row) -> Data:
    pooled = row.first.summary["per_node"]["test_pooled"] is not None
    return {"score": "pooled" if pooled else "own test sets", "ours": _scores(row.records)}


def _scores(records: Sequence[Record]) -> list[list[float | None]]:
    """What single nodes are judged by, seed by seed: pooled where there is such a score."""
    tables = [record.summary["per_node"] for record in records]
    found = [table["test"] if table["test_pooled"] is None else table["test_pooled"] for table in tables]
    return [[None if value is None else round(value, 3) for value in scores] for scores in found]


def _importance(row: Row) -> Data | None:
    """The mean over seeds; the deviation is over seeds, of one seed over repetitions."""
    reports = [record.summary.get("method_report") or {} for record in row.records]
    found = [report["importance"] for report in reports if report.get("importance")]
    if not found:
        return None
    out = {}
    for name in found[0]:
        values = [each[name] for each in found]
        std = float(np.std(values)) if len(values) > 1 else reports[0]["importance_std"][name]
        out[name] = [_short(float(np.mean(values))), _short(std)]
    return out
