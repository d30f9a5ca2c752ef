"""A working folder, and commands that must be refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Refuse = Callable[..., str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, empty but for what other fixtures put there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(lntrust: Any, here: Path) -> Refuse:
    """A command that must be refused in one message, and leave the working folder as it is; the message."""

    def call(*arguments: str | Path) -> str:
        before = {*here.rglob("*")}
        got = lntrust(*arguments)
        assert (got.code, got.out) == (2, ""), got
        assert got.err.startswith("error: ")
        assert got.err.count("error: ") == 1
        assert "Traceback" not in got.err
        assert {*here.rglob("*")} ^ before <= {*here.rglob("attempt-*.json")}, "who tried is noted"
        return str(got.err.removeprefix("error: ").rstrip("\n"))

    return call
