"""What tests of runs share; see stopped_runs.py, too."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from lntrust.learners import batch

sys.path.insert(0, str(Path(__file__).parent))  # for stopped_runs.py


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
