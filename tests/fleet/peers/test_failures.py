"""Nodes that freeze, die, come back, come late: whoever is left goes on answering and learning.

Nodes a and b train; s stands: its training is over, and it looks around only when somebody comes; d is late.
"""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleets import DEPLOYED, LEARNED, Clients, Fleet, Member, Status, frozen, probed, without

from lntrust.fleet.training.state import NodeState, read_state

STANDS = {**DEPLOYED, "life": {"refresh_every": 600.0}}
OFTEN = {"life": {"save_every": 0.01}}  # so that a kill may come while it writes


def saved(member: Member) -> NodeState:
    """What a node's state on disk says; it must be whole."""
    found = read_state(member.folder / "state", member.name)
    assert found is not None
    return found.node


def goes_on_from(status: Status, was: NodeState) -> None:
    """A restarted node has lost nothing of what stood on disk."""
    assert status["round"] >= was.done
    assert status["model_version"] > was.version  # a version is never used twice
    now = {f"queries {way}": status["queries"][way] for way in ("in", "out")} | {"clients": status["clients"]}
    for what, counts in now.items():
        assert all(counts[name] >= count for name, count in was.counters[what].items()), what


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet.of(tmp_path_factory.mktemp("failures"), "absd", {"b": OFTEN, "s": STANDS}) as fleet:
        fleet.start("b")
        fleet.until("b", lambda status: status["saved"]["round"] is not None and status["round"] >= 4)
        shutil.copy(fleet.members["b"].state, fleet.root / "old")
        fleet.start("a", "s")
        for name, others in {"a": "bs", "b": "as", "s": "ab"}.items():
            fleet.until(name, probed(*others))
        fleet.until("s", lambda status: status["phase"] == "deployed")
        yield fleet


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    """With a, b and s running, and known to each other."""
    gone = [name for name in "abs" if running.members[name].process is None]  # by a test that failed
    running.start(*gone)
    running.until("a", probed("b", "s"))
    return running


def test_one_with_an_older_state_is_left_out_until_it_is_probed_again(fleet: Fleet) -> None:
    b, old = fleet.members["b"], fleet.root / "old"
    fleet.wait(lambda: fleet.weight("s", "b") > 0)
    version = fleet.status("s")["neighbours"]["b"]["version"]
    fleet.kill("b")
    shutil.copy(old, b.state)
    was = saved(b)
    fleet.start("b")
    fleet.until("s", lambda status: status["neighbours"]["b"]["present"])
    if "b" in fleet.ask("s").weights:  # then s has been quicker than we: it has probed what came back
        assert fleet.status("s")["neighbours"]["b"]["version"] < version
    fleet.wait(lambda: fleet.weight("s", "b") > 0)  # s has probed it out of turn
    goes_on_from(fleet.status("b"), was)
    fleet.trains("b")


def test_a_frozen_one_costs_its_weight_and_has_it_back_when_it_thaws(fleet: Fleet) -> None:
    with frozen(fleet.pid("b")), Clients(fleet, "a") as clients:
        fleet.until("a", without("b"))
        fleet.until("a", lambda status: not status["neighbours"]["b"]["present"])
        fleet.trains("a")
    assert "b" not in clients.answers[-1].weights
    fleet.until("a", probed("b"))
    fleet.wait(lambda: fleet.weight("a", "b") > 0)
    fleet.trains("b")


def test_killed_at_any_moment_one_is_missed_and_comes_back_from_its_state(fleet: Fleet) -> None:
    """Again and again, while it writes as often as it can; what dead writers leave does not pile up."""
    b, draw = fleet.members["b"], random.Random(5)
    for _ in range(3):
        fleet.ask("b")
        first = saved(b)
        fleet.until("b", lambda status, first=first: status["round"] > first.done)  # type: ignore[misc]
        time.sleep(draw.random() / 2)  # not a wait for something: any moment is as good
        with Clients(fleet, "a") as clients:
            fleet.kill("b")
            was = saved(b)
            assert was.done >= first.done
            fleet.until("a", without("b"))
            fleet.trains("a")
            clients.wait_for_more()
        assert "b" not in clients.answers[-1].weights
        (b.state.parent / f".{b.state.name}.left").write_bytes(b"half a state")  # as if this was the moment
        fleet.start("b")
        goes_on_from(fleet.until("b", probed("a", "s")), was)
    fleet.until("a", probed("b"))
    fleet.wait(lambda: fleet.weight("a", "b") > 0)
    fleet.trains("b")
    fleet.kill("b")
    left = {file.name for file in b.state.parent.iterdir()} - {b.state.name}
    assert len(left) <= 2, left  # of the last kill, at most: ours, and what safetensors wrote for it
    fleet.start("b")


def test_a_restarted_one_trusts_as_it_did(fleet: Fleet) -> None:
    asked, s = fleet.ask("s"), fleet.members["s"]
    before = fleet.status("s")
    fleet.wait(lambda: saved(s).counters["clients"] == before["clients"])
    fleet.kill("s")
    was = saved(s)
    fleet.start("s")
    after = fleet.status("s")
    assert after["trust"] == pytest.approx(before["trust"])
    assert after["phase"] == "deployed"
    goes_on_from(after, was)
    fleet.wait(lambda: fleet.ask("s").weights.keys() == asked.weights.keys())


def test_a_newcomer_weighs_nothing_before_it_was_probed(fleet: Fleet) -> None:
    fleet.wait(lambda: fleet.ask("a").weights.keys() == {"a", "b", "s"})  # b may have to be probed again
    assert fleet.status("s")["trust"]["d"] == 0
    fleet.start("d")

    def weighs() -> bool:
        weight = fleet.weight("a", "d")
        assert weight == 0 or fleet.status("a")["neighbours"]["d"]["probed"]
        return weight > 0

    fleet.wait(weighs)
    fleet.until("s", probed("d"))  # it had no reason to look around but this one
    fleet.until("d", probed("a", "b", "s"))


def test_half_a_fleet_dies_at_once(tmp_path: Path) -> None:
    """Nodes that learn whom to trust: it goes to those who are left."""
    with Fleet.of(tmp_path, "uvxy", everybody={"life": {"rest": 0.4}, **LEARNED}) as fleet:
        fleet.start(*"uvxy")
        for name in "uvxy":
            fleet.until(name, probed(*(other for other in "uvxy" if other != name)))
        with Clients(fleet, "u") as clients:
            fleet.kill("x", "y")
            for name in "uv":
                status = fleet.until(name, without("x", "y"))
                assert sum(status["trust"][left] for left in "uv") == pytest.approx(1)
                fleet.trains(name)
            clients.wait_for_more()
        assert set(clients.answers[-1].weights) <= {"u", "v"}
        fleet.start("x")
        fleet.until("u", probed("x"))
