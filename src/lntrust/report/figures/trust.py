"""Whom one node trusts when it answers: its neighbours around it, and what classes they hold."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.text import score_text
from lntrust.experiment.store import Record
from lntrust.report.figures.style import INK, PALE, VERMILLION, footnote, sheet, styled
from lntrust.report.figures.topology import Scene, layout, scene_of_record, shapes_of

PAPERS_NODE = 4
_LEAST = 0.005  # smaller weights are no trust
_HARDLY = 0.1  # weight on all others together that shows nothing
_MOST = 16  # neighbours in the picture
_HISTOGRAMS = 5
_NAMED = 12  # classes whose names are written


def choose_node(record: Record) -> tuple[int, str]:
    """The paper's node if it answers together and trusts others; else one that does. And why."""
    report, degrees = record.summary["method_report"], scene_of_record(record).degrees
    together = report["together"]
    others = [1.0 - float(weights.get(str(i), 0.0)) for i, weights in enumerate(report["trust"])]
    if len(together) <= PAPERS_NODE:
        paper = "is not there"
    elif not together[PAPERS_NODE]:
        paper = "answers alone"
    elif others[PAPERS_NODE] <= _HARDLY:
        paper = "hardly trusts others"
    else:
        return PAPERS_NODE, ""
    mine = [node for node, does in enumerate(together) if does]
    if not mine:
        node = int(np.argmax(degrees))
        return node, f"no node answers together; node {node} has most neighbours"
    trusting = [node for node in mine if others[node] > _HARDLY]
    if not trusting:
        node = max(mine, key=lambda i: (others[i], degrees[i], -i))
        return node, f"no node that answers together trusts others much; node {node} does most"
    node = max(trusting, key=lambda i: (degrees[i], others[i], -i))
    more = f"others more than {_HARDLY:g}".replace("0.", ".")
    found = (
        f"only node {node} gives {more}"
        if len(trusting) == 1
        else f"{len(trusting)} give {more}, and node {node} has most neighbours"
    )
    return node, f"the paper's node {PAPERS_NODE} {paper}; of {len(mine)} that answer together, {found}"


@styled()
def draw_trust(record: Record, title: str, node: int | None = None, which: str = "") -> Figure:
    """Deployment-time trust weights of one node; width and colour of an arrow are its weight."""
    scene, report = scene_of_record(record), record.summary["method_report"]
    node, why = choose_node(record) if node is None else (node, "")
    if not 0 <= node < scene.n:
        raise LNTrustError(f"node {node}: there are nodes 0 to {scene.n - 1} in {record.study}")
    weights = {int(j): float(a) for j, a in report["trust"][node].items()}
    around = sorted((j for j in weights if j != node), key=lambda j: (-weights[j], j))
    shown = around[:_MOST]
    figure = sheet(2.65, f"{title}: {_headline(record, scene, node)}")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.75, 1])[0]
    _neighbourhood(left.add_subplot(), scene, node, {j: weights[j] for j in [node, *shown]})
    _histograms(right, record, [node, *shown][:_HISTOGRAMS], node, weights)
    notes = [text for text in (which, why) if text]
    if not report["together"][node]:
        notes.append("it answers alone: its deployment gate is closed")
    if len(around) > len(shown):
        rest = sum(weights[j] for j in around[_MOST:])
        notes.append(f"{len(around) - len(shown)} more neighbours share {score_text(rest)}")
    notes.append(f"without arrow: weight below {_LEAST:g}".replace("0.", "."))
    footnote(figure, "; ".join(notes))
    return figure


def _headline(record: Record, scene: Scene, node: int) -> str:
    def score(name: str) -> str | None:
        by_node = record.summary["per_node"][name]
        return None if by_node is None or by_node[node] is None else score_text(by_node[node])

    text = f"node {node} ({scene.learners[scene.kinds[node]]}), seed {record.seed}"
    if (test := score("test")) and (own := score("self")):
        text += f", Test {test} vs Self {own}"
    return text + (
        f" (pooled {pooled} vs {score('self_pooled')})" if (pooled := score("test_pooled")) else ""
    )


def _neighbourhood(axes: Axes, scene: Scene, node: int, weights: dict[int, float]) -> None:
    others = [j for j in weights if j != node]
    places = _ring(scene, node, others)
    shapes = shapes_of(scene.learners)
    largest = max((weights[j] for j in others), default=1.0) or 1.0
    oranges = colormaps["Oranges"]
    for j in others:
        trusted, strength = weights[j] >= _LEAST, weights[j] / largest
        if trusted:
            x, y = places[j]
            arrow = FancyArrowPatch(
                (x, y), (0, 0), arrowstyle="-|>", mutation_scale=5 + 6 * strength, shrinkA=7, shrinkB=10,
                linewidth=0.6 + 2.6 * strength, color=oranges(0.3 + 0.6 * strength), zorder=2,
                gid=f"arrow-{j}",
            )  # fmt: skip
            axes.add_patch(arrow)
            axes.annotate(
                score_text(weights[j]), (1.17 * x, 1.24 * y), va="center", fontsize=6,
                ha="center" if abs(x) < 0.3 else "left" if x > 0 else "right",
                fontweight="bold" if strength == 1 else "normal",
            )  # fmt: skip
        else:
            axes.plot(*np.stack([places[j], np.zeros(2)]).T, color=PALE, linewidth=0.5, zorder=1)
        _node(axes, places[j], str(j), shapes[scene.kinds[j]], "white", INK if trusted else "#8a8f98", 95)
    _node(axes, np.zeros(2), str(node), shapes[scene.kinds[node]], VERMILLION, "white", 190)
    own = f"on itself {score_text(weights.get(node, 0.0))}"
    axes.annotate(own, (-1.5, 1.5), va="top", fontsize=6, color=VERMILLION)
    axes.set(xlim=(-1.55, 1.55), ylim=(-1.5, 1.5), aspect="equal")
    axes.set_axis_off()
    kinds = sorted({int(scene.kinds[j]) for j in weights})
    handles = [
        Line2D([], [], linestyle="none", marker=shapes[k], markersize=6 if shapes[k] == "*" else 4.5,
               markerfacecolor="white", markeredgecolor=INK, markeredgewidth=0.6, label=scene.learners[k])
        for k in kinds
    ]  # fmt: skip
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2,
        handletextpad=0.1, columnspacing=1, borderpad=0,
    )  # fmt: skip


def _node(
    axes: Axes, place: Float[ndarray, "2"], text: str, shape: str, fill: str, ink: str, size: float
) -> None:
    bigger = 2.6 if shape == "*" else 1.0  # its middle holds the number
    edge = INK if fill == VERMILLION else ink
    axes.scatter(
        place[0], place[1], s=size * bigger, marker=shape, c=fill, edgecolors=edge, linewidths=0.7, zorder=3
    )
    lift = {"*": -0.6, "^": -1.6, "v": 1.0}.get(shape, -0.3)
    axes.annotate(
        text, tuple(place), xytext=(0, lift), textcoords="offset points", ha="center", va="center",
        fontsize=6 if fill == VERMILLION else 5.5, color=ink, zorder=4,
    )  # fmt: skip


def _ring(scene: Scene, node: int, others: Sequence[int]) -> dict[int, Float[ndarray, "2"]]:
    """Evenly on a circle, in the order in which they lie around the node in the whole graph's picture."""
    places = layout(scene)
    away = {j: places[j] - places[node] for j in others}
    true = {j: float(np.arctan2(away[j][1], away[j][0])) for j in others}
    order = sorted(others, key=lambda j: (true[j], j))
    angles = 2 * np.pi * np.arange(len(order)) / max(len(order), 1)
    angles += np.angle(
        np.exp(1j * (np.array([true[j] for j in order]) - angles)).sum()
    )  # turned to where they are
    return {j: np.array([np.cos(t), np.sin(t)]) for j, t in zip(order, angles, strict=True)}


def _histograms(
    figure: Figure, record: Record, members: Sequence[int], node: int, weights: dict[int, float]
) -> None:
    """Shares of classes among the labels each member knows; the node's own as an outline behind others'."""
    world = record.world
    counts = np.array(world["train"], float) + np.array(world["validation"], float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes = world["classes"]
    places = np.arange(len(classes))
    all_axes = figure.subplots(len(members), sharex=True, squeeze=False)[:, 0]
    for axes, j in zip(all_axes, members, strict=True):
        axes.bar(places, shares[j], width=0.8, color=VERMILLION if j == node else "#9aa3af")
        if j != node:
            axes.stairs(shares[node], np.arange(len(classes) + 1) - 0.5, color=VERMILLION, linewidth=0.6)
        axes.set_ylim(0, 1.08 * shares[list(members)].max())
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="x", length=0, pad=1)
        name = f"{node}, itself" if j == node else str(j)
        weight = score_text(weights[j]) if weights[j] >= _LEAST else f"<{score_text(_LEAST)}"
        axes.set_title(f"{name}: {weight}", fontsize=5.5, loc="left", pad=1)
        axes.set_xticks([])
    if len(classes) <= _NAMED:
        brief = [name if len(name) <= 12 else f"{name[:10]}…" for name in classes]
        all_axes[-1].set_xticks(places, brief, rotation=90, fontsize=5)
    else:
        all_axes[-1].set_xlabel(f"{len(classes)} classes", fontsize=5.5)
