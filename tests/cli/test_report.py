"""`lntrust report`: from folders and collections to one file."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lntrust import load_study
from lntrust.experiment import Run
from lntrust.experiment.store import read_runs, write_collection
from lntrust.learners.views import Views

Command = Callable[..., Any]  # see conftest.py


@pytest.fixture
def runs(tiny_file: Path, views: Views, tmp_path: Path) -> Path:
    Run(load_study(tiny_file), "uniform", 0, views, folder=tmp_path / "runs")()
    return tmp_path / "runs"


def test_folder_and_collection_give_the_same_page(runs: Path, tmp_path: Path, lntrust: Command) -> None:
    write_collection(read_runs([runs]), tmp_path / "all.parquet")
    a, b = tmp_path / "new" / "a.html", tmp_path / "b.html"
    told = lntrust("report", runs, "-o", a)
    assert told.code == 0
    assert re.fullmatch(rf"{a}: 1 run, 1\.\d MB\n", told.out)
    assert lntrust("report", tmp_path / "all.parquet", runs, "-o", b).code == 0  # each run once
    pages = [path.read_text("utf-8") for path in (a, b)]
    commands = [f"lntrust report {runs} -o {a}", f"lntrust report {tmp_path / 'all.parquet'} {runs} -o {b}"]
    for page, command in zip(pages, commands, strict=True):
        assert page.count(command) == 1
    assert pages[0].replace(commands[0], "") == pages[1].replace(commands[1], "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{runs}", "-o", "page.pdf"], r"--out page\.pdf: must end in \.html"),
        (["{empty}"], "no finished run there"),
        (["{empty}/nothing"], "neither a folder with runs nor a collection"),
        (["{runs}", "-o", "{file}/page.html"], "cannot write"),
    ],
)
def test_errors_are_one_message(
    runs: Path, tmp_path: Path, lntrust: Command, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("", "utf-8")
    places = {"runs": runs, "empty": tmp_path / "empty", "file": tmp_path / "file"}
    told = lntrust("report", *(argument.format(**places) for argument in arguments))
    assert told.code == 2
    assert re.search(message, told.err)
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert not list(tmp_path.glob("**/*.html"))
