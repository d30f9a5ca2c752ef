"""Scale, on small numbers of nodes and narrow codes."""

from typing import Any

import numpy as np
import pytest

from benchmarks.speed import scale
from benchmarks.speed.data import random_views
from lntrust.world import build_world

SETS = [
    "partition.pool=200", "partition.shard=50", "methods.lntrust.budget=20", "methods.lntrust.sample=10",
    "training.batch=8",
]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    views = random_views(scale.scale_study(40, SETS), rows=1500, features=8)
    return [scale.measure(n, views, SETS) for n in (20, 40)]


def test_the_world_that_is_measured() -> None:
    """Mean degree 4.88, 100 labels each, drawn by every node for itself."""
    study = scale.scale_study(60, SETS)
    views = random_views(study, rows=1500, features=8)
    world = build_world(study, views.dataset, 0)
    assert world.graph.number_of_edges() == int(4.88 / 59 * (60 * 59 // 2)) == 146
    parts = [getattr(world.partition, name) for name in ("train", "validation", "test")]
    assert set(sum(part.lengths for part in parts).tolist()) == {100}
    owned = np.concatenate([part.values for part in parts])
    assert len(np.unique(owned)) < len(owned) == 6000
    assert study.training.stage1_rounds == 0


def test_a_row_for_every_size(rows: list[dict[str, Any]]) -> None:
    assert [(row["nodes"], row["edges"]) for row in rows] == [(20, 48), (40, 97)]
    for row in rows:
        assert set(row) == {
            "nodes", "edges", "seconds", "bytes", "build_seconds", "peak_memory_gb", "memory_before_gb",
        }  # fmt: skip
        assert row["seconds"]["supervised"] > 0
        assert row["seconds"]["distilling"] > 0
        assert row["peak_memory_gb"] >= row["memory_before_gb"] > 0
        # 20 inputs of 3,072 bytes one way and 20·10 probabilities back, on every directed edge; and framing.
        payload = 2 * row["edges"] * 20 * (3072 + 4 * 10)
        assert payload < row["bytes"]["distilling"] < 1.05 * payload
        assert row["bytes"]["supervised"] == 0
