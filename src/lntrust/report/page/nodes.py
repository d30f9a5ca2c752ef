"""The nodes of LNTrust's runs, one by one, and maps of worlds that lie on the earth: data for the page."""

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lntrust.experiment.store import Record
from lntrust.report.figures.coast import land
from lntrust.report.figures.topology import spread_out
from lntrust.report.rows import Row
from lntrust.report.sections import Section
from lntrust.trust.features import FEATURES

Data = dict[str, Any]
_COLUMNS = [name.replace(" ", "_") for name in FEATURES]
_MARGIN = 1.5  # degrees around a map


def pack(data: object) -> str:
    """JSON, deflated, as base64: a browser unpacks it by itself. Nodes and tiles are most of a page."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def packed_size(data: object) -> int:
    return len(pack(data))


def graphs(sections: Sequence[Section], main: Mapping[str, Row], room: int) -> tuple[Data, int]:
    """As many runs of LNTrust as there is room for (packed, in bytes), and how many were left out.

    First the main row of every section, then its other seeds, then all other rows.
    """
    runs: list[Data] = []
    worlds: dict[str, Data] = {}
    names: dict[str, str] = {}  # of rows, by what they are, in the order they came
    left_out = 0
    for section, row, record in _candidates(sections, main):
        name = hashlib.sha256(record.world_text.encode()).hexdigest()[:8]
        world = None if name in worlds else _world(record)
        called = names.setdefault(record.row_key, f"{section.title} · {row.label}")
        run = {"name": called, "study": record.study, "seed": record.seed, "world": name, **_run(record)}
        size = packed_size(run) + (0 if world is None else packed_size(world))
        if size > room:
            left_out += 1
            continue
        room -= size
        runs.append(run)
        if world is not None:
            worlds[name] = world
    order = list(names.values())
    runs.sort(key=lambda run: (order.index(run["name"]), run["seed"]))
    return {"features": list(FEATURES), "runs": runs, "worlds": worlds}, left_out


def _candidates(
    sections: Sequence[Section], main: Mapping[str, Row]
) -> Iterator[tuple[Section, Row, Record]]:
    rows = [(section, main[section.name]) for section in sections if section.name in main]
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
        centres = np.array(world["centres"])
        shrink = np.cos(np.radians(centres[:, 0].mean()))
        places = np.stack([centres[:, 1] * shrink, -centres[:, 0]], axis=1)
    else:
        edges = tuple((a, b) for a, b in world["edges"])
        places = _turned(spread_out(len(world["kinds"]), edges))
    low, span = places.min(0), max(float(np.ptp(places, axis=0).max()), 1e-9)
    return [[int(x), int(y)] for x, y in np.rint((places - low) / span * 1000)]


def _turned(places: Float[ndarray, "n 2"]) -> Float[ndarray, "n 2"]:
    """So that the longer side lies: screens are wider than high."""
    centred = places - places.mean(0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=True)[2].T)


def _run(record: Record) -> Data:
    """Whom each node trusts after the last refresh and why, and its gate at every refresh."""
    n = len(record.world["kinds"])
    trust = {name: np.asarray(column) for name, column in zip(
        record.tables["trust"].column_names, record.tables["trust"].columns, strict=True)}  # fmt: skip
    rounds = np.unique(trust["round"])
    last = trust["round"] == rounds[-1]
    weight = {
        (int(i), int(j)): float(w)
        for i, j, w in zip(trust["node"][last], trust["member"][last], trust["trust"][last], strict=True)
    }
    members: list[list[list[float]]] = [[] for _ in range(n)]
    for row in record.tables["features"].to_pylist():
        i, j = row["node"], row["member"]
        numbers = [round(weight[i, j], 3), *(float(f"{row[name]:.3g}") for name in _COLUMNS)]
        members[i].append([j, *numbers])
    gate, together = _gate(trust, rounds, n)
    scores = record.summary["per_node"]
    names = ("test", "self", "test_pooled", "self_pooled")
    return {
        "members": members,
        "rounds": rounds.tolist(),
        "lambda": gate,
        "together": together,
        "scores": {name: _rounded(scores[name]) for name in names if scores[name] is not None},
    }


def _gate(trust: dict[str, Any], rounds: Float[ndarray, "R"], n: int) -> tuple[list[list[float]], list[str]]:
    """λ by node and refresh, and whether a node answers with others: a string of 0 and 1."""
    at = np.searchsorted(rounds, trust["round"])
    gate, together = np.zeros((n, len(rounds))), np.zeros((n, len(rounds)), dtype=bool)
    gate[trust["node"], at] = trust["lambda"]
    together[trust["node"], at] = trust["answers_together"]
    return np.round(gate, 3).tolist(), ["".join("01"[int(x)] for x in row) for row in together]


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]


# -- maps -----------------------------------------------------------------------------------------


def maps(records: Sequence[Record]) -> list[Data]:
    """One for every set of regions, with the tiles of its first run: regions are the same for every seed."""
    out: dict[str, Data] = {}
    for record in sorted(records, key=lambda r: r.seed):
        regions = json.dumps(record.world["centres"])
        if record.world["tiles"] is not None and regions not in out:
            out[regions] = {"study": record.study, "seed": record.seed, **_map(record.world)}
    return list(out.values())


def _map(world: Data) -> Data:
    tiles = world["tiles"]
    table = np.stack([tiles["node"], tiles["longitude"], tiles["latitude"], tiles["class"]], axis=1)
    owned = Counter(tiles["node"])
    n = len(world["centres"])
    table = np.unique(table, axis=0)  # by node; many lie in the same hundredth of a degree
    scale = tiles["per_degree"]
    centres = np.array(world["centres"])[:, ::-1]
    everywhere = np.concatenate([table[:, 1:3] / scale, centres])
    west, south = (everywhere.min(0) - _MARGIN).tolist()
    east, north = (everywhere.max(0) + _MARGIN).tolist()
    rings = [_thinned(np.round(ring, 2)) for ring in land(west, south, east, north)]
    return {
        "classes": world["classes"],
        "centres": np.round(centres, 2).tolist(),
        "edges": world["edges"],
        "owned": [owned[i] for i in range(n)],  # tiles whose labels a node knows
        "window": [round(v, 2) for v in (west, south, east, north)],
        "land": [ring.tolist() for ring in rings if len(ring) > 3],
        "per_degree": scale,
        "tiles": {  # by node; how many each has drawn
            "count": np.bincount(table[:, 0], minlength=n).tolist(),
            "longitude": table[:, 1].tolist(),
            "latitude": table[:, 2].tolist(),
            "class": table[:, 3].tolist(),
        },
    }


def _thinned(ring: Float[ndarray, "k 2"]) -> Float[ndarray, "k 2"]:
    """Without points that rounding has put on the one before."""
    moved = np.any(np.diff(ring, axis=0) != 0, axis=1)
    return np.asarray(ring[np.concatenate([[True], moved])])
