"""Whom one node trusts, drawn."""

from collections.abc import Sequence

import numpy as np
import pytest
from drawn import footnote, texts
from made_up import by_method, changed, each, in_world
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from lntrust import LNTrustError
from lntrust.core.text import score_text
from lntrust.report.figures import draw
from lntrust.report.figures.topology import scene_of_record
from lntrust.report.figures.trust import choose_node
from lntrust.report.rows import Row


def arrows(figure: Figure) -> dict[str, float]:
    """Widths of the arrows by whom they come from."""
    patches = figure.subfigs[0].axes[0].patches
    return {str(p.get_gid()): p.get_linewidth() for p in patches if isinstance(p, FancyArrowPatch)}


def test_an_arrow_for_each_neighbour_with_weight(rows: list[Row]) -> None:
    row = by_method(rows)["lntrust"]
    scene, report = scene_of_record(row.first), row.first.summary["method_report"]
    node = int(scene.degrees.argmax())
    near = [int(j) for j in report["trust"][node] if int(j) != node]
    assert near == sorted({a + b - node for a, b in scene.edges if node in (a, b)})
    assert len(near) > 2
    given = {str(node): 0.496, **{str(j): 0.0 for j in near}, str(near[0]): 0.46, str(near[1]): 0.04}
    trust = [given | {str(near[2]): 0.004} if i == node else other for i, other in enumerate(report["trust"])]
    one = each(row, changed, method_report={**report, "trust": trust, "together": [False] * 6})
    figure = draw("trust", [one], title="small", node=node)
    width = arrows(figure)
    assert width.keys() == {f"arrow-{j}" for j in near[:2]}
    assert width[f"arrow-{near[0]}"] > width[f"arrow-{near[1]}"]
    words = set(texts(figure.subfigs[0].axes[0]))
    assert {".460", ".040", "on itself .496"} <= words
    assert ".004" not in words
    assert {str(j) for j in near} <= words  # who is not trusted is there, too
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
    degrees = scene_of_record(record).degrees

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
    assert chosen([0, 2, 4], [1.0, 1.0, 1.0, 1.0, 0.95, 0.0]) == (
        4,
        "no node that answers together trusts others much; node 4 does most",
    )
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
