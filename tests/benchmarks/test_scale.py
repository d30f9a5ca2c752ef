"""Scale, on small numbers of nodes and narrow codes."""

import numpy as np

from benchmarks.speed import scale
from benchmarks.speed.data import random_views
from lntrust.world import build_world

SETS = [
    "partition.pool=200", "partition.shard=50", "methods.lntrust.budget=20", "methods.lntrust.sample=10",
    "training.batch=8",
]  # fmt: skip


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
