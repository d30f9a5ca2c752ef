"""`lntrust compare` and `lntrust collect` as their users see them."""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lntrust import load_study
from lntrust.experiment import Run
from lntrust.learners.views import Views

SMALL = [
    "graph.nodes=5", "partition.labelled=250", "training.stage1_rounds=1", "training.stage2_rounds=1",
    "training.refresh=1", "evaluation.every=1", "methods.lntrust.warmup=1", "methods.lntrust.sample=40",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Path:
    """Three methods with two seeds, one of them at two settings."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        for method in ("independent", "d_psgd", "lntrust"):
            Run(load_study("digits", SMALL), method, seed, views, folder=folder)()
        one_teacher = load_study("digits", [*SMALL, "methods.lntrust.top_k=1"])
        Run(one_teacher, "lntrust", seed, views, folder=folder)()
    return folder


LABELS = ["independent", "d_psgd", "lntrust, top_k = 1", "lntrust, top_k = None"]


def test_help_explains_the_columns(lntrust: Any) -> None:
    told = " ".join(lntrust("compare", "--help").out.split())
    columns = ("Test", "Self", "gain", "Δ Indep.", "10 %", "harmed", "P", "GB per node", "asked")
    assert [words for words in columns if f" {words}: " not in told] == []
    assert "95 % confidence" in told


def test_a_table_on_the_terminal(lntrust: Any, runs: Path) -> None:
    got = lntrust("compare", runs)
    assert (got.code, got.err) == (0, "")
    assert "digits, seeds 0, 1" in got.out
    assert re.findall(r"^ (independent|d_psgd|lntrust)", got.out, re.MULTILINE) == [
        "independent", "d_psgd", "lntrust", "lntrust",
    ]  # fmt: skip
    assert max(map(len, got.out.splitlines())) <= 80


def test_every_kind_of_file(lntrust: Any, runs: Path, tmp_path: Path) -> None:
    files = [tmp_path / "new" / f"table{suffix}" for suffix in (".md", ".tex", ".parquet")]
    got = lntrust("compare", runs, *(part for file in files for part in ("-o", file)))
    assert got.code == 0
    for file in files:
        assert f"{file}: written" in got.out
    table = pq.read_table(files[2])
    assert table["label"].to_pylist() == LABELS
    assert table["seeds"].to_pylist() == [[0, 1]] * 4
    text = files[0].read_text()
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][2:] == [
        f"| {label}" for label in LABELS
    ]
    for mean, std in zip(*(table[f"test_{part}"].to_pylist() for part in ("mean", "std")), strict=True):
        assert f"{mean:.3f} ± {std:.3f}".replace("0.", ".") in text
        assert rf"{mean:.3f} \pm {std:.3f}" in files[1].read_text()


def test_a_collection_gives_the_same_tables(lntrust: Any, runs: Path, tmp_path: Path) -> None:
    got = lntrust("collect", runs, "-o", tmp_path / "all.parquet")
    assert (got.code, got.err) == (0, "")
    assert re.fullmatch(r"\S+all\.parquet: 8 runs, 3 methods, 1 study, \d+\.\d kB\n", got.out)
    folders, collection = lntrust("compare", runs).out, lntrust("compare", tmp_path / "all.parquet").out
    assert folders == collection
    both = lntrust("compare", runs, tmp_path / "all.parquet")
    assert both.out == folders


def test_collections_can_be_collected(lntrust: Any, runs: Path, tmp_path: Path) -> None:
    some, rest, everything = (tmp_path / f"{name}.parquet" for name in ("some", "rest", "all"))
    assert "2 runs, 1 method, 1 study" in lntrust("collect", runs / "digits" / "d_psgd", "-o", some).out
    lntrust("collect", runs / "digits" / "independent", runs / "digits" / "lntrust", "-o", rest)
    assert "8 runs, 3 methods" in lntrust("collect", some, rest, "-o", everything).out
    assert lntrust("compare", everything).out == lntrust("compare", runs).out


@pytest.mark.parametrize("by_study", [[], ["--by-study"]])
def test_the_papers_tables_or_all_runs_of_a_study(
    lntrust: Any, runs: Path, monkeypatch: pytest.MonkeyPatch, by_study: list[str], tmp_path: Path
) -> None:
    paper = tmp_path / "paper"
    paper.mkdir()
    sets = ", ".join(f'"{path}" = {value}' for path, _, value in (text.partition("=") for text in SMALL))
    (paper / "01-own.toml").write_text(
        f"""title = "Own table"
place = "Table 9"
claim = "Ours is best."
[[panels]]
title = "digits"
study = "digits"
set = {{ {sets} }}
rows = [
  {{ label = "Alone", method = "independent", paper = {{ test = 0.5, test_std = 0.01 }} }},
  {{ label = "Ours", paper = {{ test = 0.6 }} }},
]
[[panels.claims]]
says = "ours is above"
above = "Ours"
below = ["Alone"]
"""
    )
    monkeypatch.setattr(
        "lntrust.report.sections.list_reproductions", lambda: {str(paper / "01-own.toml"): paper}
    )
    got = lntrust("compare", runs, *by_study, "-o", tmp_path / "t.md")
    assert got.code == 0
    text = (tmp_path / "t.md").read_text()
    if by_study:
        assert re.findall("^## (.*)", text, re.MULTILINE) == ["digits"]
        assert "Table 9" not in got.out
    else:
        assert re.findall("^## (.*)", text, re.MULTILINE) == ["Own table", "digits"]
        assert "Table 9: Own table, seeds 0, 1" in got.out
        assert re.search(r"^(holds|does not hold|undecided): ours is above$", got.out, re.MULTILINE)
        assert "paper's Test" in text
        assert "**The paper says:** Ours is best." in text


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("compare", ["RUNS", "-o", "table.html"], "--out table.html: must end in .md, .tex or .parquet"),
        ("compare", ["RUNS", "-o", "table.md", "-o", "table"], "--out table: must end in"),
        ("compare", ["empty"], "empty: no finished run there"),
        ("compare", ["nowhere"], "nowhere: neither a folder with runs nor a collection of them"),
        ("compare", ["text.parquet"], "text.parquet: not a readable Parquet file"),
        ("compare", ["RUNS", "text.parquet"], "text.parquet: not a readable Parquet file"),
        ("compare", ["RUNS", "-o", "text.parquet/table.md"], "cannot write text.parquet/table.md"),
        ("compare", ["RUNS", "-o", "folder.md"], "--out folder.md: is a folder"),
        ("collect", ["RUNS", "-o", "all.json"], "--out all.json: must end in .parquet"),
        ("collect", ["empty", "-o", "all.parquet"], "empty: no finished run there"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    lntrust: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str,
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "text.parquet").write_text("text")
    got = lntrust(command, *(str(runs) if part == "RUNS" else part for part in arguments))
    assert got.code == 2
    assert got.err.startswith(f"error: {message}")
    assert len(got.err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "folder.md", "text.parquet"]
