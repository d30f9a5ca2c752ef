"""A node's log: every line is one JSON object, whatever happened."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lntrust.fleet.logs import Seldom, event, failed, show_logs

_LOG = logging.getLogger("lntrust.fleet")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging is one for the process: what a test changes is put back."""
    monkeypatch.setattr(_LOG, "handlers", [])
    monkeypatch.setattr(_LOG, "propagate", True)
    level = _LOG.level
    yield
    _LOG.setLevel(level)


@contextmanager
def logged() -> Iterator[list[dict[str, Any]]]:
    """The lines that are logged meanwhile, as objects."""
    stream, lines = io.StringIO(), list[dict[str, Any]]()
    show_logs("json", stream)
    yield lines
    lines += map(json.loads, stream.getvalue().splitlines())


def test_every_line_is_one_object_whatever_happened() -> None:
    begun = datetime.now(UTC)
    with logged() as lines:
        event("two\nlines, «ü»", number=1.5, more={"a": [None, True]}, path=Path("a/b"), who={1})
        failed("state not saved", OSError("no space\nleft " + "x" * 1000), round=3)
    one, other = lines
    assert abs((datetime.fromisoformat(one.pop("at")) - begun).total_seconds()) < 60
    assert one == {
        "event": "two\nlines, «ü»", "level": "info", "number": 1.5, "more": {"a": [None, True]},
        "path": "a/b", "who": "{1}",
    }  # fmt: skip
    assert (other["level"], other["round"], len(other["error"])) == ("error", 3, 401)
    assert other["error"].startswith("OSError: no space\nleft")


def test_text_for_people_and_what_was_shown_before_is_shown_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = io.StringIO()
    show_logs("json", before)
    show_logs("text")
    event("trust refreshed", round=3, together=True)
    printed = capsys.readouterr()
    assert printed.err.endswith("trust refreshed round=3 together=True\n")
    assert printed.out == before.getvalue() == "", "standard output is for answers"


def test_events_that_a_neighbour_causes_are_logged_seldom() -> None:
    now = 0.0
    seldom = Seldom(10.0, lambda: now)
    with logged() as lines:
        for name in ("b", "b", "c", "b"):
            seldom.event("it rains", neighbour=name)
        now = 10.0
        seldom.event("it rains", neighbour="b")
    assert [(line["neighbour"], line.get("untold")) for line in lines] == [("b", None), ("c", None), ("b", 2)]
