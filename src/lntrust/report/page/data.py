"""What the page's charts, graphs and maps are drawn from: numbers by section, as small as they can be."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from lntrust.experiment.store import Record, fingerprint
from lntrust.report.figures.graphs import on_earth, spring_layout
from lntrust.report.figures.map import land
from lntrust.report.nodes import on_own_tests
from lntrust.report.rows import Row, grouped
from lntrust.report.sections import Section
from lntrust.trust.features import FEATURES

Data = dict[str, Any]
_POINTS = 80  # of a curve; more cannot be told apart
_CHARTS = {"communication": "per_gb", "bytes": "bytes", "curves": "curves", "ablation": "ablation",
           "importance": "importance"}  # fmt: skip
_MARGIN = 1.5  # degrees around a map


# -- charts of sections ---------------------------------------------------------------------------


def all_sections(sections: Sequence[Section]) -> Data:
    """Sections name their rows; what a row holds stands once, however many sections it is in."""
    rows: dict[str, Data] = {}
    alone: dict[str, list[list[float | None]]] = {}
    out = []
    for section in sections:
        named = []
        for row in section.rows:
            key = _row_name(row.runs)
            if key not in rows:
                rows[key] = _row(row)
            if row.compared:
                rows[key]["alone"] = name = _row_name(row.independent)
                alone[name] = _scores(row.independent)
            is_main = row is section.main
            named.append({"key": key, "label": row.label, "x": row.x, "paper": row.paper, "main": is_main})
        out.append({"title": section.title, "x": section.x, "rows": named})
    return {"sections": out, "rows": rows, "alone": alone}


def _row_name(records: Sequence[Record]) -> str:
    """The same for the same runs."""
    return fingerprint({"runs": [(record.key, record.identity["device"]) for record in records]})


def charts_of(section: Section) -> tuple[list[str], list[str]]:
    """Which charts say something about a section: those to be seen at once, and more."""
    rows = [row for row in section.rows if row.records]
    courses = [row for row in rows if row.evaluated]
    sending = sum(row.gigabytes() > 0 for row in courses)
    beside = len(rows) > 1 and len(courses) == len(rows)
    there = {
        "ablation": section.x is not None and sum(row.x is not None for row in rows) > 1,
        "bytes": sending > 0,
        "per_gb": beside and sending > 1,
        "curves": beside,
        "scatter": beside and any(row.compared for row in rows),
        "importance": any(_importance(row) for row in rows),
    }
    possible = [chart for chart, is_there in there.items() if is_there]
    asked = [_CHARTS[figure.kind] for figure in section.figures if figure.kind in _CHARTS]
    if not asked and "ablation" not in possible:
        return possible, []
    asked += ["ablation", "scatter", *["per_gb"] * ("bytes" in asked)]
    if section.x is None and "importance" not in asked:
        asked.append("bytes")  # what accuracy costs is shown for every study; not in pictures of other things
    shown, more = [c for c in possible if c in asked], [c for c in possible if c not in asked]
    return (shown, more) if shown else (more, [])


def _row(row: Row) -> Data:
    nodes = {"score": "own test sets" if _on_own_tests(row.first) else "pooled", "ours": _scores(row.records)}
    sent = {kind: row.gigabytes(kind) for kind in ("reply", "parameters", "anchors", "total")}
    test, own = row.courses["test"], row.courses["self"]
    count = len(test.rounds)
    kept = np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(int))
    curve = {
        "round": test.rounds[kept].astype(int).tolist(),
        "gb": [_short(value / 1e9) for value in test.bytes[kept].tolist()],
        "test": _rounded(test.mean[kept].tolist(), 4),
        "self": _rounded(own.mean[kept].tolist(), 4),
    }
    return {
        "method": row.method,
        "test": row.test and _rounded(row.test, 4),
        "self": (spread := row.spread("self")) and _rounded(spread, 4),
        "seeds": row.seeds,
        "gb": {kind: _short(value) for kind, value in (sent | {"answers": row.answers}).items()},
        "curve": curve,
        "nodes": nodes if row.compared else None,
        "importance": _importance(row),
    }


def _short(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def _scores(records: Sequence[Record]) -> list[list[float | None]]:
    """What single nodes are judged by, seed by seed."""
    tables = [
        record.summary["per_node"]["test" if _on_own_tests(record) else "test_pooled"] for record in records
    ]
    return [_rounded(scores, 3) for scores in tables]


def _on_own_tests(record: Record) -> bool:
    return on_own_tests(record) or record.summary["per_node"]["test_pooled"] is None


def _rounded(values: Sequence[float | None], digits: int) -> list[float | None]:
    return [None if value is None else round(value, digits) for value in values]


def _importance(row: Row) -> Data | None:
    """The mean over seeds; the deviation is over seeds, of one seed over repetitions."""
    reports = [record.summary.get("method_report") or {} for record in row.records]
    found = [report for report in reports if report.get("importance")]
    out = {}
    for name in found[0]["importance"] if found else []:
        values = [report["importance"][name] for report in found]
        std = float(np.std(values)) if len(values) > 1 else found[0]["importance_std"][name]
        out[name] = [_short(float(np.mean(values))), _short(std)]
    return out or None


# -- nodes of LNTrust's runs, one by one -----------------------------------------------------------


def compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def pack(data: object) -> str:
    """JSON, deflated, as base64: a browser unpacks it by itself. Nodes and tiles are most of a page."""
    return base64.b64encode(zlib.compress(compact(data).encode(), 9)).decode()


def graphs(sections: Sequence[Section], room: int) -> tuple[Data, int]:
    """As many runs of LNTrust as there is room for (packed, in bytes), and how many were left out.

    First the main row of every section, then its other seeds, then all other rows.
    """
    runs: list[Data] = []
    worlds: dict[str, Data] = {}
    names: dict[str, str] = {}  # of rows, by what they are, in the order they came
    left_out = 0
    for section, row, record in _candidates(sections):
        name = hashlib.sha256(record.world_text.encode()).hexdigest()[:8]
        new = {} if name in worlds else {name: _world(record)}
        called = names.setdefault(record.row_key, f"{section.title} · {row.label}")
        run = {"name": called, "study": record.study, "seed": record.seed, "world": name, **_run(record)}
        size = len(pack(run)) + sum(len(pack(world)) for world in new.values())
        if size > room:
            left_out += 1
            continue
        room -= size
        runs.append(run)
        worlds |= new
    order = list(names.values())
    runs.sort(key=lambda run: (order.index(run["name"]), run["seed"]))
    return {"features": list(FEATURES), "runs": runs, "worlds": worlds}, left_out


def _candidates(sections: Sequence[Section]) -> Iterator[tuple[Section, Row, Record]]:
    rows = [(section, row) for section in sections if (row := section.main)]
    others = [(section, row) for section in sections for row in section.rows]
    order = [(section, row, record) for section, row in rows for record in row.records[:1]]
    order += [(section, row, record) for section, row in [*rows, *others] for record in row.records]
    seen: set[str] = set()
    for section, row, record in order:
        if record.key not in seen and {"trust", "features"} <= set(record.tables):
            seen.add(record.key)
            yield section, row, record


def _world(record: Record) -> Data:
    world = record.world
    kept = ("classes", "learners", "kinds", "edges", "train", "validation", "test")
    return {**{name: world[name] for name in kept}, "on_earth": world["centres"] is not None,
            "places": _places(world)}  # fmt: skip


def _places(world: Data) -> list[list[int]]:
    """True places where there are such, else a spring layout; x to the right, y down, in thousandths."""
    if world["centres"] is not None:
        places = on_earth(np.array(world["centres"])) * [1, -1]
    else:
        places = spring_layout(len(world["kinds"]), tuple((a, b) for a, b in world["edges"]))
        centred = places - places.mean(0)  # the longer side lies: screens are wider than high
        places = centred @ np.linalg.svd(centred, full_matrices=True)[2].T
    low, span = places.min(0), max(float(np.ptp(places, axis=0).max()), 1e-9)
    return [[int(x), int(y)] for x, y in np.rint((places - low) / span * 1000)]


def _run(record: Record) -> Data:
    """Whom each node trusts after the last refresh and why, and its gate at every refresh."""
    n = len(record.world["kinds"])
    table = record.tables["trust"]
    trust = {name: table.column(name).to_numpy() for name in table.column_names}
    rounds, at = np.unique(trust["round"], return_inverse=True)
    gate, together = np.zeros((n, len(rounds))), np.zeros((n, len(rounds)), dtype=int)
    gate[trust["node"], at] = trust["lambda"]
    together[trust["node"], at] = trust["answers_together"]
    last = at == len(rounds) - 1
    pairs = zip(trust["node"][last], trust["member"][last], strict=True)
    weight = dict(zip(pairs, trust["trust"][last].tolist(), strict=True))
    members: list[list[list[float]]] = [[] for _ in range(n)]
    for row in record.tables["features"].to_pylist():
        i, j = row["node"], row["member"]
        features = [float(f"{row[name.replace(' ', '_')]:.3g}") for name in FEATURES]
        members[i].append([j, round(weight[i, j], 3), *features])
    scores = record.summary["per_node"]
    names = ("test", "self", "test_pooled", "self_pooled")
    return {
        "members": members,
        "rounds": rounds.tolist(),
        "lambda": np.round(gate, 3).tolist(),
        "together": ["".join(map(str, row)) for row in together.tolist()],
        "scores": {name: _rounded(scores[name], 4) for name in names if scores[name] is not None},
    }


# -- maps -----------------------------------------------------------------------------------------


def maps(records: Sequence[Record]) -> list[Data]:
    """One for every set of regions, with the tiles of its first run: regions are the same for every seed."""
    placed = [r for r in sorted(records, key=lambda r: r.seed) if r.world["tiles"] is not None]
    alike = grouped(placed, lambda r: json.dumps(r.world["centres"])).values()
    return [{"study": r.study, "seed": r.seed, **_map(r.world)} for r, *_ in alike]


def _map(world: Data) -> Data:
    tiles, n = world["tiles"], len(world["centres"])
    table = np.stack([tiles["node"], tiles["longitude"], tiles["latitude"], tiles["class"]], axis=1)
    table = np.unique(table, axis=0)  # by node; many lie in the same hundredth of a degree
    scale, centres = tiles["per_degree"], np.array(world["centres"])[:, ::-1]
    everywhere = np.concatenate([table[:, 1:3] / scale, centres])
    window = [*(everywhere.min(0) - _MARGIN).tolist(), *(everywhere.max(0) + _MARGIN).tolist()]
    # Without points that rounding has put on the one before.
    rings = [[xy for xy, _ in groupby(np.round(ring, 2).tolist())] for ring in land(*window)]
    return {
        "classes": world["classes"],
        "centres": np.round(centres, 2).tolist(),
        "edges": world["edges"],
        "owned": np.bincount(tiles["node"], minlength=n).tolist(),  # tiles whose labels a node knows
        "window": [round(end, 2) for end in window],
        "land": [ring for ring in rings if len(ring) > 3],
        "per_degree": scale,
        "tiles": {  # by node; how many each has drawn
            "count": np.bincount(table[:, 0], minlength=n).tolist(),
            "longitude": table[:, 1].tolist(),
            "latitude": table[:, 2].tolist(),
            "class": table[:, 3].tolist(),
        },
    }
