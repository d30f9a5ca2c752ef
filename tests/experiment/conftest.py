"""What tests of runs share; see helpers.py, too."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for helpers.py


@pytest.fixture
def clean_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody were working on this package: its code is then no part of what a run is called."""
    monkeypatch.setattr(import_module("lntrust.experiment.store.identity"), "changed_code", lambda: None)
