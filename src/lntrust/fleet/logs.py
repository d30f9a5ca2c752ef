"""Structured logs: what happened, as one JSON object a line, or as text for people."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

_LOG = logging.getLogger("lntrust.fleet")


def event(what: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Something happened: `what` never varies, the fields do."""
    _LOG.log(level, what, extra={"fields": fields})


def failed(what: str, error: BaseException, **fields: Any) -> None:
    """Something went wrong, and the node goes on."""
    event(what, level=logging.ERROR, error=f"{type(error).__name__}: {error}", **fields)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": when, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = getattr(record, "fields", {})
        return f"{when} {record.getMessage()} " + " ".join(f"{k}={v}" for k, v in fields.items())


def show_logs(how: Literal["json", "text"], stream: TextIO | None = None) -> None:
    """From now on, on standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if how == "json" else _Text())
    _LOG.handlers[:] = [handler]
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
