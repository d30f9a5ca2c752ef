"""Graphs and maps: true to their worlds."""

import math
from pathlib import Path

import numpy as np
import pytest

from lntrust import LNTrustError, load_study
from lntrust.experiment.store import Record
from lntrust.report.figures.draw import draw
from lntrust.report.figures.topology import layout, scene_of_record, scene_of_world
from lntrust.report.rows import Row
from lntrust.world import build_world, load_dataset


def test_topology_of_a_run_is_that_of_its_world(records: list[Record], folder: Path) -> None:
    record = next(r for r in records if r.seed == 1)
    world = build_world(load_study(folder.parent / "small.toml"), load_dataset("digits"), 1)
    ours, theirs = scene_of_record(record), scene_of_world(world)
    assert ours.edges == theirs.edges
    assert ours.learners == theirs.learners
    assert (ours.kinds == theirs.kinds).all()
    assert (ours.sizes == theirs.sizes).all()
    assert (ours.degrees == world.degrees).all()
    assert layout(ours) == pytest.approx(layout(world))


def test_topology_has_every_node_and_edge(rows: list[Row]) -> None:
    figure = draw("topology", rows, title="small", seed=1)
    axes = figure.axes[0]
    scene = scene_of_record(rows[0].records[1])
    assert len(axes.lines) == len(scene.edges)
    assert sum(len(c.get_offsets()) for c in axes.collections) == scene.n  # type: ignore[arg-type]
    assert figure.get_suptitle() == "small, 6 nodes, seed 1"


def test_a_seed_that_was_not_run_is_replaced_and_told(rows: list[Row]) -> None:
    assert draw("topology", rows, title="small", seed=7).get_suptitle() == "small, 6 nodes, seed 0"


def test_map_is_true_to_places(placed: list[Row]) -> None:
    figure = draw("map", placed, title="small")
    left, right = figure.axes[:2]
    where = np.asarray(left.collections[0].get_offsets())
    assert sorted(map(tuple, where.tolist())) == sorted((b, a) for a, b in placed[0].first.world["centres"])
    nodes = np.concatenate([np.asarray(c.get_offsets()) for c in right.collections])
    assert sorted(map(tuple, nodes.tolist())) == sorted(map(tuple, where.tolist()))
    middle = math.radians(sum(left.get_ylim()) / 2)
    assert left.get_aspect() == pytest.approx(1 / math.cos(middle))
    # The boxes are as long as they are wide to be, so that nothing is squeezed.
    box, (west, east), (south, north) = left.get_window_extent(), left.get_xlim(), left.get_ylim()
    assert box.height / box.width == pytest.approx(
        (north - south) / (east - west) / math.cos(middle), rel=1e-3
    )
    assert len(left.patches) == 1  # the land


def test_nodes_without_places_have_no_map(rows: list[Row]) -> None:
    with pytest.raises(LNTrustError, match="its nodes have no places on a map"):
        draw("map", rows, title="small")
