"""Graphs: true to their worlds, written whole, in the kind the name asks for."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import each, on_earth
from matplotlib.image import imread

from lntrust import load_study
from lntrust.report.figures import draw, draw_topology
from lntrust.report.figures.topology import Scene, layout, scene_of_record, scene_of_world
from lntrust.report.rows import Row
from lntrust.world import World, build_world, load_dataset


@pytest.fixture
def world(tiny: Any) -> World:
    return build_world(tiny(), load_dataset("digits"), 0)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_written_whole(world: World, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new folder" / f"graph.{suffix}"
    draw_topology(world, path)
    content = path.read_bytes()
    if suffix == "png":
        assert imread(path).shape[:2] == (1125, 1350)
        assert content.endswith(b"IEND\xaeB`\x82")
    elif suffix == "pdf":
        assert content.startswith(b"%PDF-")
        assert content.rstrip().endswith(b"%%EOF")
    else:
        assert ET.fromstring(content).tag.endswith("svg")
    assert list(path.parent.iterdir()) == [path]  # and nothing beside it


@pytest.mark.parametrize("nodes", [1, 2])
def test_hardly_any_nodes(tiny: Any, tmp_path: Path, nodes: int) -> None:
    study = tiny(f"graph.nodes={nodes}", "graph.kind=complete", f"partition.labelled={50 * nodes}")
    draw_topology(build_world(study, load_dataset("digits"), 0), tmp_path / "graph.svg")
    text = (tmp_path / "graph.svg").read_text()
    assert "linear (1)" in text
    assert ("forest (1)" in text) == (nodes == 2)  # the last learner may have no nodes


def test_a_run_shows_its_world(rows: list[Row], runs_folder: Path) -> None:
    world = build_world(load_study(runs_folder.parent / "small.toml"), load_dataset("digits"), 1)
    ours, theirs = scene_of_record(rows[0].records[1]), scene_of_world(world)
    assert (ours.edges, ours.learners) == (theirs.edges, theirs.learners)
    assert (ours.kinds == theirs.kinds).all()
    assert (ours.sizes == theirs.sizes).all()
    assert (ours.degrees == world.degrees).all()
    assert layout(ours) == pytest.approx(layout(theirs))
    figure = draw("topology", rows, title="small", seed=1)
    axes = figure.axes[0]
    assert len(axes.lines) == len(ours.edges)
    assert sum(len(c.get_offsets()) for c in axes.collections) == ours.n  # type: ignore[arg-type]
    assert figure.get_suptitle() == "small, 6 nodes, seed 1"
    placed = draw("topology", [each(row, on_earth) for row in rows], title="small")
    assert placed.axes[0].get_aspect() == 1
    assert "at their places" in placed.get_supxlabel()
    # A seed that was not run is replaced and named.
    assert draw("topology", rows, title="small", seed=7).get_suptitle() == "small, 6 nodes, seed 0"


def scene(n: int, edges: list[tuple[int, int]], centres: Any = None) -> Scene:
    return Scene("s", 0, tuple(edges), ("a",), np.zeros(n, int), np.ones(n, int), centres)


def nearest(places: Any) -> float:
    far = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2))
    return float(far[~np.eye(len(places), dtype=bool)].min())


@pytest.mark.parametrize("n", [30, 210])
def test_nodes_do_not_lie_on_each_other(n: int) -> None:
    star = [(0, i) for i in range(1, n)] + [(1, i) for i in range(2, n)]  # two hubs, drawn to one place
    places = layout(scene(n, star))
    assert nearest(places) > 0.5 * np.ptp(places, axis=0).max() / np.sqrt(n)
    assert (places == layout(scene(n, star))).all()


def test_true_places_are_left_unless_they_are_the_same() -> None:
    centres = np.array([[46.0, 10.0], [48.0, 2.0], [52.0, 13.0], [52.0, 13.0], [40.0, -3.0]])
    places = layout(scene(5, [], centres))
    assert places[[0, 1, 4], 1] == pytest.approx(centres[[0, 1, 4], 0])
    assert nearest(places) > 1
    assert places[[2, 3]].mean(0)[1] == pytest.approx(52)
