"""Certificates that are replaced while nodes run: nobody has to be started again."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleets import SOON, Fleet, all_probed, until

from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import Renewal

SHORT = 8  # seconds


def expires(node: Node) -> datetime:
    return datetime.fromisoformat(node.status()["certificate"]["expires"])


def until_renewed(node: Node) -> None:
    until(node, lambda status: status["certificate"]["seconds_left"] > 80 * 86400)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why new certificates were not taken up."""
    records = [each for each in caplog.records if each.message == "certificates cannot be taken up"]
    return [str(each.__dict__["fields"]["error"]) for each in records]


def test_nodes_go_on_with_new_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """b's are renewed in time. Of a's only one half is, which changes nothing, and the old one runs out:
    then its door is shut, and status tells of the certificate in use, until the other half is there."""
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    folders = {name: member.folder for name, member in fleet.members.items()}
    with Node.from_file(folders["a"]) as a, Node.from_file(folders["b"]) as b:
        until(a, all_probed)
        for name in "ab":
            fleet.renew(name, SHORT / 86400)
        for node in (a, b):
            until(node, lambda status: status["certificate"]["seconds_left"] <= SHORT)
        ends = expires(a)
        fleet.renew("b")
        fleet.renew("a", files=("node.pem",))
        until_renewed(b)
        until(a, lambda _: datetime.now(UTC) > ends + timedelta(seconds=3) and bool(errors(caplog)))
        assert expires(a) == ends
        assert [node.status()["certificate"]["seconds_left"] > 0 for node in (a, b)] == [False, True]
        until(b, lambda status: not status["neighbours"]["a"]["present"])  # no link outlives it
        for node, name in ((a, "a"), (b, "b")):
            assert set(node.predict(fleet.x).weights) == {name}
        shutil.copy(tmp_path / "certificates" / "a" / "node.key", folders["a"])
        until_renewed(a)
        for node, other in ((a, "b"), (b, "a")):
            until(node, lambda status, other=other: status["neighbours"][other]["present"])  # type: ignore[misc]
        until(a, lambda _: set(a.predict(fleet.x).weights) == {"a", "b"})
        assert a.status()["certificate"]["seconds_left"] > 0
    assert errors(caplog) == [f"{folders['a']}: node.key is not the key of node.pem"]


@pytest.mark.parametrize("case", ["names nobody: no common name", "is b's, and not a's", "cannot be read"])
def test_what_does_not_fit_is_told_once_and_ends_no_looking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    fleet = Fleet.of(tmp_path, ["a", "b"])
    folder = fleet.members["a"].folder
    renewal = Renewal(folder, "a")
    renewal.take_up()
    assert not renewal.due()
    if "nobody" in case:
        now = datetime.now(UTC)
        fleet.recertify("a", now - timedelta(hours=1), now, subject=False)
    elif "b's" in case:
        shutil.copytree(fleet.members["b"].folder, folder, dirs_exist_ok=True)
    else:
        (folder / "node.key").unlink()
    assert not any(renewal.due() for _ in range(6))
    (error,) = errors(caplog)
    assert case in error
    fleet.renew("a")
    assert renewal.due()
    renewal.take_up()
    assert not renewal.due()
    renewal.try_again()
    assert renewal.due(), "they could not be used"
