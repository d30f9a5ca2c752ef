"""The world's coast, for maps: read from the TopoJSON that comes with the package, cut to a window."""

import json
from functools import lru_cache
from importlib import resources

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

Line = Float[ndarray, "k 2"]  # longitude, latitude
_EDGE = 179.999  # where the map of the world is cut open; such lines are no coast
_POLE = -89.99


@lru_cache(maxsize=1)
def _rings() -> list[Line]:
    """All shores as closed rings: land has its own to the right of the line, lakes to the left."""
    file = resources.files("lntrust.report.page") / "assets" / "vendor" / "land-50m.json"
    topology = json.loads(file.read_text("utf-8"))
    scale, translate = (np.array(topology["transform"][key]) for key in ("scale", "translate"))
    # An arc is stored as steps of whole numbers; each place is the sum of the steps up to it.
    arcs = [np.cumsum(arc, axis=0) * scale + translate for arc in topology["arcs"]]
    shapes = topology["objects"]["land"]["geometries"]
    rings = [_joined(ring, arcs) for shape in shapes for polygon in shape["arcs"] for ring in polygon]
    return [flat for ring in rings for flat in _laid_flat(ring)]


def _joined(ring: list[int], arcs: list[Line]) -> Line:
    """A ring of arcs by their numbers; ~number is the arc backwards. Neighbours share their end point."""
    parts = [arcs[number] if number >= 0 else arcs[~number][::-1] for number in ring]
    return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])


def _laid_flat(ring: Line) -> list[Line]:
    """A ring that crosses 180° as one that goes on beyond it, and once more on the other side of the map."""
    ring = np.stack([np.unwrap(ring[:, 0], period=360), ring[:, 1]], axis=1)
    if abs(ring[-1, 0] - ring[0, 0]) > 180:  # all around the earth: closed below the south pole
        ring = np.concatenate([ring, [[ring[-1, 0], -90.0], [ring[0, 0], -90.0]], ring[:1]])
    turns = [
        turn for turn in (-360, 360) if (ring[:, 0] + turn).max() > -180 and (ring[:, 0] + turn).min() < 180
    ]
    return [ring, *(ring + np.array([turn, 0]) for turn in turns)]


def coastlines(west: float, south: float, east: float, north: float) -> list[Line]:
    """The coast in a window, in degrees, as lines of (longitude, latitude). Lines may end just outside."""
    lines = []
    for ring in _near(west, south, east, north):
        a, b = ring[:-1], ring[1:]
        low, high = np.minimum(a, b), np.maximum(a, b)
        shown = (
            (high[:, 0] >= west) & (low[:, 0] <= east) & (high[:, 1] >= south) & (low[:, 1] <= north)
        ) & ~_cut_of_the_world(a, b)
        # A line starts where a shown step follows one that is not, and ends where it is the other way round.
        change = np.flatnonzero(np.diff(np.concatenate([[False], shown, [False]]).astype(int)))
        lines += [ring[start : end + 1] for start, end in change.reshape(-1, 2)]
    return lines


def land(west: float, south: float, east: float, north: float) -> list[Line]:
    """Land and lakes in a window as closed rings, to be filled; their edges may run along the window's."""
    rings = []
    for ring in _near(west, south, east, north):
        for axis, limit, sign in ((0, west, 1), (0, east, -1), (1, south, 1), (1, north, -1)):
            ring = _clipped(ring, axis, limit, sign)
        if len(ring) > 3:
            rings.append(ring)
    return rings


def _near(west: float, south: float, east: float, north: float) -> list[Line]:
    low, high = np.array([west, south]), np.array([east, north])
    return [ring for ring in _rings() if (ring.max(0) >= low).all() and (ring.min(0) <= high).all()]


def _cut_of_the_world(a: Line, b: Line) -> Bool[ndarray, "k"]:
    """Steps along ±180° or the south pole: where rings were cut open to lie flat."""
    at_side = (np.abs(a[:, 0]) > _EDGE) & (np.abs(b[:, 0]) > _EDGE)
    return np.asarray(at_side | ((a[:, 1] < _POLE) & (b[:, 1] < _POLE)))


def _clipped(ring: Line, axis: int, limit: float, sign: int) -> Line:
    """What of a closed ring lies on one side of a line (Sutherland and Hodgman)."""
    if not len(ring):
        return ring
    depth = sign * (ring[:, axis] - limit)
    inside = depth >= 0
    if inside.all():
        return ring
    points: list[Float[ndarray, "2"]] = []
    for i in range(len(ring) - 1):
        if inside[i]:
            points.append(ring[i])
        if inside[i] != inside[i + 1]:
            share = depth[i] / (depth[i] - depth[i + 1])
            points.append(ring[i] + share * (ring[i + 1] - ring[i]))
    return np.array([*points, points[0]]) if points else np.empty((0, 2))
