"""Finished runs with scores of one's choice, as `read_runs` would give them: data, and nobody trained."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lntrust import load_study
from lntrust.experiment.store import Record, identity
from lntrust.methods import find_method
from lntrust.report.rows import KINDS

NODES = 4
Scores = float | Sequence[float | None] | None  # of all nodes, or of each


def made(
    method: str = "lntrust", seed: int = 0, test: Scores = 0.8, *, sets: Sequence[str] = (),
    device: str = "cpu", own: Scores = 0.7, pooled: Scores = None, stage1: float | None = 0.6,
    best: float | None = None, sent: dict[str, int] | None = None, study: str = "digits", **changes: Any,
) -> Record:  # fmt: skip
    """One run of the digits study; `sets` as on the command line."""
    chosen = load_study(study, sets)
    of = identity(chosen, method, find_method(method, chosen), seed, device)
    per_node = {
        "test": _nodes(test), "self": _nodes(own), "test_pooled": _nodes(pooled), "self_pooled": None,
    }  # fmt: skip
    means = {name: _mean(values) for name, values in per_node.items()}
    sizes = dict.fromkeys(KINDS, 0) | (sent or {})
    summary = {
        "study": chosen.name, "method": method, "deploy": chosen.deploy, "seed": seed, "nodes": NODES,
        **means, "stage1": stage1, "p10": 0.65, "harmed": 0.25,
        "best_round_test_selected": means["test"] if best is None else best, "per_node": per_node,
        "bytes": {**sizes, "total": sum(sizes.values()), "per_deployed_query": 100.0},
        "seconds": 2.0, "variants": {}, **changes,
    }  # fmt: skip
    made_with = {"versions": {"torch": "2"}, "hardware": {"cpu": f"machine {seed}"}}
    return Record(of | made_with, summary, "{}", {"rounds": pa.table({"round": [1]})})


def _nodes(scores: Scores) -> list[float | None] | None:
    if scores is None:
        return None
    return [scores] * NODES if isinstance(scores, float) else list(scores)


def _mean(values: list[float | None] | None) -> float | None:
    known = [value for value in values or [] if value is not None]
    return sum(known) / len(known) if known else None
