"""A node's status as tables for people."""

from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text


def shown(status: dict[str, Any]) -> Iterator[Table | Text]:
    """A line about the node, a table of its neighbours, a line about what has passed."""
    yield Text(_headline(status))
    if status["error"]:
        yield Text(f"training fails, and is tried again: {status['error']}", style="red")
    heads = ("there", "trust", "probed", "breaker", "version", "heard", "round trip")
    table = Table(Column("neighbour", no_wrap=True), *(Column(head, overflow="fold") for head in heads))
    for name, each in status["neighbours"].items():
        table.add_row(
            escape(name),
            "yes" if each["present"] else "no",
            f"{each['trust']:.3f}",
            "yes" if each["probed"] else "no",
            each["state"],
            "" if each["version"] is None else str(each["version"]),
            "never" if each["age"] is None else f"{_seconds(each['age'])} ago",
            "" if each["round_trip"] is None else f"{1000 * each['round_trip']:.1f} ms",
        )
    if status["neighbours"]:
        yield table
    for name, each in status["neighbours"].items():
        if each["refused"]:
            yield Text(f"{name} cannot be asked: {each['refused']}", style="yellow")
        if each["instances"] > 1:
            yield Text(f"{name}: {each['instances']} nodes speak under this name", style="red")
    yield Text(_passed(status))


def _headline(s: dict[str, Any]) -> str:
    own = s["trust"].get(s["name"])
    parts = [
        f"{s['name']}: {s['phase']}, round {s['round']} of {s['rounds']}, model version {s['model_version']}"
    ]
    if own is not None:
        how = "with its neighbours" if s["together"] else "alone"
        validated = s["validation"]
        parts.append(
            f"answers {how}, own weight {own:.3f}; on validation {validated['self']:.3f} by itself, "
            f"{validated['ensemble']:.3f} together"
        )
    left = s["certificate"]["seconds_left"]
    if left is not None:
        parts.append(f"certificate: {_seconds(left)} left" if left > 0 else "certificate: HAS RUN OUT")
    saved = s["saved"]
    if saved["failures"]:
        parts.append(f"state could not be saved {saved['failures']} times")
    if saved["torn"]:
        parts.append(
            f"its last state could not be read, and it began anew; that one is kept: {saved['torn']}"
        )
    return "\n".join(parts)


def _passed(s: dict[str, Any]) -> str:
    both = []
    for way in ("out", "in"):
        total = sum(s["bytes"][way].values())
        both.append(f"{way} {sum(s['queries'][way].values()):,} queries, {_bytes(total)}")
    refused = ", ".join(f"{reason} {n}" for reason, n in s["refusals"].items()) or "none"
    failed = ", ".join(f"{reason} {n}" for reason, n in s["failures"].items()) or "none"
    clients = ", ".join(f"{model} {n}" for model, n in s["clients"].items()) or "none"
    return f"{'; '.join(both)}\nrefused here: {refused}; not answered there: {failed}; clients: {clients}"


def _seconds(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
