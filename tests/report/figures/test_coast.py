"""The coast: land where there is land, and nothing outside the window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Outline

from lntrust.report.figures.coast import coastlines, land

EUROPE = (-25.0, 27.0, 42.0, 69.0)


def is_land(longitude: float, latitude: float, rings: list[np.ndarray]) -> bool:
    """Inside an odd number of rings: a lake in a continent is not."""
    return sum(bool(Outline(ring).contains_point((longitude, latitude))) for ring in rings) % 2 == 1


@pytest.mark.parametrize(
    ("place", "dry"),
    [
        ((2.35, 48.86), True),  # Paris
        ((-18.5, 65.0), True),  # inner Iceland
        ((13.4, 52.5), True),  # Berlin
        ((-15.0, 50.0), False),  # the Atlantic
        ((4.0, 56.0), False),  # the North Sea
        ((18.0, 35.0), False),  # the Mediterranean
    ],
)
def test_land_is_land(place: tuple[float, float], dry: bool) -> None:
    assert is_land(*place, land(*EUROPE)) is dry


@given(st.floats(-180, 150), st.floats(-80, 60), st.floats(5, 30), st.floats(5, 20))
def test_rings_stay_in_the_window(west: float, south: float, wide: float, high: float) -> None:
    east, north = west + wide, south + high
    for ring in land(west, south, east, north):
        assert ring[:, 0].min() >= west - 1e-6
        assert ring[:, 0].max() <= east + 1e-6
        assert ring[:, 1].min() >= south - 1e-6
        assert ring[:, 1].max() <= north + 1e-6
    for line in coastlines(west, south, east, north):
        low, high = np.minimum(line[:-1], line[1:]), np.maximum(line[:-1], line[1:])
        assert np.all((high >= [west, south]) & (low <= [east, north])), "every step touches the window"


def test_the_open_sea_has_no_coast() -> None:
    assert coastlines(-40, 40, -30, 45) == []
    assert land(-40, 40, -30, 45) == []


def test_the_date_line_is_no_coast() -> None:
    """Chukotka lies on both sides of 180°; nothing is drawn along it."""
    for line in coastlines(178, 65, 182, 70):
        along = np.isclose(np.abs(line[:, 0]), 180, atol=1e-3)
        assert not np.any(along[:-1] & along[1:])
