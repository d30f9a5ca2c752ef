"""`lntrust compare`, `collect`, `report` and `figures` as their users see them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lntrust import Study
from lntrust.experiment import Run
from lntrust.learners.views import Views

LABELS = ["independent", "d_psgd", "lntrust, top_k = 1", "lntrust, top_k = None"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, small: Callable[..., Study], views: Views) -> Path:
    """Three methods with two seeds, one of them at two settings."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        for method in ("independent", "d_psgd", "lntrust"):
            Run(small(), method, seed, views, folder=folder)()
        Run(small("methods.lntrust.top_k=1"), "lntrust", seed, views, folder=folder)()
    return folder


@pytest.fixture
def collection(runs: Path, lntrust: Any, tmp_path: Path) -> Path:
    path = tmp_path / "all.parquet"
    got = lntrust("collect", runs, "-o", path)
    assert (got.code, got.err) == (0, "")
    assert re.fullmatch(r"\S+all\.parquet: 8 runs, 3 methods, 1 study, \d+\.\d kB\n", got.out)
    return path


class TestCompare:
    def test_a_table_on_the_terminal(self, lntrust: Any, runs: Path) -> None:
        got = lntrust("compare", runs)
        assert (got.code, got.err) == (0, "")
        assert "digits, seeds 0, 1" in got.out
        named = re.findall(r"^ (independent|d_psgd|lntrust)", got.out, re.MULTILINE)
        assert named == ["independent", "d_psgd", "lntrust", "lntrust"]
        assert max(map(len, got.out.splitlines())) <= 80

    def test_every_kind_of_file(self, lntrust: Any, runs: Path, tmp_path: Path) -> None:
        files = [tmp_path / "new" / f"table{suffix}" for suffix in (".md", ".tex", ".parquet")]
        got = lntrust("compare", runs, *(part for file in files for part in ("-o", file)))
        assert got.code == 0
        assert all(f"{file}: written" in got.out for file in files)
        table = pq.read_table(files[2])
        assert table["label"].to_pylist() == LABELS
        assert table["seeds"].to_pylist() == [[0, 1]] * 4
        text = files[0].read_text()
        labels = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][2:]
        assert labels == [f"| {label}" for label in LABELS]
        for mean in table["test_mean"].to_pylist():
            assert f"{mean:.3f}" in files[1].read_text()

    def test_a_collection_gives_the_same_tables(self, lntrust: Any, runs: Path, collection: Path) -> None:
        folders = lntrust("compare", runs).out
        assert lntrust("compare", collection).out == folders
        assert lntrust("compare", runs, collection).out == folders

    @pytest.mark.parametrize("by_study", [[], ["--by-study"]])
    def test_the_papers_tables_or_all_runs_of_a_study(
        self, lntrust: Any, runs: Path, small_sets: tuple[str, ...], here: Path, by_study: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        sets = ", ".join(f'"{path}" = {value}' for path, value in (text.split("=") for text in small_sets))
        Path("01-own.toml").write_text(
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
        monkeypatch.setattr("lntrust.report.sections.list_reproductions", lambda: {"01-own.toml": here})
        got = lntrust("compare", runs, *by_study, "-o", "t.md")
        assert got.code == 0
        text = Path("t.md").read_text()
        titles = re.findall("^## (.*)", text, re.MULTILINE)
        if by_study:
            assert titles == ["digits"]
            assert "Table 9" not in got.out
        else:
            assert titles == ["Own table", "digits"]
            assert "Table 9: Own table, seeds 0, 1" in got.out
            assert re.search(r"^(holds|does not hold|undecided): ours is above$", got.out, re.MULTILINE)
            assert "paper's Test" in text
            assert "**The paper says:** Ours is best." in text


def test_folder_and_collection_give_the_same_page(
    runs: Path, collection: Path, tmp_path: Path, lntrust: Any
) -> None:
    a, b = tmp_path / "new" / "a.html", tmp_path / "b.html"
    got = lntrust("report", runs, "-o", a)
    assert got.code == 0
    assert re.fullmatch(rf"{a}: 8 runs, 1\.\d MB\n", got.out)
    assert lntrust("report", collection, runs, "-o", b).code == 0  # each run once
    pages = [path.read_text("utf-8") for path in (a, b)]
    commands = [f"lntrust report {runs} -o {a}", f"lntrust report {collection} {runs} -o {b}"]
    for page, command in zip(pages, commands, strict=True):
        assert page.count(command) == 1
    assert pages[0].replace(commands[0], "") == pages[1].replace(commands[1], "")


def test_figures(runs: Path, collection: Path, tmp_path: Path, lntrust: Any) -> None:
    """A collection of the same runs gives the same files; here of one kind."""
    done = lntrust("figures", runs, "-o", tmp_path / "new" / "figures")
    assert done.code == 0
    paths = [Path(line) for line in done.out.splitlines()]
    assert sorted(paths) == sorted((tmp_path / "new" / "figures").iterdir())
    kinds = ("curves", "bytes", "communication", "importance", "trust", "topology")
    assert {path.name for path in paths} == {f"digits-{k}.{end}" for k in kinds for end in ("png", "pdf")}
    assert lntrust("figures", collection, "--out", tmp_path / "again", "--format", "png").code == 0
    made = sorted((tmp_path / "again").iterdir())
    assert [path.suffix for path in made] == [".png"] * 6
    for path in made:
        assert path.read_bytes() == (tmp_path / "new" / "figures" / path.name).read_bytes()


@pytest.mark.parametrize(("command", "file"), [("compare", "table.md"), ("report", "page.html")])
def test_what_cannot_be_written(lntrust: Any, runs: Path, here: Path, command: str, file: str) -> None:
    (here / "text.parquet").write_text("text")
    got = lntrust(command, runs, "-o", f"text.parquet/{file}")
    assert got.code == 2
    assert got.err.startswith(f"error: cannot write text.parquet/{file}")
    assert len(got.err.splitlines()) == 1
