"""The table: bytes for people, means over seeds, rows for variants."""

import io
from typing import Any

import pytest
from rich.console import Console

from lntrust.experiment import run
from lntrust.learners.views import Views
from lntrust.report.table import human_bytes, results_table


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (1234, "1.2 kB"), (1_234_567, "1.2 MB"),
        (5_000_000_000, "5.0 GB"), (7.25e12, "7.2 TB"), (3e15, "3000.0 TB"), (12.4, "12 B"),
    ],
)  # fmt: skip
def test_human_bytes(count: float, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(("count", "text"), [(999.6, "1.0 kB"), (999_960, "1.0 MB"), (999_949, "999.9 kB")])
def test_human_bytes_never_rounds_up_to_a_thousand(count: float, text: str) -> None:
    assert human_bytes(count) == text


def summary(method: str = "uniform", seed: int = 0, test: float = 0.8, **changes: Any) -> dict[str, Any]:
    return {
        "study": "digits", "method": method, "deploy": None, "seed": seed, "test": test, "self": 0.7,
        "test_pooled": 0.75, "harmed": 0.25, "bytes": {"total": 1_234_567, "per_deployed_query": 900.0},
        "seconds": 1.26, "variants": {}, **changes,
    }  # fmt: skip


def rows(*summaries: dict[str, Any]) -> tuple[str, list[list[str]]]:
    """The title, and the cells of each row as printed."""
    table = results_table(summaries)
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    return str(table.title), cells


def test_one_seed() -> None:
    title, cells = rows(summary())
    assert title == "digits, seed 0"
    assert cells == [["uniform", "0.800", "0.700", "0.750", "0.250", "1.2 MB", "900 B", "1.3"]]


def test_several_seeds_as_mean_and_deviation() -> None:
    runs = [
        summary(seed=seed, test=test, seconds=seed, bytes={"total": 1000 * seed, "per_deployed_query": 100})
        for seed, test in ((2, 0.7), (0, 0.8), (1, 0.9))
    ]
    title, cells = rows(*runs, summary("independent"))
    assert title == "digits, seeds 0, 1, 2"
    assert cells[0][:3] == ["uniform", "0.800 ± 0.082", "0.700 ± 0.000"]  # √(0.02 / 3), ddof 0
    assert cells[0][5:] == ["1.0 kB", "100 B", "1.0"]
    assert cells[1][:2] == ["independent", "0.800"]


def test_the_same_training_deployed_in_two_ways_has_two_rows() -> None:
    _, cells = rows(summary("dml"), summary("dml", test=0.9, deploy="trust"))
    assert [row[:2] for row in cells] == [["dml", "0.800"], ["dml → trust", "0.900"]]


def test_scores_that_are_not_there() -> None:
    _, cells = rows(summary(test_pooled=None, harmed=None))
    assert cells[0][3:5] == ["–", "–"]


def test_variants_have_a_row_below() -> None:
    runs = [
        summary("centralized", seed, variants={"label_prior": {"test": test, "test_pooled": 0.9}})
        for seed, test in ((0, 0.85), (1, 0.95))
    ]
    _, cells = rows(*runs, summary("uniform"))
    assert [row[0] for row in cells] == ["centralized", "+ label_prior", "uniform"]
    assert cells[1] == ["+ label_prior", "0.900 ± 0.050", "", "0.900 ± 0.000", "", "", "", ""]


def test_real_summaries(tiny: Any, views: Views) -> None:
    real = [run(tiny("methods.centralized.epochs=2"), m, 0, views) for m in ("uniform", "centralized")]
    _, cells = rows(*real)
    assert [row[0] for row in cells] == ["uniform", "centralized", "+ label_prior"]
    assert cells[0][1] == f"{real[0]['test']:.3f}"
