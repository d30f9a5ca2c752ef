"""A map of the nodes with what they hold, on the world's coast (Natural Earth, a TopoJSON in the package)."""

import json
import re
from functools import lru_cache
from importlib import resources

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.transforms import Bbox
from numpy import ndarray

from lntrust.experiment.store import Record
from lntrust.report.figures.graphs import Scene, degree_bar, draw_graph, kinds_legend
from lntrust.report.figures.style import MORE, WIDE

Line = Float[ndarray, "k 2"]  # longitude, latitude
_EUROSAT = {  # colours that say what they mean, from Okabe and Ito's as far as those go
    "AnnualCrop": "#f0e442", "Forest": "#006d4f", "HerbaceousVegetation": "#8fce6f", "Highway": "#8a8f98",
    "Industrial": "#cc79a7", "Pasture": "#009e73", "PermanentCrop": "#e69f00", "Residential": "#d55e00",
    "River": "#56b4e9", "SeaLake": "#0072b2",
}  # fmt: skip
_MARGIN = 0.04  # of the map's extent


def draw_map(record: Record, title: str) -> Figure:
    """Left, labelled tiles by class; right, the regions' graph at its true places."""
    scene, tiles = Scene(record.world), record.world["tiles"]
    assert scene.centres is not None
    nodes = scene.centres[:, ::-1]
    places = np.stack([tiles["longitude"], tiles["latitude"]], axis=1) / tiles["per_degree"]
    everywhere = np.concatenate([places, nodes])
    low, high = everywhere.min(0), everywhere.max(0)
    margin = _MARGIN * np.maximum(high - low, 1.0)
    (west, south), (east, north) = (low - margin).tolist(), (high + margin).tolist()
    shrink = float(np.cos(np.radians((south + north) / 2)))
    # Two maps as high as they are to be for their width, and a colour bar; in inches.
    edge, gap, bar, below, above = 0.05, 0.1, 0.5, 0.55, 0.36
    wide = (WIDE - 2 * edge - gap - bar) / 2
    tall = wide * ((north - south) / ((east - west) * shrink))
    total = tall + below + above
    figure = Figure(figsize=(WIDE, total))

    def axes_at(x: float, y: float, w: float, h: float) -> Axes:
        return figure.add_axes((x / WIDE, y / total, w / WIDE, h / total))

    left, right = axes_at(edge, below, wide, tall), axes_at(edge + wide + gap, below, wide, tall)
    beside = axes_at(edge + 2 * wide + gap + 0.07, below + 0.2 * tall, 0.1, 0.6 * tall)
    figure.text(edge / WIDE, 1 - 0.04 / total, f"{title}, seed {record.seed}", fontsize=7.5, va="top")
    for axes in (left, right):
        _ground(axes, (west, south, east, north), shrink)
    _tiles(left, record.world["classes"], places, np.array(tiles["class"]))
    points = draw_graph(right, scene, nodes, 8 + 80 * scene.sizes / scene.sizes.max(), numbers=0)
    degree_bar(figure.colorbar(points, cax=beside))
    kinds_legend(right, bbox_to_anchor=(0.5, 0.0), ncols=3, markerscale=0.7, borderpad=0.2, handletextpad=0.2)
    left.set_title(f"{len(places):,} labelled tiles".replace(",", " "), pad=3)
    right.set_title(scene.headline, pad=3)
    note = "coast: Natural Earth; left: for training and validation; right: area grows with all tiles"
    figure.text(edge / WIDE, 0.04 / total, note, fontsize=5.5, color="#5a616b")
    return figure


def _ground(axes: Axes, window: tuple[float, float, float, float], shrink: float) -> None:
    """Land and sea, as long as wide where the map is in the middle."""
    west, south, east, north = window
    axes.set_facecolor("#eef3f8")
    rings = land(*window)
    if rings:  # one outline of all: lakes run the other way round, and stay open
        outline = Outline.make_compound_path(*(Outline(ring, closed=True) for ring in rings))
        axes.add_patch(PathPatch(outline, facecolor="#fbfaf6", edgecolor="#9aa3af", linewidth=0.35, zorder=0))
    axes.set(xlim=(west, east), ylim=(south, north), xticks=[], yticks=[], aspect=1 / shrink)
    axes.spines[:].set(visible=True, linewidth=0.4, color="#9aa3af")


def _tiles(axes: Axes, classes: list[str], places: Line, of: Float[ndarray, "k"]) -> None:
    colours = [_EUROSAT.get(name, MORE[c % len(MORE)]) for c, name in enumerate(classes)]
    # Mixed, so that no class lies on top only for its name; always mixed the same way.
    order = np.random.default_rng(0).permutation(len(of))
    x, y = places[order].T
    axes.scatter(x, y, s=1.6, c=np.array(colours)[of[order]], linewidths=0, zorder=1, rasterized=True)
    # AnnualCrop → Annual crop
    words = [re.sub("(?<=[a-z])[A-Z]", lambda a: f" {a[0].lower()}", n) if n.isalpha() else n
             for n in classes]  # fmt: skip
    handles = [Line2D([], [], linestyle="none", marker="o", markersize=3.5, color=colour, label=label)
               for label, colour in zip(words, colours, strict=True)]  # fmt: skip
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4,
        handletextpad=0.1, columnspacing=0.7, fontsize=5.5, borderpad=0.2, labelspacing=0.25,
    )  # fmt: skip


# -- the coast -----------------------------------------------------------------------------------


def land(west: float, south: float, east: float, north: float) -> list[Line]:
    """Land and lakes in a window as closed rings, to be filled; their edges may run along the window's."""
    window = Bbox.from_extents(west, south, east, north)
    rings = []
    for ring in _rings():
        if (ring.max(0) >= window.min).all() and (ring.min(0) <= window.max).all():
            cut = Outline(ring, closed=True).clip_to_bbox(window)
            cut.should_simplify = False  # to pixels, that is; these are degrees
            rings += [part for part in map(np.asarray, cut.to_polygons()) if len(part) > 3]
    return rings


@lru_cache(maxsize=1)
def _rings() -> list[Line]:
    """All shores as closed rings: land has its own to the right of the line, lakes to the left."""
    file = resources.files("lntrust.report.page") / "assets" / "vendor" / "land-50m.json"
    topology = json.loads(file.read_text("utf-8"))
    scale, translate = (np.array(topology["transform"][key]) for key in ("scale", "translate"))
    # An arc is stored as steps of whole numbers; each place is the sum of the steps up to it.
    arcs = [np.cumsum(arc, axis=0) * scale + translate for arc in topology["arcs"]]
    arcs += [arc[::-1] for arc in reversed(arcs)]  # ~number is the arc backwards
    shapes = topology["objects"]["land"]["geometries"]
    numbers = [ring for shape in shapes for polygon in shape["arcs"] for ring in polygon]
    # A ring's arcs share their end points.
    rings = [np.concatenate([arcs[one], *(arcs[k][1:] for k in others)]) for one, *others in numbers]
    return [flat for ring in rings for flat in _laid_flat(ring)]


def _laid_flat(ring: Line) -> list[Line]:
    """A ring that crosses 180° as one that goes on beyond it, and once more on the other side of the map."""
    ring = np.stack([np.unwrap(ring[:, 0], period=360), ring[:, 1]], axis=1)
    if abs(ring[-1, 0] - ring[0, 0]) > 180:  # all around the earth: closed below the south pole
        ring = np.concatenate([ring, [[ring[-1, 0], -90.0], [ring[0, 0], -90.0]], ring[:1]])
    turned = [ring + np.array([turn, 0]) for turn in (-360, 360)]
    return [ring, *(other for other in turned if other[:, 0].max() > -180 and other[:, 0].min() < 180)]
