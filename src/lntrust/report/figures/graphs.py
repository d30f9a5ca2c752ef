"""Pictures of nodes: the graph of a world, and whom one node trusts when it answers."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.core.text import score_text
from lntrust.experiment.store import Record
from lntrust.report.figures.style import GREY, INK, PALE, VERMILLION, footnote, sheet

_SHAPES = "*osD^vPX"
_GAP = 0.75  # least distance of nodes; half of it where they have true places
_PAPERS_NODE = 4
_LEAST = 0.005  # smaller weights are no trust
_HARDLY = 0.1  # weight on all others together that shows nothing
_MOST = 16  # neighbours in the picture
_HISTOGRAMS = 5
_NAMED = 12  # classes whose names are written


class Scene:
    """What a picture of a graph needs to know of a world as the store describes it."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.edges: tuple[tuple[int, int], ...] = tuple((a, b) for a, b in world["edges"])
        self.learners: list[str] = world["learners"]
        self.kinds: Int[ndarray, "n"] = np.array(world["kinds"], np.int64)
        self.n = len(self.kinds)
        train, validation = (np.array(world[name], np.int64).sum(1) for name in ("train", "validation"))
        self.sizes: Int[ndarray, "n"] = train + validation + world["test"]  # labelled examples
        places = world["centres"]  # latitude and longitude
        self.centres: Float[ndarray, "n 2"] | None = None if places is None else np.array(places, float)
        ends = np.array(self.edges, dtype=np.int64).reshape(-1)
        self.degrees: Int[ndarray, "n"] = np.bincount(ends, minlength=self.n)
        # A shape per kind of learner; of two kinds the first, rarer one gets the star.
        shapes = _SHAPES if len(self.learners) == 2 else _SHAPES[1:]
        self.shapes = [shapes[index % len(shapes)] for index in range(len(self.learners))]

    @property
    def headline(self) -> str:
        """The graph in numbers."""
        of = f"degree {self.degrees.min()}–{self.degrees.max()} (mean {self.degrees.mean():.1f})"
        return f"{self.n} nodes, {len(self.edges)} edges, {of}"


# -- where nodes lie -----------------------------------------------------------------------------


def layout(scene: Scene) -> Float[ndarray, "n 2"]:
    """True positions where there are such (longitude shrunk by latitude), else a spring layout.

    Nodes that would lie on each other are pushed apart.
    """
    if scene.centres is None:
        return spring_layout(scene.n, scene.edges)
    return _apart(on_earth(scene.centres), _GAP / 2)


def on_earth(centres: Float[ndarray, "n 2"]) -> Float[ndarray, "n 2"]:
    """Latitudes and longitudes as places on a plane: x to the east, y to the north."""
    shrink = np.cos(np.radians(centres[:, 0].mean()))
    return np.stack([centres[:, 1] * shrink, centres[:, 0]], axis=1)


@lru_cache(maxsize=16)  # several figures show the same graph
def spring_layout(n: int, edges: tuple[tuple[int, int], ...]) -> Float[ndarray, "n 2"]:
    """Places for nodes that have none of their own."""
    graph: "nx.Graph[int]" = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    # The finer the layout, the longer it takes: each of these a second or two at most.
    if n <= 200:
        found = nx.kamada_kawai_layout(graph)
    else:
        found = nx.spring_layout(graph, seed=0) if n <= 1000 else nx.spectral_layout(graph)
    places = _apart(np.array([found[i] for i in range(n)], dtype=float).reshape(n, 2), _GAP)
    places.flags.writeable = False
    return places


def _apart(places: Float[ndarray, "n 2"], gap: float) -> Float[ndarray, "n 2"]:
    """Nodes closer than the gap pushed away from each other, the others left where they are.

    The gap is in parts of what a square grid of as many nodes would have.
    """
    n, extent = len(places), float(np.ptp(places, axis=0).max())
    gap *= extent / np.sqrt(n)
    places = places.copy()
    for _ in range(100 if extent else 0):
        away = places[:, None] - places[None]
        far = np.sqrt((away**2).sum(2)) + np.eye(n) * extent
        lacking = np.maximum(gap - far, 0.0)
        if not (lacking > 1e-3 * gap).any():
            break
        # Those at the same place part along an angle of their own.
        angle = np.arange(n)[:, None] - np.arange(n)[None]
        aside = np.sign(angle)[..., None] * np.stack([np.cos(np.abs(angle)), np.sin(np.abs(angle))], 2)
        ways = np.where((far > 1e-9 * extent)[..., None], away / np.maximum(far, 1e-12)[..., None], aside)
        places += 0.5 * (lacking[..., None] * ways).sum(1)
    return places


# -- a world's graph -----------------------------------------------------------------------------


def draw_graph(
    axes: Axes, scene: Scene, places: Float[ndarray, "n 2"], area: Float[ndarray, "n"], *, numbers: float
) -> PathCollection:
    """Degrees as colour, kinds of learners as shapes; `numbers` is the size of the nodes' numbers, 0: none.

    Returns what a colour bar needs.
    """
    degrees = scene.degrees
    width = 0.8 if numbers > 6 else 0.45 * min(1.0, np.sqrt(200 / max(len(scene.edges), 1)))
    for a, b in scene.edges:
        axes.plot(*places[[a, b]].T, color="#b8bfc9", linewidth=width, zorder=1)
    for index in np.unique(scene.kinds).tolist():
        mine, shape = scene.kinds == index, scene.shapes[index]
        bigger = 1.8 if shape == "*" else 1.0  # a star fills little of its square
        points = axes.scatter(
            places[mine, 0], places[mine, 1], s=bigger * area[mine], c=degrees[mine],
            vmin=degrees.min(), vmax=max(degrees.max(), degrees.min() + 1), cmap="viridis_r",
            marker=shape, edgecolors="#30343b", linewidths=0.8 if numbers > 6 else 0.5, zorder=2,
            label=f"{scene.learners[index]} ({mine.sum()})",
        )  # fmt: skip
    for i, (x, y) in enumerate(places if numbers else []):
        ink = "white" if degrees[i] > (degrees.min() + degrees.max()) / 2 else "black"
        _number(axes, i, (x, y), -0.15 * numbers, fontsize=numbers, zorder=3, color=ink)
    return points


def _number(axes: Axes, node: int, place: tuple[float, float], lift: float, **look: Any) -> None:
    """In the middle of its shape, lifted by so many points."""
    look |= {"ha": "center", "va": "center", "textcoords": "offset points"}
    axes.annotate(str(node), place, xytext=(0, lift), **look)


def degree_bar(bar: Colorbar) -> None:
    bar.outline.set_linewidth(0.5)
    bar.set_label("degree", labelpad=1)
    bar.locator = MaxNLocator(nbins=7, integer=True)
    bar.update_ticks()


def kinds_legend(axes: Axes, **look: Any) -> None:
    """Below the graph, shapes only: their colours would say a degree."""
    legend = axes.legend(loc="upper center", columnspacing=1, **look)
    for handle in legend.legend_handles:
        assert isinstance(handle, PathCollection)
        handle.set_array(None)
        handle.set_facecolor("white")


def draw_graph_figure(record: Record, title: str) -> Figure:
    """For a paper, of a run."""
    scene = Scene(record.world)
    figure = sheet(3.3, f"{title}, {scene.n} nodes, seed {record.seed}" if title else "")
    axes = figure.add_subplot()
    free = scene.centres is None  # true places lie closer
    area = min(1.0, 60 / scene.n) * (1.0 if free else 0.5)
    area = area * (28 + 130 * np.sqrt(scene.sizes / max(scene.sizes.max(), 1)))
    numbers = 0 if scene.n > 60 else 4.5 if free else 3.5
    points = draw_graph(axes, scene, layout(scene), area, numbers=numbers)
    axes.set_axis_off()
    if not free:
        axes.set_aspect("equal")
    degree_bar(figure.colorbar(points, ax=axes, shrink=0.5, aspect=18, pad=0.01))
    kinds_legend(axes, bbox_to_anchor=(0.5, 0.02), ncols=2, markerscale=0.55, handletextpad=0.1)
    places = "" if free else "at their places, or beside them where nodes would overlap"
    footnote(figure, scene.headline, "area grows with the number of labelled examples", places)
    return figure


def draw_topology(world: dict[str, Any], title: str, path: Path) -> None:
    """For a screen, of a world as the store describes it, to a PNG (or PDF, SVG: by the suffix)."""
    scene = Scene(world)
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    axes = figure.add_subplot()
    area = 90 + 500 * np.sqrt(scene.sizes / scene.sizes.max())
    points = draw_graph(axes, scene, layout(scene), area, numbers=7)
    figure.colorbar(points, ax=axes, label="degree", shrink=0.7)
    axes.legend(loc="best", frameon=False, markerscale=0.6)
    axes.set_title(f"{title}: {scene.headline}; area ∝ √labelled examples", fontsize=10)
    axes.set_axis_off()
    write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150, format=path.suffix[1:]))


# -- whom a node trusts --------------------------------------------------------------------------


def choose_node(record: Record) -> tuple[int, str]:
    """The paper's node if it answers together and trusts others; else one that does. And why."""
    report, degrees = record.summary["method_report"], Scene(record.world).degrees
    others = [1.0 - float(weights.get(str(i), 0.0)) for i, weights in enumerate(report["trust"])]
    together = [node for node, does in enumerate(report["together"]) if does]
    trusting = [node for node in together if others[node] > _HARDLY]
    if _PAPERS_NODE in trusting:
        return _PAPERS_NODE, ""
    if not together:
        node = int(np.argmax(degrees))
        return node, f"no node answers together; node {node} has most neighbours"
    if not trusting:
        node = max(together, key=lambda i: (others[i], degrees[i], -i))
        return node, f"no node that answers together trusts others much; node {node} does most"
    node = max(trusting, key=lambda i: (degrees[i], others[i], -i))
    paper = "hardly trusts others" if _PAPERS_NODE in together else "answers alone"
    if len(others) <= _PAPERS_NODE:
        paper = "is not there"
    more = f"others more than {score_text(_HARDLY, 1)}"
    found = f"{len(trusting)} give {more}, and node {node} has most neighbours"
    if len(trusting) == 1:
        found = f"only node {node} gives {more}"
    return node, f"the paper's node {_PAPERS_NODE} {paper}; of {len(together)} that answer together, {found}"


def draw_trust(record: Record, title: str, node: int | None, which: str) -> Figure:
    """Deployment-time trust weights of one node, its neighbours around it, and what classes they hold."""
    scene, report = Scene(record.world), record.summary["method_report"]
    node, why = choose_node(record) if node is None else (node, "")
    if not 0 <= node < scene.n:
        raise LNTrustError(f"node {node}: there are nodes 0 to {scene.n - 1} in {record.study}")
    weights = {int(j): float(a) for j, a in report["trust"][node].items()}
    around = sorted((j for j in weights if j != node), key=lambda j: (-weights[j], j))
    shown, rest = around[:_MOST], around[_MOST:]
    figure = sheet(2.65, f"{title}: {_headline(record, scene, node)}")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.75, 1])[0]
    _neighbourhood(left.add_subplot(), scene, node, {j: weights[j] for j in [node, *shown]})
    _histograms(right, record.world, [node, *shown][:_HISTOGRAMS], weights)
    share = score_text(sum(weights[j] for j in rest))
    footnote(
        figure, which, why,
        "" if report["together"][node] else "it answers alone: its deployment gate is closed",
        f"{len(rest)} more neighbours share {share}" if rest else "",
        f"without arrow: weight below {score_text(_LEAST)}",
    )  # fmt: skip
    return figure


def _headline(record: Record, scene: Scene, node: int) -> str:
    scores = record.summary["per_node"]
    test, own, pooled, own_pooled = (
        None if scores[name] is None or scores[name][node] is None else score_text(scores[name][node])
        for name in ("test", "self", "test_pooled", "self_pooled")
    )
    text = f"node {node} ({scene.learners[scene.kinds[node]]}), seed {record.seed}"
    text += f", Test {test} vs Self {own}" if test and own else ""
    return text + (f" (pooled {pooled} vs {own_pooled})" if pooled else "")


def _neighbourhood(axes: Axes, scene: Scene, node: int, weights: dict[int, float]) -> None:
    """Width and colour of an arrow are its weight."""
    others = [j for j in weights if j != node]
    places = _ring(layout(scene) - layout(scene)[node], others)
    shapes = scene.shapes
    largest = max((weights[j] for j in others), default=1.0) or 1.0
    for j in others:
        (x, y), trusted, strength = places[j], weights[j] >= _LEAST, weights[j] / largest
        if trusted:
            arrow = FancyArrowPatch(
                (x, y), (0, 0), arrowstyle="-|>", mutation_scale=5 + 6 * strength, shrinkA=7, shrinkB=10,
                linewidth=0.6 + 2.6 * strength, color=colormaps["Oranges"](0.3 + 0.6 * strength), zorder=2,
                gid=f"arrow-{j}",
            )  # fmt: skip
            axes.add_patch(arrow)
            axes.annotate(
                score_text(weights[j]), (1.17 * x, 1.24 * y), va="center", fontsize=6,
                ha="center" if abs(x) < 0.3 else "left" if x > 0 else "right",
                fontweight="bold" if strength == 1 else "normal",
            )  # fmt: skip
        else:
            axes.plot([x, 0], [y, 0], color=PALE, linewidth=0.5, zorder=1)
        _node(axes, j, (x, y), shapes[scene.kinds[j]], INK if trusted else GREY)
    _node(axes, node, (0.0, 0.0), shapes[scene.kinds[node]], "white", chosen=True)
    own = f"on itself {score_text(weights.get(node, 0.0))}"
    axes.annotate(own, (-1.5, 1.5), va="top", fontsize=6, color=VERMILLION)
    axes.set(xlim=(-1.55, 1.55), ylim=(-1.5, 1.5), aspect="equal")
    axes.set_axis_off()
    handles = [
        Line2D([], [], linestyle="none", marker=shapes[k], markersize=6 if shapes[k] == "*" else 4.5,
               markerfacecolor="white", markeredgecolor=INK, markeredgewidth=0.6, label=scene.learners[k])
        for k in np.unique(scene.kinds[list(weights)]).tolist()
    ]  # fmt: skip
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2,
        handletextpad=0.1, columnspacing=1, borderpad=0,
    )  # fmt: skip


def _node(
    axes: Axes, node: int, place: tuple[float, float], shape: str, ink: str, chosen: bool = False
) -> None:
    size = (190 if chosen else 95) * (2.6 if shape == "*" else 1.0)  # a star's middle holds the number
    fill, edge = (VERMILLION, INK) if chosen else ("white", ink)
    axes.scatter(*place, s=size, marker=shape, c=fill, edgecolors=edge, linewidths=0.7, zorder=3)
    lift = {"*": -0.6, "^": -1.6, "v": 1.0}.get(shape, -0.3)
    _number(axes, node, place, lift, fontsize=6 if chosen else 5.5, color=ink, zorder=4)


def _ring(away: Float[ndarray, "n 2"], others: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Evenly on a circle, in the order in which they lie around the node in the whole graph's picture."""
    true = np.arctan2(away[:, 1], away[:, 0])
    order = sorted(others, key=lambda j: (true[j], j))
    angles = 2 * np.pi * np.arange(len(order)) / max(len(order), 1)
    angles += np.angle(np.exp(1j * (true[order] - angles)).sum())  # turned to where they are
    return {j: (float(np.cos(t)), float(np.sin(t))) for j, t in zip(order, angles, strict=True)}


def _histograms(
    figure: Figure, world: dict[str, Any], members: Sequence[int], weights: dict[int, float]
) -> None:
    """Shares of classes among the labels each member knows; the first's own as an outline behind others'."""
    counts = np.array(world["train"], float) + np.array(world["validation"], float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes, node = world["classes"], members[0]
    places = np.arange(len(classes))
    all_axes = figure.subplots(len(members), sharex=True, squeeze=False)[:, 0]
    for axes, j in zip(all_axes, members, strict=True):
        axes.bar(places, shares[j], width=0.8, color=VERMILLION if j == node else "#9aa3af")
        if j != node:
            axes.stairs(shares[node], np.arange(len(classes) + 1) - 0.5, color=VERMILLION, linewidth=0.6)
        axes.set(xticks=[], yticks=[], ylim=(0, 1.08 * shares[list(members)].max()))
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="x", length=0, pad=1)
        weight = score_text(weights[j]) if weights[j] >= _LEAST else f"<{score_text(_LEAST)}"
        axes.set_title(f"{j}{', itself' if j == node else ''}: {weight}", fontsize=5.5, loc="left", pad=1)
    if len(classes) <= _NAMED:
        brief = [name if len(name) <= 12 else f"{name[:10]}…" for name in classes]
        all_axes[-1].set_xticks(places, brief, rotation=90, fontsize=5)
    else:
        all_axes[-1].set_xlabel(f"{len(classes)} classes", fontsize=5.5)
