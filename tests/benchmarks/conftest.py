"""A study of linear heads in small, random codes for it, and the command line of the benchmarks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import data, roofline
from benchmarks.speed.clock import fastest
from benchmarks.speed.data import random_views
from lntrust import Study, load_study
from lntrust.learners.views import Views

SMALL = (
    "graph.nodes=10", "graph.density=0.4", "partition.labelled=200", "partition.minimum=10",
    "partition.pool=100", "partition.shard=40", "training.stage1_rounds=2", "training.stage2_rounds=6",
    "training.steps=2", "training.batch=8", "methods.lntrust.budget=20", "methods.lntrust.warmup=1",
)  # fmt: skip


@pytest.fixture(scope="session")
def heads() -> Study:
    """sparse-cifar10 with 1 + 9 nodes."""
    return load_study("sparse-cifar10", SMALL)


@pytest.fixture(scope="session")
def codes(heads: Study) -> Views:
    return random_views(heads, rows=600, features=16)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roofline takes a few calls of each form, not half a second."""
    monkeypatch.setattr(roofline, "fastest", lambda call, device, _: fastest(call, device, 0.0, least=1))


@pytest.fixture
def bench(lntrust: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`lntrust bench …`, without the hint that it is `python -m benchmarks.speed …`; random codes are few."""
    monkeypatch.setattr(data, "ROWS", 600)
    monkeypatch.setattr(data, "FEATURES", 16)

    def call(*arguments: str | Path) -> Any:
        got = lntrust("bench", *arguments)
        hint, _, rest = got.err.partition("\n")
        assert hint.startswith("hint: in ")
        return replace(got, err=rest)

    return call


@pytest.fixture
def measured(bench: Any, tmp_path: Path) -> Any:
    """A theme on the small study, which must do: what it printed, and its result file."""

    def call(theme: str, *arguments: str | Path, sets: tuple[str, ...] = SMALL) -> tuple[Any, dict[str, Any]]:
        got = bench(theme, *arguments, *(f"--set={each}" for each in sets), "--out", tmp_path / "out")
        assert (got.code, got.err) == (0, "")
        (path,) = (tmp_path / "out").glob("*.json")
        return got, json.loads(path.read_text())

    return call
