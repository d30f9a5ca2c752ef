"""A status for people: a real node's, in good and in bad times."""

import io
from typing import Any

import pytest
from fleets import Fleet
from rich.console import Console

from lntrust.fleet.node import Node
from lntrust.fleet.operations.show import shown


@pytest.fixture(scope="module")
def status(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a node that has just begun; its neighbours are not there."""
    fleet = Fleet.of(tmp_path_factory.mktemp("show"), ["a", "b", "c"])
    with Node.from_file(fleet.members["a"].folder, train=False) as node:
        return node.status()


def text(status: dict[str, Any]) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=160)
    for part in shown(status):
        console.print(part)
    return stream.getvalue()


def test_at_the_beginning(status: dict[str, Any]) -> None:
    got = text(status)
    assert got.startswith(f"a: stage 1, round 0 of {status['rounds']}, model version 1\n")
    assert "certificate: 90 days left" in got
    assert "out 0 queries, 0 B; in 0 queries, 0 B" in got
    assert "refused here: none; not answered there: none; clients: none" in got
    for name in ("b", "c"):
        (row,) = [line for line in got.splitlines() if f"│ {name} " in line]
        assert row.split("│")[2].strip() == "no"
        assert "never" in row
    assert "answers" not in got, "nobody has been trusted yet"


def test_when_all_is_well(status: dict[str, Any]) -> None:
    b = {
        **status["neighbours"]["b"], "present": True, "trust": 0.25, "probed": True, "version": 9,
        "age": 7300.0, "round_trip": 0.0123,
    }  # fmt: skip
    got = text(
        {
            **status,
            "phase": "deployed",
            "together": True,
            "trust": {"a": 0.75, "b": 0.25},
            "validation": {"self": 0.5, "ensemble": 0.625},
            "neighbours": {"b": b},
            "bytes": {"out": {"query": 1_000_000, "framing": 500_000}, "in": {"reply": 999}},
            "queries": {"out": {"b": 1200}, "in": {}},
            "clients": {"ensemble": 3},
        }
    )
    assert "answers with its neighbours, own weight 0.750" in got
    assert "on validation 0.500 by itself, 0.625 together" in got
    (row,) = [line for line in got.splitlines() if "│ b " in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "b", "yes", "0.250", "yes", "closed", "9", "2 h ago", "12.3 ms",
    ]  # fmt: skip
    assert "out 1,200 queries, 1.5 MB; in 0 queries, 999 B" in got
    assert "clients: ensemble 3" in got


def test_in_bad_times(status: dict[str, Any]) -> None:
    refused = {**status["neighbours"]["b"], "refused": "classes are [bold]in another order", "state": "open"}
    got = text(
        {
            **status,
            "error": "ValueError: [red]it broke",
            "neighbours": {"b": refused},
            "certificate": {"expires": "2020-01-01T00:00:00+00:00", "seconds_left": -5.0},
            "saved": {"round": 1, "at": None, "failures": 3, "torn": "state/node.safetensors.torn-1"},
            "failures": {"silent": 7},
            "refusals": {"quota": 2, "busy": 1},
        }
    )
    assert "training fails, and is tried again: ValueError: [red]it broke" in got, "a message is no markup"
    assert "b cannot be asked: classes are [bold]in another order" in got
    assert "certificate: HAS RUN OUT" in got
    assert "state could not be saved 3 times" in got
    assert "could not be read, and it began anew; that one is kept: state/node.safetensors.torn-1" in got
    assert "refused here: quota 2, busy 1; not answered there: silent 7" in got


def test_alone(status: dict[str, Any]) -> None:
    got = text({**status, "neighbours": {}, "certificate": {"expires": None, "seconds_left": None}})
    assert "neighbour" not in got
    assert "certificate" not in got


def test_on_a_narrow_screen_names_stay_whole(status: dict[str, Any]) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    known = {"camera-at-the-north-gate": {**status["neighbours"]["b"], "age": 3000.0, "round_trip": 0.01}}
    for part in shown({**status, "neighbours": known}):
        console.print(part)
    assert "│ camera-at-the-north-gate │" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 80
    assert "…" not in stream.getvalue()
