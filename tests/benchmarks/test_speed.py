"""Whole runs, and both backends."""

import pytest

from benchmarks.speed import speed
from lntrust import Study
from lntrust.learners.views import Views


@pytest.mark.parametrize("method", ["lntrust", "independent"])
def test_a_row(heads: Study, codes: Views, method: str) -> None:
    row = speed.measure(heads, method, [0, 1], codes, loop_rounds=4)
    assert (row["study"], row["method"], row["seeds"], row["stacked"]) == (heads.name, method, [0, 1], False)
    total = row["seconds_per_run"] * 2
    assert row["node_steps_per_second"] == pytest.approx(2 * 8 * 2 * 10 / total)  # runs, rounds, steps, nodes
    assert 0 < row["build_seconds_per_run"] < row["seconds_per_run"]
    loop = row["loop"]
    assert loop["rounds"] == 4
    assert loop["ratio"] == loop["loop_seconds"] / loop["batched_seconds"]


def test_stacked_seeds(heads: Study, codes: Views) -> None:
    """As a GPU has them: all seeds in one go."""
    build, train = speed.all_at_once(heads, "independent", [0, 1], codes)
    assert min(build, train) > 0


def test_no_loop_where_none_is_wanted(heads: Study, codes: Views) -> None:
    assert "loop" not in speed.measure(heads, "independent", [0], codes, loop_rounds=0)
