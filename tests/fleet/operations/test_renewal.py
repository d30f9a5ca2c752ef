"""Certificates that are replaced while nodes run: nobody has to be started again."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleets import SOON, Fleet, all_probed, until

from lntrust.fleet.node import Node

SECONDS = 30  # for which the first certificates hold: nodes have to meet in that time
Running = tuple[Fleet, Node, Node]
Renew = Callable[..., None]


def expires(node: Node) -> datetime:
    return datetime.fromisoformat(node.status()["certificate"]["expires"])


def until_renewed(node: Node) -> None:
    until(node, lambda status: status["certificate"]["seconds_left"] > 86400 * 80)


def until_present(node: Node, other: str) -> None:
    until(node, lambda status: status["neighbours"][other]["present"])


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why new certificates were not taken up."""
    records = [each for each in caplog.records if each.message == "certificates cannot be taken up"]
    return [str(each.__dict__["fields"]["error"]) for each in records]


@pytest.fixture
def running(tmp_path: Path, renew: Renew) -> Iterator[Running]:
    """Two nodes that have met, with certificates that run out at about the same time, soon."""
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    for name in "ab":
        renew(fleet, name, SECONDS / 86400)
    with Node.from_file(fleet.members["a"].folder) as a, Node.from_file(fleet.members["b"].folder) as b:
        until(a, all_probed, SECONDS)
        yield fleet, a, b


def test_nodes_go_on_with_renewed_certificates(running: Running, renew: Renew) -> None:
    """All of them have run out, as when all are made on one day."""
    fleet, a, b = running
    ends = max(expires(a), expires(b))
    for name, node in (("a", a), ("b", b)):
        renew(fleet, name)
        until_renewed(node)
    until(a, lambda _: datetime.now(UTC) > ends + timedelta(seconds=3))
    for node, other in ((a, "b"), (b, "a")):
        until_present(node, other)
        assert not node.expired
    until(a, lambda _: set(a.predict(fleet.x).weights) == {"a", "b"})


def test_half_a_renewal_is_waited_for(
    running: Running, renew: Renew, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate without its key changes nothing until that is there, and others go on with the node.

    If it does not come soon, the log says what is missing, once.
    """
    fleet, a, b = running
    ends, folder = expires(a), fleet.members["a"].folder
    renew(fleet, "a", files=("node.pem",))
    renew(fleet, "b")  # it is b that shows when enough time has passed
    until_renewed(b)
    assert expires(a) == ends
    until(a, lambda _: bool(errors(caplog)))
    (folder / "node.key").write_bytes((fleet.root / "certificates" / "a" / "node.key").read_bytes())
    until_renewed(a)
    until_present(b, "a")
    assert errors(caplog) == [f"{folder}: node.key is not the key of node.pem"]


def test_what_status_says_of_a_certificate_is_of_the_one_in_use(tmp_path: Path, renew: Renew) -> None:
    """A new one without its key, and the old one has run out: the door is shut, until the key is there."""
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    renew(fleet, "a", 5 / 86400)
    folder = fleet.members["a"].folder
    with Node.from_file(folder) as a, Node.from_file(fleet.members["b"].folder) as b:
        ends = expires(a)
        renew(fleet, "a", files=("node.pem",))
        until(a, lambda _: datetime.now(UTC) > ends + timedelta(seconds=5))
        assert expires(a) == ends
        assert a.expired
        (folder / "node.key").write_bytes((fleet.root / "certificates" / "a" / "node.key").read_bytes())
        until_renewed(a)
        until_present(b, "a")


def test_a_certificate_that_names_nobody_ends_no_looking(
    running: Running, renew: Renew, recertify: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    fleet, a, _ = running
    recertify(fleet, "a", expires(a) - timedelta(hours=1), expires(a), subject=False)
    until(a, lambda _: bool(errors(caplog)))
    renew(fleet, "a")
    until_renewed(a)
    assert errors(caplog) == [f"{fleet.members['a'].folder / 'node.pem'}: names nobody: no common name"]
