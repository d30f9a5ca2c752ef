"""A node's status as tables for people."""

from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from lntrust.core.text import age_text, bytes_text


def shown(status: dict[str, Any]) -> Iterator[Table | Text]:
    """A line about the node, a table of its neighbours, a line about what has passed."""
    yield Text("\n".join(_about(status)))
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
            "never" if each["age"] is None else f"{age_text(each['age'])} ago",
            "" if each["round_trip"] is None else f"{1000 * each['round_trip']:.1f} ms",
        )
    if status["neighbours"]:
        yield table
    for name, each in status["neighbours"].items():
        if each["refused"]:
            yield Text(f"{name} cannot be asked: {each['refused']}", style="yellow")
        if each["instances"] > 1:
            yield Text(f"{name}: {each['instances']} nodes speak under this name", style="red")
    yield Text(_traffic(status))


def _about(s: dict[str, Any]) -> Iterator[str]:
    training = f"{s['phase']}, round {s['round']} of {s['rounds']}"
    yield f"{s['name']}: {training}, model version {s['model_version']}"
    own, validated = s["trust"].get(s["name"]), s["validation"]
    if own is not None:
        how = "with its neighbours" if s["together"] else "alone"
        yield (
            f"answers {how}, own weight {own:.3f}; on validation {validated['self']:.3f} by itself, "
            f"{validated['ensemble']:.3f} together"
        )
    left, saved = s["certificate"]["seconds_left"], s["saved"]
    if left is not None:
        yield f"certificate: {age_text(left)} left" if left > 0 else "certificate: HAS RUN OUT"
    if saved["failures"]:
        yield f"state could not be saved {saved['failures']} times"
    if saved["torn"]:
        yield f"its last state could not be read, and it began anew; that one is kept: {saved['torn']}"


def _traffic(s: dict[str, Any]) -> str:
    def listed(field: str) -> str:
        return ", ".join(f"{what} {n}" for what, n in s[field].items()) or "none"

    passed = "; ".join(
        f"{way} {sum(s['queries'][way].values()):,} queries, {bytes_text(sum(s['bytes'][way].values()))}"
        for way in ("out", "in")
    )
    there = f"refused here: {listed('refusals')}; not answered there: {listed('failures')}"
    return f"{passed}\n{there}; clients: {listed('clients')}"
