"""The picture of a graph: written whole, in the kind its name asks for."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from lntrust import LNTrustError
from lntrust.report.figures.topology import Scene, draw_topology, layout
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


def test_a_drawing_that_fails_leaves_what_was_there(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.png"
    path.write_bytes(b"earlier")

    def full(self: Figure, to: Path, **_: Any) -> None:
        Path(to).write_bytes(b"half a pict")
        raise OSError("no space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(LNTrustError, match="no space left on device; nothing was left behind"):
        draw_topology(world, path)
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.glob("*graph*")) == [path]


@pytest.mark.parametrize("nodes", [1, 2])
def test_hardly_any_nodes(tiny: Any, tmp_path: Path, nodes: int) -> None:
    study = tiny(f"graph.nodes={nodes}", "graph.kind=complete", f"partition.labelled={50 * nodes}")
    draw_topology(build_world(study, load_dataset("digits"), 0), tmp_path / "graph.png")
    assert imread(tmp_path / "graph.png").shape[:2] == (1125, 1350)


def test_the_last_learner_may_have_no_nodes(tiny: Any, tmp_path: Path) -> None:
    study = tiny("graph.nodes=1", "graph.kind=complete", "partition.labelled=50")
    draw_topology(build_world(study, load_dataset("digits"), 0), tmp_path / "graph.svg")
    text = (tmp_path / "graph.svg").read_text()
    assert "linear (1)" in text
    assert "forest" not in text


def test_layout(world: World) -> None:
    places = layout(world)
    assert places.shape == (5, 2)
    assert np.isfinite(places).all()
    assert (places == layout(world)).all()


def scene(n: int, edges: list[tuple[int, int]], centres: Any = None) -> Scene:
    return Scene("s", 0, tuple(edges), ("a",), np.zeros(n, int), np.ones(n, int), centres)


def nearest(places: Any) -> float:
    far = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2))
    return float(far[~np.eye(len(places), dtype=bool)].min())


def test_nodes_do_not_lie_on_each_other() -> None:
    star = [(0, i) for i in range(1, 30)] + [(1, i) for i in range(2, 30)]  # two hubs, drawn to one place
    places = layout(scene(30, star))
    assert nearest(places) > 0.7 * np.ptp(places, axis=0).max() / np.sqrt(30)
    assert (places == layout(scene(30, star))).all()


def test_true_places_are_left_unless_they_are_the_same() -> None:
    centres = np.array([[46.0, 10.0], [48.0, 2.0], [52.0, 13.0], [52.0, 13.0], [40.0, -3.0]])
    places = layout(scene(5, [], centres))
    assert places[[0, 1, 4], 1] == pytest.approx(centres[[0, 1, 4], 0])
    assert nearest(places) > 1
    assert places[[2, 3]].mean(0)[1] == pytest.approx(52)
