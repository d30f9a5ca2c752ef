"""What tests of runs share; see stopped_runs.py, too."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from stopped_runs import Make

from lntrust.experiment import Run, Runs
from lntrust.learners import batch
from lntrust.learners.views import Views


@pytest.fixture
def make(tiny: Any, views: Views, tmp_path: Path) -> Make:
    """A run of the tiny study with overrides, or a stack of several seeds; its folder is in tmp_path."""

    def make(
        *changes: str, method: str = "uniform", seed: Any = 0, into: str | None = None, **options: Any
    ) -> Any:
        folder = None if into is None else tmp_path / into
        kind: Any = Run if isinstance(seed, int) else Runs
        return kind(tiny(*changes), method, seed, views, folder=folder, **options)

    return make


@pytest.fixture
def clean_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody were working on this package: its code is then no part of what a run is called."""
    monkeypatch.setattr(import_module("lntrust.experiment.store.identity"), "changed_code", lambda: None)


@pytest.fixture(autouse=True, scope="module")
def _few_batches_at_once() -> Iterator[None]:
    """A run of a few steps draws millions ahead otherwise; test_batch shows that it is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "_DRAWN_AT_ONCE", 2_000)
        yield
