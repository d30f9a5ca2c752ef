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


def text(status: dict[str, Any], width: int = 160) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
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


WELL: dict[str, Any] = {
    "phase": "deployed", "together": True, "trust": {"a": 0.75, "b": 0.25},
    "validation": {"self": 0.5, "ensemble": 0.625}, "clients": {"ensemble": 3},
    "bytes": {"out": {"query": 1_000_000, "framing": 500_000}, "in": {"reply": 999}},
    "queries": {"out": {"b": 1200}, "in": {}},
}  # fmt: skip
ILL: dict[str, Any] = {
    "error": "ValueError: [red]it broke",
    "certificate": {"expires": "2020-01-01T00:00:00+00:00", "seconds_left": -5.0},
    "saved": {"round": 1, "at": None, "failures": 3, "torn": "state/node.safetensors.torn-1"},
    "failures": {"silent": 7}, "refusals": {"quota": 2, "busy": 1},
}  # fmt: skip
HEARD = {"present": True, "trust": 0.25, "probed": True, "version": 9, "age": 7300.0, "round_trip": 0.0123}
REFUSED = {"refused": "classes are [bold]in another order", "state": "open", "instances": 2}


@pytest.mark.parametrize(
    ("changes", "b", "words"),
    [
        (WELL, HEARD, [
            "answers with its neighbours, own weight 0.750", "on validation 0.500 by itself, 0.625 together",
            "out 1,200 queries, 1.5 MB; in 0 queries, 999 B", "clients: ensemble 3",
            "b yes 0.250 yes closed 9 2 h ago 12.3 ms",
        ]),
        (ILL, REFUSED, [
            "training fails, and is tried again: ValueError: [red]it broke",
            "b cannot be asked: classes are [bold]in another order", "b: 2 nodes speak under this name",
            "certificate: HAS RUN OUT", "state could not be saved 3 times",
            "could not be read, and it began anew; that one is kept: state/node.safetensors.torn-1",
            "refused here: quota 2, busy 1; not answered there: silent 7",
        ]),
    ],
)  # fmt: skip
def test_in_good_and_bad_times(
    status: dict[str, Any], changes: dict[str, Any], b: dict[str, Any], words: list[str]
) -> None:
    got = text({**status, **changes, "neighbours": {"b": {**status["neighbours"]["b"], **b}}})
    plain = " ".join(got.replace("│", " ").split())
    assert [each for each in words if each not in plain] == []


def test_alone(status: dict[str, Any]) -> None:
    got = text({**status, "neighbours": {}, "certificate": {"expires": None, "seconds_left": None}})
    assert [word for word in ("neighbour", "certificate") if word in got] == []


def test_on_a_narrow_screen_names_stay_whole(status: dict[str, Any]) -> None:
    known = {"camera-at-the-north-gate": {**status["neighbours"]["b"], "age": 3000.0, "round_trip": 0.01}}
    got = text({**status, "neighbours": known}, 80)
    assert "│ camera-at-the-north-gate │" in got
    assert max(map(len, got.splitlines())) <= 80
    assert "…" not in got
