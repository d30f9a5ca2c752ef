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
    assert cells == [["uniform", ".800", ".700", ".750", ".250", "1.2 MB", "900 B", "1.3"]]


def test_several_seeds_as_mean_and_deviation() -> None:
    runs = [
        summary(seed=seed, test=test, seconds=seed, bytes={"total": 1000 * seed, "per_deployed_query": 100})
        for seed, test in ((2, 0.7), (0, 0.8), (1, 0.9))
    ]
    title, cells = rows(*runs, summary("independent"))
    assert title == "digits, seeds 0, 1, 2"
    assert cells[0][:3] == ["uniform", ".800 ±.082", ".700"]  # √(0.02 / 3), ddof 0
    assert cells[0][5:] == ["1.0 kB", "100 B", "1.0"]
    assert cells[1][:2] == ["independent", ".800"]


def test_the_demos_methods_have_a_line_each_in_80_columns() -> None:
    sent = {
        "independent": (0, 0),
        "uniform": (0, 1664),
        "lntrust": (358.9e6, 814),
        "lntrust+best": (45.6e6, 11),
    }
    runs = [
        summary(m, seed, seconds=123.4, bytes={"total": total, "per_deployed_query": asking})
        for m, (total, asking) in sent.items()
        for seed in (0, 1, 2)
    ]
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table(runs))
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("│")]
    assert [line.split()[1] for line in lines] == list(sent)
    assert all(".800 ±.000" in line and " 123 │" in line for line in lines)
    assert "359 MB" in lines[2]


def test_one_is_one() -> None:
    _, cells = rows(summary(test=1.0, seconds=99.96), summary(seed=1, test=1.0, seconds=99.96))
    assert cells[0][1] == "1.000 ±.000"
    assert cells[0][-1] == "100"


def test_the_same_training_deployed_in_two_ways_has_two_rows() -> None:
    _, cells = rows(summary("dml"), summary("dml", test=0.9, deploy="trust"))
    assert [row[:2] for row in cells] == [["dml", ".800"], ["dml → trust", ".900"]]


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
    assert cells[1] == ["+ label_prior", ".900 ±.050", "", ".900", "", "", "", ""]


def broken(seed: int, number: int) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("self", "test_pooled", "harmed"))
    sent = {"total": 0, "per_deployed_query": None}
    return summary(seed=seed) | nothing | {"test": None, "bytes": sent, "diverged": number, "seconds": 0.26}


def test_what_diverged_is_told_and_in_no_mean() -> None:
    _, cells = rows(summary(seed=0, test=0.6), broken(1, 7), summary(seed=2, test=0.8))
    assert cells[0][:2] == ["uniform", ".700 ±.100"]
    assert cells[0][-1] == "1.3"
    assert " ".join(line[0] for line in cells[1:]) == "2 of 3 seeds; seed 1 diverged at round 7"


def test_where_every_seed_diverged_there_are_no_numbers() -> None:
    _, cells = rows(broken(4, 7))
    assert cells[0] == ["uniform", *["–"] * 6, "0.3"]
    assert " ".join(line[0] for line in cells[1:]) == "diverged at round 7"


def test_real_summaries(tiny: Any, views: Views) -> None:
    real = [run(tiny("methods.centralized.epochs=2"), m, 0, views) for m in ("uniform", "centralized")]
    _, cells = rows(*real)
    assert [row[0] for row in cells] == ["uniform", "centralized", "+ label_prior"]
    assert cells[0][1] == f"{real[0]['test']:.3f}".removeprefix("0")
