"""Whole runs, and both backends."""

import pytest

from benchmarks.speed import speed
from lntrust import Study
from lntrust.learners.views import Views


def test_a_row(heads: Study, codes: Views) -> None:
    row = speed.measure(heads, "independent", [0, 1], codes, loop_rounds=4)
    assert (row["study"], row["seeds"], row["stacked"]) == (heads.name, [0, 1], False)
    total = row["seconds_per_run"] * 2
    assert row["node_steps_per_second"] == pytest.approx(2 * 8 * 2 * 10 / total)  # runs, rounds, steps, nodes
    assert 0 < row["build_seconds_per_run"] < row["seconds_per_run"]
    loop = row["loop"]
    assert loop["rounds"] == 4
    assert loop["ratio"] == loop["loop_seconds"] / loop["batched_seconds"]
    assert "loop" not in speed.measure(heads, "independent", [0], codes, loop_rounds=0)


def test_stacked_seeds(heads: Study, codes: Views) -> None:
    """As a GPU has them: all seeds in one go."""
    assert min(speed.all_at_once(heads, "independent", [0, 1], codes)) > 0
