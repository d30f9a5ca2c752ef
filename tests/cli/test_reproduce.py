"""`lntrust reproduce`, with a table of a small study."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lntrust.core.files import read_json
from lntrust.experiment.store import read_runs, write_collection

MINE = """
title = "A small table"
place = "Table 0"
claim = "Together is better."
seeds = [0, 1]

[[panels]]
title = "digits"
study = "tiny.toml"
shared_stage1 = true
x = "budget"
rows = [
  { label = "Independent", method = "independent", paper = { test = 0.5, test_std = 0.1 } },
  { label = "B = 20", x = 20, set = { "methods.lntrust.budget" = 20 } },
  { label = "B = 40", x = 40, set = { "methods.lntrust.budget" = 40 }, paper = { test = 0.9 } },
]
claims = [{ says = "All alike", alike = ["B = 20", "B = 40"], within = 1.0 }]

[[figures]]
kind = "ablation"
"""


@pytest.fixture
def here(here: Path, tiny_file: Path) -> Path:
    (here / "mine.toml").write_text(MINE, "utf-8")
    return here


def summaries(folder: Path) -> dict[Path, Any]:
    return {path: (path.stat().st_mtime_ns, read_json(path)) for path in folder.rglob("summary.json")}


def test_a_table_and_its_files(lntrust: Any, here: Path) -> None:
    got = lntrust("reproduce", "mine.toml")
    assert got.code == 0, got.err
    assert "Table 0: A small table" in got.out
    assert "holds: All alike" in got.out
    assert "6/6 tasks" in got.err
    made = {path.name for path in (here / "reproduction").iterdir()}
    assert made == {"mine.md", "mine.tex", "mine.parquet", "mine-ablation.png", "mine-ablation.pdf"}
    rows = pq.read_table(here / "reproduction" / "mine.parquet").to_pylist()
    scores = [read_json(path)["test"] for path in (here / "runs").rglob("independent/*/summary.json")]
    assert rows[0]["test_mean"] == pytest.approx(sum(scores) / 2)
    assert (rows[0]["paper_test"], rows[2]["paper_test"]) == (0.5, 0.9)
    assert len(list((here / "runs").rglob("stage1/*.safetensors"))) == 4, "withheld and not, two seeds"

    before = summaries(here / "runs")
    again = lntrust("reproduce", "mine.toml")
    assert (again.code, again.out) == (0, got.out)
    assert "kept 6; --fresh" in again.err
    assert summaries(here / "runs") == before, "nothing is run twice"

    assert lntrust("collect", "runs", "-o", "kept.parquet").code == 0
    from_file = lntrust("reproduce", "mine.toml", "--from", "kept.parquet", "--out", "elsewhere", "--to", "t")
    assert (from_file.code, from_file.out) == (0, got.out)
    assert not (here / "elsewhere").exists(), "nothing is run that lies there"
    for name in ("mine.md", "mine.tex", "mine.parquet", "mine-ablation.png", "mine-ablation.pdf"):
        assert (here / "t" / name).read_bytes() == (here / "reproduction" / name).read_bytes()


def test_other_seeds_and_the_rows_of_one_method(lntrust: Any, here: Path) -> None:
    got = lntrust("reproduce", "mine.toml", "--seed", "3", "--method", "independent")
    assert got.code == 0, got.err
    assert "seed 3" in got.out
    (path,) = (here / "runs").rglob("summary.json")
    assert path.parent.name.startswith("seed-3-")
    again = lntrust("reproduce", "mine.toml", "--seed", "3", "--method", "independent", "--json")
    assert json.loads(again.out) == read_json(path)


def test_without_a_name_all_are_listed(lntrust: Any) -> None:
    got = lntrust("reproduce")
    assert got.code == 0
    assert "Table 1" in got.out
    assert "communication" in got.out


def test_given_runs_of_some_seeds_are_not_mixed_with_new_ones(lntrust: Any, here: Path) -> None:
    """Seed 0 was made on another device: both seeds are made here, and each stands in the row once."""
    assert lntrust("reproduce", "mine.toml", "--seed", "0", "--out", "first").code == 0
    moved = [replace(r, identity={**r.identity, "device": "cuda"}) for r in read_runs([here / "first"])]
    write_collection(moved, here / "given.parquet")
    got = lntrust("reproduce", "mine.toml", "--seed", "0-1", "--from", "given.parquet")
    assert got.code == 0, got.err
    rows = pq.read_table(here / "reproduction" / "mine.parquet").to_pylist()
    assert {(tuple(row["seeds"]), row["device"]) for row in rows} == {((0, 1), "cpu")}
    got = lntrust("reproduce", "mine.toml", "--seed", "0", "--from", "given.parquet", "--out", "none")
    rows = pq.read_table(here / "reproduction" / "mine.parquet").to_pylist()
    assert {(tuple(row["seeds"]), row["device"]) for row in rows} == {((0,), "cuda")}
    assert not (here / "none").exists()


def test_runs_of_an_earlier_version_get_their_worlds_described(lntrust: Any, here: Path) -> None:
    got = lntrust("reproduce", "mine.toml", "--seed", "0")
    before = summaries(here / "runs")
    shutil.rmtree(here / "runs" / "tiny" / "worlds")
    refused = lntrust("compare", "runs")
    assert refused.code == 2
    assert "the command that made it, given again, does that" in refused.err
    again = lntrust("reproduce", "mine.toml", "--seed", "0")
    assert (again.code, again.out) == (0, got.out)
    assert summaries(here / "runs") == before


def test_one_that_fails_leaves_the_others_their_tables(lntrust: Any, here: Path) -> None:
    """A method that cannot take part in one table; the other is shown and written all the same."""
    text = MINE.replace('method = "independent"', 'method = "fails:Fails"')
    (here / "bad.toml").write_text(text, "utf-8")
    (here / "fails.py").write_text(
        "from lntrust.methods import Method\n\n\nclass Fails(Method):\n    about = 'fails'\n\n"
        "    def start(self, site):\n        raise RuntimeError('no')\n",
        "utf-8",
    )
    got = lntrust("reproduce", "bad.toml", "mine.toml", "--seed", "0")
    assert got.code == 2
    assert "1 of 4 tasks failed" in got.err
    assert "fails:Fails" in got.err
    assert {"mine.md", "bad.md"} <= {path.name for path in (here / "reproduction").iterdir()}
    labels = [row["label"] for row in pq.read_table(here / "reproduction" / "bad.parquet").to_pylist()]
    assert labels == ["B = 20", "B = 40"]
