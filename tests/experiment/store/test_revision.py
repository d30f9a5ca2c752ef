"""Which state of the package made a run: seen from copies of it, in checkouts of their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lntrust

PRINT = (
    "import json; from lntrust.experiment.store.identity import revision, changed_code;"
    "print(json.dumps([revision(), changed_code()]))"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a folder that is no checkout."""
    folder = tmp_path / "project"
    skipped = shutil.ignore_patterns("__pycache__", "assets", "studies")
    shutil.copytree(Path(lntrust.__file__).parent, folder / "src" / "lntrust", ignore=skipped)
    return folder


def told(folder: Path) -> tuple[dict[str, str], str | None]:
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, text=True, check=True)
    revision, code = json.loads(done.stdout)
    return revision, code


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_outside_a_checkout_there_is_none(copy: Path) -> None:
    assert told(copy) == ({}, None)


def test_of_somebody_elses_checkout_it_is_not_told(copy: Path) -> None:
    git(copy, "init")
    (copy / "mine.txt").write_text("mine")
    git(copy, "add", "mine.txt")
    git(copy, "commit", "-m", "mine")
    assert told(copy) == ({}, None)


def test_a_method_of_ours_that_is_being_worked_on(copy: Path) -> None:
    """Its results are those of its code, and not those of the code before."""
    git(copy, "init")
    git(copy, "add", "-A")
    git(copy, "commit", "-m", "all")
    head: Any = git(copy, "rev-parse", "--short=12", "HEAD")
    assert told(copy) == ({"revision": head}, None)
    method = copy / "src" / "lntrust" / "methods" / "independent.py"
    codes = set()
    for line in ("# a", "# b"):
        method.write_text(method.read_text() + line + "\n")
        revision, code = told(copy)
        assert revision == {"revision": f"{head}, dirty"}
        codes.add(code)
    assert None not in codes
    assert len(codes) == 2
