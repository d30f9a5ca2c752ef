"""Whole runs, as `test_main.py` does not have them."""

from benchmarks.speed import speed
from lntrust import Study
from lntrust.learners.views import Views


def test_stacked_seeds(heads: Study, codes: Views) -> None:
    """As a GPU has them: all seeds in one go."""
    assert min(speed.all_at_once(heads, "independent", [0, 1], codes)) > 0
