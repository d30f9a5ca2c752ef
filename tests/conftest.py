"""What many tests share: studies that run in a moment, and the command line without a process.

`tiny` has linear heads and forests, `quick` linear heads only; both are files for the command line, too.
`small` is `digits` with all its kinds of learners, for fixtures of a whole module. All have five nodes.
"""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # of child processes: two test workers share two cores
os.environ["COLUMNS"] = "80"  # of tables

import pytest
import torch
from hypothesis import settings

from lntrust import Study, load_study
from lntrust.cli import main
from lntrust.core import plugins
from lntrust.learners.views import Views
from lntrust.world import load_dataset

torch.set_num_threads(1)

# Properties are tried on the same examples every time, so that a check passes or fails for a change's sake.
# `pytest --hypothesis-profile=default` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

TINY = """
inherits = "digits"
compare = ["independent", "uniform", "lntrust"]
seeds = [0]
graph.nodes = 5
partition.labelled = 250
training = { stage1_rounds = 2, stage2_rounds = 3, refresh = 2 }
evaluation = { every = 2, checkpoint_every = 1 }
population.learners = [
  { name = "linear", kind = "linear", view = "pixels" },
  { name = "forest", kind = "forest", view = "pixels", options = { trees = 5 } },
]
"""
QUICK = """
inherits = "tiny.toml"
population.learners = [{ name = "linear", kind = "linear", view = "pixels" }]
"""
SMALL = (
    "graph.nodes=5", "partition.labelled=250", "training.stage1_rounds=1", "training.stage2_rounds=2",
    "training.refresh=1", "evaluation.every=1", "methods.lntrust.warmup=1", "methods.lntrust.sample=40",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What was printed, without the lines of tables and without line breaks."""
        return " ".join(re.sub(r"[─-╿]", " ", self.out).split())

    @property
    def cells(self) -> dict[str, list[str]]:
        """Of a table: first cell → the others, without white space; a cell may go on in the rows below."""
        rows: dict[str, list[str]] = {}
        name = ""
        for line in self.out.splitlines():
            if line.startswith("│"):
                first, *others = [re.sub(r"\s", "", cell) for cell in line.strip("│").split("│")]
                name = first or name
                so_far = rows.get(name, [""] * len(others))
                rows[name] = [a + b for a, b in zip(so_far, others, strict=True)]
        return rows


Command = Callable[..., Outcome]
MakeStudy = Callable[..., Study]


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    """Five nodes, linear heads and forests in turn, two rounds and three."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, "utf-8")
    return path


@pytest.fixture
def tiny(tiny_file: Path) -> MakeStudy:
    """The same as a study, with overrides."""
    return lambda *overrides: load_study(tiny_file, overrides)


@pytest.fixture
def quick_file(tiny_file: Path) -> Path:
    """The same without forests."""
    path = tiny_file.with_name("quick.toml")
    path.write_text(QUICK, "utf-8")
    return path


@pytest.fixture
def quick(quick_file: Path) -> MakeStudy:
    """The same as a study, with overrides."""
    return lambda *overrides: load_study(quick_file, overrides)


@pytest.fixture(scope="session")
def small_sets() -> tuple[str, ...]:
    """`digits` in small, one round and two: for --set."""
    return SMALL


@pytest.fixture(scope="session")
def small() -> MakeStudy:
    """The same as a study, with overrides."""
    return lambda *overrides: load_study("digits", [*SMALL, *overrides])


@pytest.fixture(autouse=True)
def _no_node_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' nodes: a process that has read one's settings looks in no working folder."""
    monkeypatch.setattr(plugins, "_BESIDE", [])


@pytest.fixture(scope="session")
def views() -> Views:
    return Views(load_dataset("digits"), torch.device("cpu"), torch.float32)


@pytest.fixture(scope="session")
def views64() -> Views:
    return Views(load_dataset("digits"), torch.device("cpu"), torch.float64)


@pytest.fixture
def lntrust(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command `lntrust …` in this process: its exit code and what it printed."""

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["lntrust", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        code = exit_.value.code
        return Outcome(code if isinstance(code, int) else 0, printed.out, printed.err)

    return call
