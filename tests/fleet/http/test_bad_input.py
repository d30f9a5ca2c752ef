"""Inputs that no model can answer: the client is told, and nobody is blamed for it.

Nodes a and b have linear models and c a forest. Their inputs are float64, their models see float32: so a
client can send a number that is finite, and too large for every model.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import TABLES, Fleet, probed
from http_service import ask

from lntrust.fleet.peers.messages import failure_of

# Nobody is to be missed because the machine is busy.
INPUT = {"input": {**TABLES["input"], "dtype": "float64"}, "limits": {"deadline": 10.0}}
FOREST = {"model": {"kind": "forest", "scale": 0.0625}, "training": {"stage2_rounds": 4}}
HUGE = 1e300


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root: Path = tmp_path_factory.mktemp("bad_input")
    with Fleet.of(root, "abc", {"c": FOREST}, everybody=INPUT) as fleet:
        fleet.start("a", "b", "c")
        for name in "abc":
            fleet.until(name, probed(*set("abc") - {name}), 60)
        yield fleet


@pytest.fixture
def fleet(running: Fleet) -> Iterator[Fleet]:
    yield running
    print(running.logs())


def sent(fleet: Fleet, name: str, number: float, which: str = "ensemble") -> tuple[int, Any]:
    """What a client gets who asks about three inputs, one of them with this number in it."""
    x = fleet.x.astype(np.float64)
    x[1, 2, 3] = number
    entry = {"name": "input", "datatype": "FP64", "shape": [3, 8, 8], "data": x.ravel().tolist()}
    address = fleet.members[name].settings.http.listen
    return ask(address, f"/v2/models/{which}/infer", json.dumps({"inputs": [entry]}).encode())


@pytest.mark.parametrize("number", [np.nan, HUGE])
def test_nobody_is_left_alone_for_it(fleet: Fleet, number: float) -> None:
    fleet.until("a", probed("b", "c"))
    for _ in range(6):  # twice as many as open a breaker
        sent(fleet, "a", number)
    states = {name: each["state"] for name, each in fleet.status("a")["neighbours"].items()}
    assert states == {"b": "closed", "c": "closed"}
    assert set(fleet.ask("a").weights) == {"a", "b", "c"}


def test_a_model_that_fails_on_inputs_has_one_line_in_the_log(fleet: Fleet) -> None:
    """However many clients send them."""
    log = fleet.members["c"].log
    seen = len(log.read_bytes())
    for _ in range(20):
        code, answer = sent(fleet, "c", HUGE, "self")
        assert (code, answer) == (500, {"error": "internal error; the node's log says more"})

    def written() -> list[str]:
        lines = log.read_bytes()[seen:].decode().splitlines()
        return [line for line in lines if json.loads(line)["event"] == "no answer to a client"]

    fleet.wait(lambda: len(written()) == 1)
    assert len(written()[0]) < 700
    assert "ValueError: " in json.loads(written()[0])["error"]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("inputs: row 0, column 1 is nan; all must be finite", "input"),
        ("HTTP 400: input 'x': row 0 is nan", "input"),
        ("HTTP 422: no", "input"),
        ("HTTP 500: no", "refused"),
        ("HTTP 404: no", "refused"),
        ("inputs are float32[3]; must be float64[m, 8, 8]", "refused"),
        ("internal error: ValueError", "refused"),
    ],
)
def test_whose_failure_a_refusal_is(reason: str, kind: str) -> None:
    assert failure_of(reason).kind == kind
