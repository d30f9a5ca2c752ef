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
from hypothesis import given
from hypothesis import strategies as st

from lntrust.fleet.logs import Seldom, event, failed, show_logs

_LOG = logging.getLogger("lntrust.fleet")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logging is one for the process: what a test changes it puts back."""
    handlers, level, propagate = list(_LOG.handlers), _LOG.level, _LOG.propagate
    yield
    _LOG.handlers[:] = handlers
    _LOG.setLevel(level)
    _LOG.propagate = propagate


@contextmanager
def logged() -> Iterator[list[dict[str, Any]]]:
    """The lines that are logged meanwhile, as objects."""
    stream, lines = io.StringIO(), list[dict[str, Any]]()
    show_logs("json", stream)
    yield lines
    *texts, last = stream.getvalue().split("\n")
    assert last == ""
    lines += [json.loads(text) for text in texts]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.text("abcdefgh_", min_size=1).filter(lambda name: name not in ("at", "level", "event", "what"))


@given(st.lists(st.tuples(st.text(), st.dictionaries(NAMES, values, max_size=3)), max_size=5))
def test_every_line_is_one_object(events: list[tuple[str, dict[str, Any]]]) -> None:
    begun = datetime.now(UTC)
    with logged() as got:
        for what, fields in events:
            event(what, **fields)
    assert [(each["event"], each["level"]) for each in got] == [(what, "info") for what, _ in events]
    for each, (_, fields) in zip(got, events, strict=True):
        assert {k: each[k] for k in fields} == fields
        assert abs((datetime.fromisoformat(each["at"]) - begun).total_seconds()) < 60


def test_what_json_does_not_know_is_written_as_text() -> None:
    with logged() as lines:
        event("saved", path=Path("a/b"), who={1})
    assert (lines[0]["path"], lines[0]["who"]) == ("a/b", "{1}")


def test_an_error_is_one_and_on_one_line() -> None:
    with logged() as lines:
        failed("state not saved", OSError("no space\nleft"), round=3)
    (got,) = lines
    assert (got["level"], got["error"], got["round"]) == ("error", "OSError: no space\nleft", 3)


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs("text")
    event("trust refreshed", round=3, together=True)
    printed = capsys.readouterr()
    assert printed.err.endswith("trust refreshed round=3 together=True\n")
    assert printed.out == "", "standard output is for answers"


def test_asked_twice_it_is_written_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    show_logs("json", first)
    show_logs("text", second)
    event("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)


def test_events_that_a_neighbour_causes_are_logged_seldom() -> None:
    now = 0.0
    seldom = Seldom(10.0, lambda: now)
    with logged() as lines:
        for name in ("b", "b", "c", "b"):
            seldom.event("it rains", neighbour=name)
        now = 10.0
        seldom.event("it rains", neighbour="b")
    assert [(line["neighbour"], line.get("untold")) for line in lines] == [("b", None), ("c", None), ("b", 2)]
