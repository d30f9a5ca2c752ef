"""The graph of a world as a picture: degrees as colour, kinds of learners as shapes."""

from pathlib import Path

import matplotlib
import networkx as nx
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray

from lntrust.experiment.files import write_whole
from lntrust.world import World

matplotlib.use("Agg")
_SHAPES = "*osD^vPX"


def layout(world: World) -> Float[ndarray, "n 2"]:
    """True positions where the world has them (longitude shrunk by latitude), else a spring layout."""
    centres = world.partition.centres
    if centres is not None:
        shrink = np.cos(np.radians(centres[:, 0].mean()))
        return np.stack([centres[:, 1] * shrink, centres[:, 0]], axis=1)
    places = nx.kamada_kawai_layout(world.graph) if world.n <= 200 else nx.spring_layout(world.graph, seed=0)
    return np.array([places[i] for i in range(world.n)])


def draw_topology(world: World, path: Path) -> None:
    """Draw to a PNG (or PDF, SVG: by the suffix)."""
    places, degrees = layout(world), world.degrees
    sizes = world.partition.train.lengths + world.partition.validation.lengths + world.partition.test.lengths
    area = 90 + 500 * np.sqrt(sizes / sizes.max())
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    axes = figure.add_subplot()
    for a, b in world.graph.edges:
        axes.plot(*places[[a, b]].T, color="#b8bfc9", linewidth=0.8, zorder=1)
    learners = world.study.population.learners
    shapes = _SHAPES if len(learners) == 2 else _SHAPES[1:]
    for index, learner in enumerate(learners):
        mine = world.kinds == index
        if not mine.any():
            continue
        shape = shapes[index % len(shapes)]
        bigger = 1.8 if shape == "*" else 1.0  # a star fills little of its square
        points = axes.scatter(
            places[mine, 0], places[mine, 1], s=bigger * area[mine], c=degrees[mine],
            vmin=degrees.min(), vmax=max(degrees.max(), degrees.min() + 1), cmap="viridis_r",
            marker=shape, edgecolors="#30343b", linewidths=0.8, zorder=2,
            label=f"{learner.name} ({mine.sum()})",
        )  # fmt: skip
    for i, (x, y) in enumerate(places):
        axes.annotate(
            str(i), (x, y), xytext=(0, -1), textcoords="offset points", ha="center", va="center", fontsize=7,
            color="white" if degrees[i] > (degrees.min() + degrees.max()) / 2 else "black", zorder=3,
        )  # fmt: skip
    figure.colorbar(points, ax=axes, label="degree", shrink=0.7)
    axes.legend(loc="best", frameon=False, markerscale=0.6)
    edges = world.graph.number_of_edges()
    axes.set_title(
        f"{world.study.name}, seed {world.seed}: {world.n} nodes, {edges} edges, degree "
        f"{degrees.min()}–{degrees.max()} (mean {degrees.mean():.1f}); area ∝ √labelled examples",
        fontsize=10,
    )
    axes.set_axis_off()
    kind = path.suffix.removeprefix(".") or "png"
    write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150, format=kind))
