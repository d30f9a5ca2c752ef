"""The graph of a world as a picture: degrees as colour, kinds of learners as shapes, examples as area."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from lntrust.core.files import write_whole
from lntrust.experiment.store import Record
from lntrust.report.figures.style import footnote, sheet, styled
from lntrust.world import World

_SHAPES = "*osD^vPX"
_GAP = 0.75  # least distance of nodes; half of it where they have true places


@dataclass(frozen=True)
class Scene:
    """What a picture of a graph needs to know of a world: the same from a world and from a run."""

    study: str
    seed: int
    edges: tuple[tuple[int, int], ...]
    learners: tuple[str, ...]
    kinds: Int[ndarray, "n"]
    sizes: Int[ndarray, "n"]  # labelled examples
    centres: Float[ndarray, "n 2"] | None  # latitude and longitude

    @property
    def n(self) -> int:
        return len(self.kinds)

    @property
    def degrees(self) -> Int[ndarray, "n"]:
        ends = np.array(self.edges, dtype=np.int64).reshape(-1)
        return np.bincount(ends, minlength=self.n)


def scene_of_world(world: World) -> Scene:
    p = world.partition
    return Scene(
        study=world.study.name, seed=world.seed, edges=_sorted(list(world.graph.edges)),
        learners=tuple(learner.name for learner in world.study.population.learners), kinds=world.kinds,
        sizes=p.train.lengths + p.validation.lengths + p.test.lengths, centres=p.centres,
    )  # fmt: skip


def scene_of_record(record: Record) -> Scene:
    """From what a run's folder says about its world."""
    world = record.world
    known = [np.array(world[name], dtype=np.int64).sum(1) for name in ("train", "validation")]
    return Scene(
        study=record.study, seed=record.seed, edges=_sorted(world["edges"]),
        learners=tuple(world["learners"]), kinds=np.array(world["kinds"], dtype=np.int64),
        sizes=known[0] + known[1] + np.array(world["test"], dtype=np.int64),
        centres=None if world["centres"] is None else np.array(world["centres"], dtype=float),
    )  # fmt: skip


def _sorted(edges: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((min(a, b), max(a, b)) for a, b in edges))


def layout(scene: Scene) -> Float[ndarray, "n 2"]:
    """True positions where there are such (longitude shrunk by latitude), else a spring layout.

    Nodes that would lie on each other are pushed apart.
    """
    if scene.centres is not None:
        shrink = np.cos(np.radians(scene.centres[:, 0].mean()))
        return _apart(np.stack([scene.centres[:, 1] * shrink, scene.centres[:, 0]], axis=1), _GAP / 2)
    return spring_layout(scene.n, scene.edges)


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


def _apart(places: Float[ndarray, "n 2"], gap: float, steps: int = 100) -> Float[ndarray, "n 2"]:
    """Nodes closer than the gap pushed away from each other, the others left where they are.

    The gap is in parts of what a square grid of as many nodes would have.
    """
    n = len(places)
    extent = float(np.ptp(places, axis=0).max()) if n > 1 else 0.0
    gap *= extent / np.sqrt(max(n, 1))
    places = places.copy()
    for _ in range(steps if extent else 0):
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


def shapes_of(learners: Sequence[str]) -> list[str]:
    """A shape per kind of learner; of two kinds the first, rarer one gets the star."""
    shapes = _SHAPES if len(learners) == 2 else _SHAPES[1:]
    return [shapes[index % len(shapes)] for index in range(len(learners))]


def draw_graph(
    axes: Axes, scene: Scene, places: Float[ndarray, "n 2"], area: Float[ndarray, "n"], *, numbers: float
) -> PathCollection:
    """Edges, then nodes by kind; `numbers` is the size of the nodes' numbers, 0: none. Returns what a colour
    bar needs."""
    degrees = scene.degrees
    width = 0.8 if numbers > 6 else 0.45 * min(1.0, np.sqrt(200 / max(len(scene.edges), 1)))
    for a, b in scene.edges:
        axes.plot(*places[[a, b]].T, color="#b8bfc9", linewidth=width, zorder=1)
    points: PathCollection | None = None
    for index, (name, shape) in enumerate(zip(scene.learners, shapes_of(scene.learners), strict=True)):
        mine = scene.kinds == index
        if not mine.any():
            continue
        bigger = 1.8 if shape == "*" else 1.0  # a star fills little of its square
        points = axes.scatter(
            places[mine, 0], places[mine, 1], s=bigger * area[mine], c=degrees[mine],
            vmin=degrees.min(), vmax=max(degrees.max(), degrees.min() + 1), cmap="viridis_r",
            marker=shape, edgecolors="#30343b", linewidths=0.8 if numbers > 6 else 0.5, zorder=2,
            label=f"{name} ({mine.sum()})",
        )  # fmt: skip
    assert points is not None
    for i, (x, y) in enumerate(places if numbers else []):
        axes.annotate(
            str(i), (x, y), xytext=(0, -0.15 * numbers), textcoords="offset points", ha="center", va="center",
            fontsize=numbers, zorder=3,
            color="white" if degrees[i] > (degrees.min() + degrees.max()) / 2 else "black",
        )  # fmt: skip
    return points


def headline(scene: Scene) -> str:
    """The graph in numbers."""
    degrees = scene.degrees
    return (
        f"{scene.n} nodes, {len(scene.edges)} edges, degree {degrees.min()}–{degrees.max()} "
        f"(mean {degrees.mean():.1f})"
    )


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


@styled()
def draw_graph_figure(record: Record, title: str) -> Figure:
    """For a paper, of a run."""
    scene = scene_of_record(record)
    figure = sheet(3.3, f"{title}, {scene.n} nodes, seed {scene.seed}" if title else "")
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
    places = "" if free else "; at their places, or beside them where nodes would overlap"
    footnote(figure, f"{headline(scene)}; area grows with the number of labelled examples{places}")
    return figure


def draw_topology(world: World, path: Path) -> None:
    """For a screen, of a world, to a PNG (or PDF, SVG: by the suffix)."""
    scene = scene_of_world(world)
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    axes = figure.add_subplot()
    area = 90 + 500 * np.sqrt(scene.sizes / scene.sizes.max())
    points = draw_graph(axes, scene, layout(scene), area, numbers=7)
    figure.colorbar(points, ax=axes, label="degree", shrink=0.7)
    axes.legend(loc="best", frameon=False, markerscale=0.6)
    axes.set_title(
        f"{scene.study}, seed {scene.seed}: {headline(scene)}; area ∝ √labelled examples", fontsize=10
    )
    axes.set_axis_off()
    kind = path.suffix.removeprefix(".") or "png"
    write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150, format=kind))
