"""Graphs are true to their worlds; and whom one node trusts, drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import footnote, texts
from made_up import by_method, changed, each, in_world, on_earth
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from lntrust import LNTrustError
from lntrust.core.text import score_text
from lntrust.report.figures import draw
from lntrust.report.figures.graphs import Scene, choose_node, layout
from lntrust.report.rows import Row


def test_a_run_shows_its_world(rows: list[Row]) -> None:
    world = rows[0].records[1].world
    figure = draw("topology", rows, title="small", seed=1)
    axes = figure.axes[0]
    assert len(axes.lines) == len(world["edges"])
    assert sum(len(c.get_offsets()) for c in axes.collections) == len(world["kinds"])  # type: ignore[arg-type]
    degrees = np.concatenate([np.asarray(c.get_array()) for c in axes.collections])
    assert sorted(degrees) == sorted(np.bincount(np.ravel(world["edges"])))
    assert figure.get_suptitle() == "small, 6 nodes, seed 1"
    placed = draw("topology", [each(row, on_earth) for row in rows], title="small")
    assert placed.axes[0].get_aspect() == 1
    assert "at their places" in placed.get_supxlabel()
    # A seed that was not run is replaced and named.
    assert draw("topology", rows, title="small", seed=7).get_suptitle() == "small, 6 nodes, seed 0"


def places_of(n: int, edges: list[tuple[int, int]], centres: Any = None) -> Any:
    labels = {"train": [[1]] * n, "validation": [[0]] * n, "test": [0] * n}
    return layout(Scene({"edges": edges, "learners": ["a"], "kinds": [0] * n, "centres": centres, **labels}))


def nearest(places: Any) -> float:
    far = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2))
    return float(far[~np.eye(len(places), dtype=bool)].min())


@pytest.mark.parametrize("n", [30, 210])
def test_nodes_do_not_lie_on_each_other(n: int) -> None:
    star = [(0, i) for i in range(1, n)] + [(1, i) for i in range(2, n)]  # two hubs, drawn to one place
    places = places_of(n, star)
    assert nearest(places) > 0.5 * np.ptp(places, axis=0).max() / np.sqrt(n)
    assert (places == places_of(n, star)).all()


def test_true_places_are_left_unless_they_are_the_same() -> None:
    centres = np.array([[46.0, 10.0], [48.0, 2.0], [52.0, 13.0], [52.0, 13.0], [40.0, -3.0]])
    places = places_of(5, [], centres)
    assert places[[0, 1, 4], 1] == pytest.approx(centres[[0, 1, 4], 0])
    assert nearest(places) > 1
    assert places[[2, 3]].mean(0)[1] == pytest.approx(52)


# -- whom a node trusts --------------------------------------------------------------------------


def arrows(figure: Figure) -> dict[str, float]:
    """Widths of the arrows by whom they come from."""
    patches = figure.subfigs[0].axes[0].patches
    return {str(p.get_gid()): p.get_linewidth() for p in patches if isinstance(p, FancyArrowPatch)}


def test_an_arrow_for_each_neighbour_with_weight(rows: list[Row]) -> None:
    row = by_method(rows)["lntrust"]
    edges, report = row.first.world["edges"], row.first.summary["method_report"]
    node = int(np.bincount(np.ravel(edges)).argmax())
    near = [int(j) for j in report["trust"][node] if int(j) != node]
    assert near == sorted({a + b - node for a, b in edges if node in (a, b)})
    assert len(near) > 2
    given = {str(node): 0.496, **{str(j): 0.0 for j in near}, str(near[0]): 0.46, str(near[1]): 0.04}
    trust = [given | {str(near[2]): 0.004} if i == node else other for i, other in enumerate(report["trust"])]
    one = each(row, changed, method_report={**report, "trust": trust, "together": [False] * 6})
    figure = draw("trust", [one], title="small", node=node)
    width = arrows(figure)
    assert width.keys() == {f"arrow-{j}" for j in near[:2]}
    assert width[f"arrow-{near[0]}"] > width[f"arrow-{near[1]}"]
    words = set(texts(figure.subfigs[0].axes[0]))
    assert {".460", ".040", "on itself .496", *map(str, near)} <= words  # also who is not trusted is there
    assert ".004" not in words
    own, test = (row.first.summary["per_node"][k][node] for k in ("self", "test"))
    assert f"Test {score_text(test)} vs Self {score_text(own)}" in " ".join(figure.get_suptitle().split())
    assert "it answers alone: its deployment gate is closed" in footnote(figure)


def test_histograms_are_shares_of_known_labels(rows: list[Row]) -> None:
    world = by_method(rows)["lntrust"].first.world
    first = draw("trust", rows, title="small", node=1).subfigs[1].axes[0]
    counts = np.array(world["train"][1]) + np.array(world["validation"][1])
    heights = [patch.get_height() for patch in first.patches[:10]]  # type: ignore[attr-defined]
    assert heights == pytest.approx((counts / counts.sum()).tolist())
    with pytest.raises(LNTrustError, match="node 6: there are nodes 0 to 5 in small"):
        draw("trust", rows, title="small", node=6)


def test_whose_trust_is_shown(rows: list[Row]) -> None:
    record = by_method(rows)["lntrust"].first
    degrees = np.bincount(np.ravel(record.world["edges"]))

    def chosen(together: Sequence[int], on_itself: Sequence[float] = (0.5,) * 6) -> tuple[int, str]:
        n = len(on_itself)
        trust = [{str(i): own, str((i + 1) % n): 1 - own} for i, own in enumerate(on_itself)]
        report = {"trust": trust, "together": [i in together for i in range(n)]}
        return choose_node(changed(record, method_report=report))

    assert chosen([0, 4]) == (4, "")
    node, why = chosen([0, 1, 5])
    assert degrees[node] == max(degrees[i] for i in (0, 1, 5))
    assert why == (
        "the paper's node 4 answers alone; of 3 that answer together, "
        f"3 give others more than .1, and node {node} has most neighbours"
    )
    # Nobody learns anything from a node that trusts only itself, however many neighbours it has.
    assert chosen([0, 2, 4], [1.0, 1.0, 0.8, 1.0, 1.0, 1.0]) == (
        2,
        "the paper's node 4 hardly trusts others; of 3 that answer together, only node 2 gives others "
        "more than .1",
    )
    much = "no node that answers together trusts others much; node 4 does most"
    assert chosen([0, 2, 4], [1.0, 1.0, 1.0, 1.0, 0.95, 0.0]) == (4, much)
    assert chosen([2], [0.5] * 3)[1].startswith("the paper's node 4 is not there; of 1")
    node, why = chosen([])
    assert degrees[node] == degrees.max()
    assert why.startswith("no node answers together")


def test_a_crowd_is_cut_and_that_is_said(rows: list[Row]) -> None:
    """Forty neighbours: the sixteen with most weight are drawn, the rest is added up."""
    row, n = by_method(rows)["lntrust"], 41
    weights = {"0": 0.18, **{str(j): j / 1000 for j in range(1, n)}}
    report = {**row.first.summary["method_report"], "trust": [weights] * n, "together": [True] * n}
    scores = {**row.first.summary["per_node"], "test": [None] * n, "self": [0.5] * n, "test_pooled": None}
    crowd = each(each(row, changed, method_report=report, per_node=scores), in_world,
                 kinds=[0] * n, edges=[[0, j] for j in range(1, n)], test=[1] * n, train=[[1] * 13] * n,
                 validation=[[1] * 13] * n, classes=[f"class {k}" for k in range(13)])  # fmt: skip
    figure = draw("trust", [crowd], title="small", node=0)
    assert len(arrows(figure)) == 16
    rest = sum(j / 1000 for j in range(1, 25))
    assert f"24 more neighbours share {score_text(rest)}" in footnote(figure)
    assert "Test" not in figure.get_suptitle()  # the node has no test set
    assert figure.subfigs[1].axes[-1].get_xlabel() == "13 classes"
