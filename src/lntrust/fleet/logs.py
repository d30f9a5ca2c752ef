"""Structured logs: what happened, as one JSON object a line, or as text for people."""

import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

_LONGEST = 400  # characters of an error: a model's may hold all of its input
_LOG = logging.getLogger("lntrust.fleet")


def event(what: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Something happened: `what` never varies, the fields do."""
    _LOG.log(level, what, extra={"fields": fields})


def failed(what: str, error: BaseException, **fields: Any) -> None:
    """Something went wrong, and the node goes on."""
    event(what, level=logging.ERROR, error=why(error), **fields)


def why(error: BaseException) -> str:
    """Its kind and its words, as far as they are of use."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class Seldom:
    """Events that others can cause as often as they like: one in so many seconds for each of them."""

    def __init__(self, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._last: dict[tuple[str, str | None], tuple[float, int]] = {}  # when logged, how often not since
        self._lock = threading.Lock()

    def event(self, what: str, *, level: int = logging.WARNING, **fields: Any) -> None:
        now, key = self._clock(), (what, fields.get("neighbour"))
        with self._lock:
            at, left_out = self._last.get(key, (-math.inf, 0))
            due = now - at >= self._seconds
            self._last[key] = (now, 0) if due else (at, left_out + 1)
        if due:
            event(what, level=level, **fields, **({"untold": left_out} if left_out else {}))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": when, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = " ".join(f"{k}={v}" for k, v in getattr(record, "fields", {}).items())
        return f"{when} {record.getMessage()} {fields}".replace("\n", " ")


def show_logs(how: Literal["json", "text"], stream: TextIO | None = None) -> None:
    """From now on, on standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if how == "json" else _Text())
    _LOG.handlers[:] = [handler]
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
