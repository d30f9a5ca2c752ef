"""What is committed as results is what the committed runs say."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lntrust.experiment.reproduction import list_reproductions, load_reproduction
from lntrust.experiment.store import Record, read_runs
from lntrust.report.sections import arrow, panel_rows, sections_of_one

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results" / "reproduction"
# What came after the last reproduction, and waits for the next one; so does all under the paper's reading.
WAITING = ("readings", "fresh")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_runs([FOLDER])


def test_every_row_of_every_table_was_run_with_every_seed(records: list[Record]) -> None:
    for name in [name for name in list_reproductions() if name not in WAITING]:
        one = load_reproduction(name)
        for panel in [each for each in one.panels if each.study_of(each.rows[0]).reading == "honest"]:
            rows = panel_rows(panel, records)
            assert [row.label for row in rows] == [row.label for row in panel.rows], f"{name}: {panel.title}"
            for row in rows:
                assert set(one.seeds_of(panel)) <= set(row.seeds)


@pytest.mark.parametrize("name", [name for name in list_reproductions() if name not in WAITING])
def test_tables(records: list[Record], name: str) -> None:
    again = arrow(sections_of_one(load_reproduction(name), records)).to_pylist()
    kept = pq.read_table(FOLDER / f"{name}.parquet").to_pylist()
    kept = [row for row in kept if '"study.reading"' not in row["setting"]]
    assert len(again) == len(kept)
    for ours, theirs in zip(again, kept, strict=True):
        for column, value in theirs.items():
            expected = pytest.approx(value, abs=1e-9) if isinstance(value, float) else value
            assert ours[column] == expected, f"{theirs['label']}: {column}"


@pytest.mark.parametrize("script", ["reproduction", "beyond_tables"])
def test_the_tables_in_the_documents(script: str) -> None:
    check = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_every_preset_was_run_with_every_seed() -> None:
    runs = read_runs([ROOT / "benchmarks" / "results" / "beyond"])
    counts: dict[tuple[str, str, str], list[int]] = {}
    for record in runs:
        split = record.identity["study"]["partition"]["split"]
        counts.setdefault((record.study, split, record.method), []).append(record.seed)
    assert len(counts) == 6 * 5
    assert all(sorted(seeds) == list(range(30)) for seeds in counts.values())


def test_the_page_is_of_these_runs(records: list[Record]) -> None:
    text = (FOLDER / "report.html").read_text("utf-8")
    assert f"{len(records)} runs" in text
    assert len(text.encode()) < 3_000_000


def test_stage_1_is_one_for_the_tables_that_share_it(records: list[Record]) -> None:
    """Frequency and gate: the scores after Stage 1 are the same to the last bit, row by row."""
    found: dict[int, set[float]] = {}
    for name in ("frequency", "gate"):
        panel, _ = load_reproduction(name).panels
        for row in panel_rows(panel, records):
            for record in row.records:
                found.setdefault(record.seed, set()).add(record.summary["stage1"])
    assert {seed: len(values) for seed, values in found.items()} == {0: 1, 1: 1, 2: 1}
