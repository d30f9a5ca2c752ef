"""Where the nodes are: the graph by itself, and on the map with what they hold."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from lntrust.experiment.store import Record
from lntrust.report.figures.coast import land
from lntrust.report.figures.style import MORE, WIDE, WIDTH, footnote, in_style, sheet
from lntrust.report.figures.topology import draw_graph, headline, layout, scene_of_record

_EUROSAT = {  # colours that say what they mean, from Okabe and Ito's as far as those go
    "AnnualCrop": "#f0e442", "Forest": "#006d4f", "HerbaceousVegetation": "#8fce6f", "Highway": "#8a8f98",
    "Industrial": "#cc79a7", "Pasture": "#009e73", "PermanentCrop": "#e69f00", "Residential": "#d55e00",
    "River": "#56b4e9", "SeaLake": "#0072b2",
}  # fmt: skip
_MARGIN = 0.04  # of the map's extent


@in_style
def draw_graph_figure(record: Record, title: str) -> Figure:
    """The graph: degrees as colour, kinds of learners as shapes, labelled examples as area."""
    scene = scene_of_record(record)
    figure = sheet(WIDTH, 3.3, f"{title}, {scene.n} nodes, seed {scene.seed}" if title else "")
    axes = figure.add_subplot()
    crowd = min(1.0, 60 / scene.n) * (1.0 if scene.centres is None else 0.5)  # true places lie closer
    area = crowd * (28 + 130 * np.sqrt(scene.sizes / max(scene.sizes.max(), 1)))
    points = draw_graph(
        axes, scene, layout(scene), area, numbers=0 if scene.n > 60 else 4.5 if scene.centres is None else 3.5
    )
    axes.set_axis_off()
    if scene.centres is not None:
        axes.set_aspect("equal")
    bar = figure.colorbar(points, ax=axes, shrink=0.5, aspect=18, pad=0.01)
    bar.outline.set_linewidth(0.5)
    bar.set_label("degree", labelpad=1)
    bar.locator = MaxNLocator(nbins=7, integer=True)
    bar.update_ticks()
    legend = axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.02),
        ncols=2,
        markerscale=0.55,
        handletextpad=0.1,
        columnspacing=1,
    )
    _shapes_only(legend)
    places = "" if scene.centres is None else "; at their places, or beside them where nodes would overlap"
    footnote(figure, f"{headline(scene)}; area grows with the number of labelled examples{places}")
    return figure


@in_style
def draw_map(record: Record, title: str) -> Figure:
    """Left, labelled tiles by class; right, the regions' graph at its true places."""
    scene, tiles = scene_of_record(record), record.world["tiles"]
    assert scene.centres is not None
    latitude, longitude = (np.array(tiles[k]) / tiles["per_degree"] for k in ("latitude", "longitude"))
    window = _window(
        np.concatenate([longitude, scene.centres[:, 1]]), np.concatenate([latitude, scene.centres[:, 0]])
    )
    west, south, east, north = window
    shrink = float(np.cos(np.radians((south + north) / 2)))
    figure, left, right, beside = _panels((north - south) / ((east - west) * shrink))
    figure.text(
        0.05 / WIDE, 1 - 0.04 / figure.get_figheight(), f"{title}, seed {scene.seed}", fontsize=7.5, va="top"
    )
    for axes in (left, right):
        _ground(axes, window, shrink)
    _tiles(left, record.world["classes"], longitude, latitude, np.array(tiles["class"]))
    area = 8 + 80 * scene.sizes / scene.sizes.max()
    points = draw_graph(right, scene, scene.centres[:, ::-1], area, numbers=0)
    bar = figure.colorbar(points, cax=beside)
    bar.outline.set_linewidth(0.5)
    bar.set_label("degree", labelpad=1)
    bar.locator = MaxNLocator(nbins=7, integer=True)
    bar.update_ticks()
    legend = right.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3,
        markerscale=0.7,
        borderpad=0.2,
        handletextpad=0.2,
        columnspacing=1,
    )
    _shapes_only(legend)
    left.set_title(f"{len(latitude):,} labelled tiles".replace(",", " "), pad=3)
    right.set_title(headline(scene), pad=3)
    note = "coast: Natural Earth; left: for training and validation; right: area grows with all tiles"
    figure.text(0.05 / WIDE, 0.04 / figure.get_figheight(), note, fontsize=5.5, color="#5a616b")
    return figure


def _shapes_only(legend: Legend) -> None:
    """Its colours would say a degree."""
    for handle in legend.legend_handles:
        assert isinstance(handle, PathCollection)
        handle.set_array(None)
        handle.set_facecolor("white")


def _panels(ratio: float) -> tuple[Figure, Axes, Axes, Axes]:
    """Two maps as high as they are to be for their width, and a colour bar; placed in inches."""
    edge, gap, bar, below, above = 0.05, 0.1, 0.5, 0.55, 0.36
    wide = (WIDE - 2 * edge - gap - bar) / 2
    high = wide * ratio
    total = high + below + above
    figure = Figure(figsize=(WIDE, total))

    def place(x: float, y: float, w: float, h: float) -> Axes:
        return figure.add_axes((x / WIDE, y / total, w / WIDE, h / total))

    left, right = place(edge, below, wide, high), place(edge + wide + gap, below, wide, high)
    return figure, left, right, place(edge + 2 * wide + gap + 0.07, below + 0.2 * high, 0.1, 0.6 * high)


def _window(
    longitude: Float[ndarray, "t"], latitude: Float[ndarray, "t"]
) -> tuple[float, float, float, float]:
    west, east, south, north = longitude.min(), longitude.max(), latitude.min(), latitude.max()
    x, y = _MARGIN * max(east - west, 1.0), _MARGIN * max(north - south, 1.0)
    return float(west - x), float(south - y), float(east + x), float(north + y)


def _ground(axes: Axes, window: tuple[float, float, float, float], shrink: float) -> None:
    """Land and sea, as long as wide where the map is in the middle."""
    west, south, east, north = window
    axes.set_facecolor("#eef3f8")
    rings = land(*window)
    if rings:  # one outline of all: lakes run the other way round, and stay open
        outline = Outline.make_compound_path(*(Outline(ring, closed=True) for ring in rings))
        axes.add_patch(PathPatch(outline, facecolor="#fbfaf6", edgecolor="#9aa3af", linewidth=0.35, zorder=0))
    axes.set(xlim=(west, east), ylim=(south, north), xticks=[], yticks=[], aspect=1 / shrink)
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.4, color="#9aa3af")


def _tiles(
    axes: Axes, classes: list[str], longitude: Float[ndarray, "t"], latitude: Float[ndarray, "t"],
    of: Float[ndarray, "t"],
) -> None:  # fmt: skip
    colours = [_EUROSAT.get(name, MORE[c % len(MORE)]) for c, name in enumerate(classes)]
    # Mixed, so that no class lies on top only for its name; always mixed the same way.
    order = np.random.default_rng(0).permutation(len(of))
    axes.scatter(
        longitude[order], latitude[order], s=1.6, c=np.array(colours)[of[order]], linewidths=0, zorder=1,
        rasterized=True,
    )  # fmt: skip
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=3.5, color=colour, label=_words(name))
        for name, colour in zip(classes, colours, strict=True)
    ]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4,
        handletextpad=0.1, columnspacing=0.7, fontsize=5.5, borderpad=0.2, labelspacing=0.25,
    )  # fmt: skip


def _words(name: str) -> str:
    """AnnualCrop → Annual crop"""
    spaced = "".join(f" {c.lower()}" if c.isupper() and i else c for i, c in enumerate(name))
    return spaced if name.isalpha() and not name.isupper() else name
