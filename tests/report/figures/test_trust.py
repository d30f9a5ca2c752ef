"""Whom one node trusts, drawn."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import by_method, changed, footnote, texts
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from lntrust import LNTrustError
from lntrust.experiment.store import Record
from lntrust.report.claims import short
from lntrust.report.figures.draw import draw
from lntrust.report.figures.topology import scene_of_record
from lntrust.report.figures.trust import choose_node
from lntrust.report.rows import Row


@pytest.mark.parametrize("kind", ["importance", "trust"])
def test_without_lntrust_there_is_no_trust(rows: list[Row], kind: Any) -> None:
    with pytest.raises(LNTrustError, match="LNTrust was not run"):
        draw(kind, [row for row in rows if row.first.method != "lntrust"], title="small")


def with_trust(record: Record, node: int, weights: dict[str, float], together: list[bool]) -> Record:
    report = record.summary["method_report"]
    trust = [weights if i == node else each for i, each in enumerate(report["trust"])]
    return changed(record, method_report={**report, "trust": trust, "together": together})


def arrows(figure: Figure) -> list[str]:
    axes = figure.subfigs[0].axes[0]
    return sorted(str(patch.get_gid()) for patch in axes.patches if isinstance(patch, FancyArrowPatch))


def test_trust_has_an_arrow_for_each_neighbour_with_weight(rows: list[Row]) -> None:
    row = by_method(rows)["lntrust"]
    record = row.first
    scene = scene_of_record(record)
    node = int(scene.degrees.argmax())
    near = [int(j) for j in record.summary["method_report"]["trust"][node] if int(j) != node]
    assert near == scene.neighbours(node)
    assert len(near) > 2
    given = {str(node): 0.496, **{str(j): 0.0 for j in near}, str(near[0]): 0.46, str(near[1]): 0.04}
    told = with_trust(record, node, given | {str(near[2]): 0.004}, [True] * 6)
    figure = draw("trust", [dataclasses.replace(row, records=[told])], title="small", node=node)
    assert arrows(figure) == sorted(f"arrow-{j}" for j in near[:2])
    axes = figure.subfigs[0].axes[0]
    assert {".460", ".040", "on itself .496"} <= set(texts(axes))
    assert ".004" not in texts(axes)
    assert {str(j) for j in near} <= set(texts(axes))  # who is not trusted is there, too
    width = {p.get_gid(): p.get_linewidth() for p in axes.patches if isinstance(p, FancyArrowPatch)}
    assert width[f"arrow-{near[0]}"] > width[f"arrow-{near[1]}"]
    own, test = (record.summary["per_node"][k][node] for k in ("self", "test"))
    assert f"Test {short(test)} vs Self {short(own)}" in " ".join(figure.get_suptitle().split())


def test_trust_histograms_are_shares_of_known_labels(rows: list[Row]) -> None:
    record = by_method(rows)["lntrust"].first
    figure = draw("trust", rows, title="small", node=1)
    first = figure.subfigs[1].axes[0]
    counts = np.array(record.world["train"][1]) + np.array(record.world["validation"][1])
    assert [patch.get_height() for patch in first.patches[:10]] == pytest.approx(  # type: ignore[attr-defined]
        (counts / counts.sum()).tolist()
    )


def test_a_node_that_is_not_there_is_refused(rows: list[Row]) -> None:
    with pytest.raises(LNTrustError, match="node 6: there are nodes 0 to 5 in small"):
        draw("trust", rows, title="small", node=6)


def test_whose_trust_is_shown(rows: list[Row]) -> None:
    record = by_method(rows)["lntrust"].first
    degrees = scene_of_record(record).degrees

    def chosen(together: Sequence[int], on_itself: Sequence[float] = (0.5,) * 6) -> tuple[int, str]:
        trust = [{str(i): own, str((i + 1) % 6): 1 - own} for i, own in enumerate(on_itself)]
        report = {**record.summary["method_report"], "trust": trust}
        return choose_node(
            changed(record, method_report=report | {"together": [i in together for i in range(6)]})
        )

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
    node, why = chosen([])
    assert degrees[node] == degrees.max()
    assert why.startswith("no node answers together")


def test_a_crowd_is_cut_and_told(rows: list[Row]) -> None:
    """Forty neighbours: the sixteen with most weight are drawn, the rest is added up."""
    row = by_method(rows)["lntrust"]
    record = row.first
    n = 41
    world = {
        **record.world, "kinds": [0] * n, "edges": [[0, j] for j in range(1, n)], "test": [1] * n,
        "train": [[1] * 10] * n, "validation": [[1] * 10] * n,
    }  # fmt: skip
    weights = {"0": 0.18, **{str(j): j / 1000 for j in range(1, n)}}
    report = {**record.summary["method_report"], "trust": [weights] * n, "together": [True] * n}
    scores = {**record.summary["per_node"], "test": [None] * n, "self": [0.5] * n, "test_pooled": None}
    crowd = dataclasses.replace(
        changed(record, method_report=report, per_node=scores), world_text=json.dumps(world)
    )
    figure = draw("trust", [dataclasses.replace(row, records=[crowd])], title="small", node=0)
    assert len(arrows(figure)) == 16
    rest = sum(j / 1000 for j in range(1, 25))
    assert f"24 more neighbours share {short(rest)}" in footnote(figure)
    assert "Test" not in figure.get_suptitle()  # the node has no test set
