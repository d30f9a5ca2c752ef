"""Maps: true to their places, on land where there is land."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import PLACES, each, in_world, on_earth
from matplotlib.path import Path as Outline

from lntrust.report.figures import draw
from lntrust.report.figures.map import land
from lntrust.report.rows import Row


def test_map_is_true_to_places(rows: list[Row]) -> None:
    figure = draw("map", [each(row, on_earth) for row in rows], title="small")
    left, right = figure.axes[:2]
    tiles = np.asarray(left.collections[0].get_offsets())
    assert len(tiles) == 30 * 6
    for latitude, longitude in PLACES:
        near = (tiles >= [longitude - 1e-6, latitude - 1e-6]) & (tiles < [longitude + 0.06, latitude + 0.06])
        assert near.all(1).sum() == 30
    nodes = np.concatenate([np.asarray(c.get_offsets()) for c in right.collections])
    assert sorted(map(tuple, nodes.tolist())) == sorted((b, a) for a, b in PLACES)
    middle = math.radians(sum(left.get_ylim()) / 2)
    assert left.get_aspect() == pytest.approx(1 / math.cos(middle))
    # The boxes are as long as they are wide to be, so that nothing is squeezed.
    box, (west, east), (south, north) = left.get_window_extent(), left.get_xlim(), left.get_ylim()
    ratio = (north - south) / (east - west) / math.cos(middle)
    assert box.height / box.width == pytest.approx(ratio, rel=1e-3)
    assert len(left.patches) == 1  # the land


def test_classes_have_words_and_the_open_sea_no_land(rows: list[Row]) -> None:
    tiles = {"node": [0], "latitude": [4200], "longitude": [-3500], "class": [1], "per_degree": 100}
    at_sea = {"centres": [[42.0, -35.0]] * 6, "classes": ["AnnualCrop", "lake", "NDVI"], "tiles": tiles}
    left = draw("map", [each(rows[0], in_world, **at_sea)], title="small").axes[0]
    legend = left.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["Annual crop", "lake", "NDVI"]
    assert len(left.patches) == 0


@pytest.mark.parametrize(
    ("longitude", "latitude", "dry"),
    [(2.35, 48.86, True), (-30, 45, False), (37.6, 55.75, True), (18, 40, False), (0, -85, True),
     (178, 67, True), (-178, 66.5, True), (51, 42, False), (4, 56, False), (-18.5, 65, True)],
)  # fmt: skip
@pytest.mark.parametrize("size", [3, 12])
def test_land_is_land(longitude: float, latitude: float, dry: bool, size: float) -> None:
    """Paris, the Atlantic, Moscow, the Ionian Sea, Antarctica, both sides of 180°, the Caspian Sea, the North
    Sea, inner Iceland. Inside an odd number of rings: a lake in a continent is not."""
    rings = land(longitude - size, latitude - size, longitude + size, latitude + size)
    assert sum(bool(Outline(ring).contains_point((longitude, latitude))) for ring in rings) % 2 == dry


@given(st.floats(-180, 150), st.floats(-80, 60), st.floats(5, 30), st.floats(5, 20))
def test_rings_are_closed_and_stay_in_the_window(west: float, south: float, wide: float, high: float) -> None:
    for ring in land(west, south, west + wide, south + high):
        assert (ring[0] == ring[-1]).all()
        assert (ring.min(0) >= [west - 1e-6, south - 1e-6]).all()
        assert (ring.max(0) <= [west + wide + 1e-6, south + high + 1e-6]).all()


def test_the_coast_is_not_simplified() -> None:
    """Britain's has hundreds of points, and steps of about a hundredth of a degree."""
    steps = np.concatenate([np.abs(np.diff(ring, axis=0)).max(1) for ring in land(-10, 50, 2, 59)])
    assert len(steps) > 800
    assert np.median(steps) < 0.1
