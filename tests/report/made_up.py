"""Finished runs with scores of one's choice, as `read_runs` would give them; and runs and rows, changed."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lntrust import load_study
from lntrust.experiment.store import Record, identities
from lntrust.network.codec import KINDS
from lntrust.report.rows import Row

NODES = 4
PLACES = [[48.86, 2.35], [52.52, 13.4], [41.9, 12.5], [40.42, -3.7], [59.33, 18.07], [51.5, -0.12]]
Scores = float | Sequence[float | None] | None  # of all nodes, or of each


def made(
    method: str = "lntrust", seed: int = 0, test: Scores = 0.8, *, sets: Sequence[str] = (),
    device: str = "cpu", own: Scores = 0.7, pooled: Scores = None, own_pooled: Scores = None,
    stage1: float | None = 0.6, best: float | None = None, sent: dict[str, int] | None = None,
    study: str = "digits", **changes: Any,
) -> Record:  # fmt: skip
    """One run of the digits study, which nobody trained; `sets` as on the command line."""
    chosen = load_study(study, sets)
    (of,) = identities(chosen, method, [seed], device)
    per_node = {
        "test": _nodes(test), "self": _nodes(own), "test_pooled": _nodes(pooled),
        "self_pooled": _nodes(own_pooled),
    }  # fmt: skip
    means = {name: _mean(values) for name, values in per_node.items()}
    sizes = dict.fromkeys((*KINDS, "framing"), 0) | (sent or {})
    summary = {
        "study": chosen.name, "method": method, "deploy": chosen.deploy, "seed": seed, "nodes": NODES,
        **means, "stage1": stage1,
        "best_round_test_selected": means["test"] if best is None else best, "per_node": per_node,
        "bytes": {**sizes, "total": sum(sizes.values()), "per_deployed_query": 100.0},
        "seconds": 2.0, "variants": {}, **changes,
    }  # fmt: skip
    made_with = {"versions": {"torch": "2"}, "hardware": {"cpu": f"machine {seed}"}}
    return Record(of | made_with, summary, "{}", {"rounds": pa.table({"round": [1]})})


def made_seeds(method: str, *tests: Scores, **more: Any) -> list[Record]:
    """A run for each score, with seeds from 0 on."""
    return [made(method, seed, test, **more) for seed, test in enumerate(tests)]


def _nodes(scores: Scores) -> list[float | None] | None:
    if scores is None:
        return None
    return [scores] * NODES if isinstance(scores, float) else list(scores)


def _mean(values: list[float | None] | None) -> float | None:
    known = [value for value in values or [] if value is not None]
    return sum(known) / len(known) if known else None


# -- the same run, a little changed ---------------------------------------------------------------


def changed(record: Record, **summary: Any) -> Record:
    return dataclasses.replace(record, summary={**record.summary, **summary})


def sending(record: Record, **bytes_: Any) -> Record:
    return changed(record, bytes={**record.summary["bytes"], **bytes_})


def older(record: Record) -> Record:
    """As runs were stored before headers were counted by kind."""
    later = ("framing_by_kind", "asked_per_input")
    return changed(record, bytes={k: v for k, v in record.summary["bytes"].items() if k not in later})


def identified(record: Record, **identity: Any) -> Record:
    return dataclasses.replace(record, identity={**record.identity, **identity})


def in_study(record: Record, **study: Any) -> Record:
    return identified(record, study={**record.identity["study"], **study})


def in_world(record: Record, **world: Any) -> Record:
    return dataclasses.replace(record, world_text=json.dumps({**record.world, **world}))


def with_rounds(record: Record, **columns: Any) -> Record:
    table = pa.Table.from_pydict({**record.rounds.to_pydict(), **columns}, schema=record.rounds.schema)
    return dataclasses.replace(record, tables={**record.tables, "rounds": table})


def on_earth(record: Record) -> Record:
    """The same run in six cities with 30 tiles around each."""
    tiles = [(i, round(100 * lat) + k % 6, round(100 * lon) + k // 6, (i + k) % 10)
             for i, (lat, lon) in enumerate(PLACES) for k in range(30)]  # fmt: skip
    columns = dict(zip(("node", "latitude", "longitude", "class"), zip(*tiles, strict=True), strict=True))
    return in_world(record, centres=PLACES, tiles={**columns, "per_degree": 100})


# -- the same row ---------------------------------------------------------------------------------


def by_method(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.first.method: row for row in rows}


def each(row: Row, change: Any, **arguments: Any) -> Row:
    """With each of its runs changed."""
    return dataclasses.replace(row, records=[change(record, **arguments) for record in row.records])


def renamed(row: Row, method: str) -> Row:
    """The same runs under another method's name."""
    return dataclasses.replace(each(row, identified, method=method), label=method)


def preset(rows: Sequence[Row], name: str) -> Row:
    return renamed(by_method(rows)["lntrust"], f"lntrust+{name}")


def variant(row: Row, label: str, x: float | None = None, **settings: Any) -> Row:
    other = {**row.first.identity["settings"], **settings}
    return dataclasses.replace(each(row, identified, settings=other), label=label, x=x)
