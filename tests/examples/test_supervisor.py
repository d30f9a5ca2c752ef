"""Node processes: started, asked, frozen, killed and ended, all by the ids that were started."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fleets import gone, stands_still, wait_until

from examples.fleet_demo.supervisor import LOG, Fleet, FleetError, free_ports
from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.init import init_node

X = np.zeros((2, 8, 8), dtype=np.uint8)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of one node that knows nobody, and has not been started."""
    listen, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    init_node(tmp_path / "solo", "solo", None, [], listen, http, example=0)
    with Fleet({"solo": tmp_path / "solo"}) as made:
        yield made


def until_it_answers(fleet: Fleet) -> None:
    def answers() -> bool:
        fleet.check()
        return fleet.statuses()["solo"] is not None

    wait_until(answers, 240, lambda: fleet.log_tail("solo"), every=0.1)


def test_a_node_from_start_to_stop(fleet: Fleet) -> None:
    first = fleet.start("solo")
    until_it_answers(fleet)
    assert fleet.alive == {"solo"}
    with pytest.raises(LNTrustError, match="runs already"):
        fleet.start("solo")
    assert len(fleet.predict("solo", X)["label"]) == 2
    fleet.freeze("solo")
    wait_until(lambda: stands_still(first), every=0.002)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(fleet.predict, "solo", X)
        with pytest.raises(TimeoutError):
            asked.result(1.0)
        fleet.thaw("solo")
        assert asked.result(30)["label"]
    fleet.kill("solo")
    assert gone(first)
    assert fleet.alive == set()
    fleet.check()  # it was meant to
    with pytest.raises(LNTrustError, match="no answer"):
        fleet.status("solo")
    second = fleet.start("solo")
    until_it_answers(fleet)
    fleet.freeze("solo")  # it is thawed to be told, and hears it
    assert fleet.stop("solo") == 0
    assert gone(second)
    assert fleet.ids == [first, second]
    assert (fleet.folders["solo"] / "state" / "node.safetensors").is_file()


def test_who_dies_is_named_with_the_end_of_its_log(fleet: Fleet) -> None:
    (fleet.folders["solo"] / "data.npz").unlink()
    fleet.start("solo")
    with pytest.raises(FleetError, match=r"solo: ended by itself with code 2.*\n(.*\n)*.*data\.npz"):
        until_it_answers(fleet)


def test_an_error_leaves_no_process(fleet: Fleet) -> None:
    with pytest.raises(ZeroDivisionError), fleet:
        assert fleet.start("solo") / 0
    assert len(fleet.ids) == 1
    assert all(map(gone, fleet.ids))


def test_a_frozen_one_is_ended_all_the_same(fleet: Fleet) -> None:
    pid = fleet.start("solo")
    fleet.freeze("solo")
    assert fleet.alive == {"solo"}
    assert fleet.stop_all(0.01)["solo"] < 0  # still starting: it ends by a signal, and saves nothing
    assert gone(pid)


def test_names_are_checked(fleet: Fleet) -> None:
    for action in (fleet.start, fleet.kill, fleet.freeze, fleet.thaw, fleet.stop, fleet.status):
        with pytest.raises(LNTrustError, match="nobody: is none of this fleet; there are solo"):
            action("nobody")
    for action in (fleet.kill, fleet.freeze, fleet.thaw, fleet.stop):
        with pytest.raises(LNTrustError, match="solo: does not run"):
            action("solo")
    assert fleet.log_tail("solo") == ""
    (fleet.folders["solo"] / LOG).write_text("a\nb\nc\n", "utf-8")
    assert fleet.log_tail("solo", 2) == "b\nc"


def test_ports_are_free_and_no_outgoing_connection_takes_them() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768
