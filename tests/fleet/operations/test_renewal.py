"""Certificates that are replaced while nodes run: nobody has to be started again."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from fleets import SOON, Fleet, all_probed, until

from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import Authority

SECONDS = 30  # for which the first certificates hold: nodes have to meet in that time
FILES = ("node.pem", "node.key", "ca.pem")


def short_lived(fleet: Fleet, name: str, ends: datetime, subject: x509.Name | None = None) -> None:
    """The node's own key and name, or another, certified by its own authority, but not for long."""
    folder, authority = fleet.members[name].folder, fleet.root / "certificates"
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    old = x509.load_pem_x509_certificate((folder / "node.pem").read_bytes())
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject if subject is None else subject)
        .issuer_name(ca.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(hours=1))
        .not_valid_after(ends)
    )
    for extension in old.extensions:
        made = made.add_extension(extension.value, extension.critical)
    pem = made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]
    (folder / "node.pem").write_bytes(pem)


def renewed(fleet: Fleet, name: str) -> None:
    Authority(fleet.root / "certificates").renew(name)
    for file in FILES:
        shutil.copy(fleet.root / "certificates" / name / file, fleet.members[name].folder / file)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Fleet, Node, Node, datetime]]:
    """Two nodes that have met, with certificates that run out at the same time, soon."""
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=SECONDS)
    for name in "ab":
        short_lived(fleet, name, ends)
    with Node.from_file(fleet.members["a"].folder) as a, Node.from_file(fleet.members["b"].folder) as b:
        until(a, all_probed, SECONDS)
        yield fleet, a, b, ends


def test_nodes_go_on_with_renewed_certificates(running: tuple[Fleet, Node, Node, datetime]) -> None:
    """All of them have run out, as when all are made on one day."""
    fleet, a, b, ends = running
    for name in "ab":
        renewed(fleet, name)
    for node in (a, b):
        until(node, lambda status: status["certificate"]["seconds_left"] > 86400 * 80)
    until(a, lambda _: datetime.now(UTC) > ends + timedelta(seconds=3))
    for node, other in ((a, "b"), (b, "a")):
        until(node, lambda status, other=other: status["neighbours"][other]["present"])  # type: ignore[misc]
        assert not node.expired
    until(a, lambda _: set(a.predict(fleet.x).weights) == {"a", "b"})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why new certificates were not taken up."""
    records = [each for each in caplog.records if each.message == "certificates cannot be taken up"]
    return [str(each.__dict__["fields"]["error"]) for each in records]


def test_half_a_renewal_is_waited_for(
    running: tuple[Fleet, Node, Node, datetime], caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate without its key changes nothing until that is there, and others go on with the node.

    If it does not come soon, the log says what is missing, once.
    """
    fleet, a, b, ends = running
    Authority(fleet.root / "certificates").renew("a")
    source, folder = fleet.root / "certificates" / "a", fleet.members["a"].folder
    shutil.copy(source / "node.pem", folder / "node.pem")
    renewed(fleet, "b")  # it is b that shows when enough time has passed
    until(b, lambda status: status["certificate"]["seconds_left"] > 86400 * 80)
    assert a.status()["certificate"]["expires"] == ends.isoformat()
    until(a, lambda _: bool(warnings(caplog)))
    shutil.copy(source / "node.key", folder / "node.key")
    until(a, lambda status: status["certificate"]["seconds_left"] > 86400 * 80)
    until(b, lambda status: status["neighbours"]["a"]["present"])
    assert warnings(caplog) == [f"{folder}: node.key is not the key of node.pem"]


def test_what_status_says_of_a_certificate_is_of_the_one_in_use(tmp_path: Path) -> None:
    """A new one without its key, and the old one has run out: the door is shut, until the key is there."""
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    short_lived(fleet, "a", ends)
    source, folder = fleet.root / "certificates" / "a", fleet.members["a"].folder
    with Node.from_file(folder) as a, Node.from_file(fleet.members["b"].folder) as b:
        Authority(fleet.root / "certificates").renew("a")
        shutil.copy(source / "node.pem", folder / "node.pem")
        until(a, lambda _: datetime.now(UTC) > ends + timedelta(seconds=5))
        assert a.status()["certificate"]["expires"] == ends.isoformat()
        assert a.expired
        shutil.copy(source / "node.key", folder / "node.key")
        until(a, lambda status: status["certificate"]["seconds_left"] > 86400 * 80)
        until(b, lambda status: status["neighbours"]["a"]["present"])


def test_a_certificate_that_names_nobody_ends_no_looking(
    running: tuple[Fleet, Node, Node, datetime], caplog: pytest.LogCaptureFixture
) -> None:
    fleet, a, _, ends = running
    short_lived(fleet, "a", ends, x509.Name([]))
    until(a, lambda _: bool(warnings(caplog)))
    renewed(fleet, "a")
    until(a, lambda status: status["certificate"]["seconds_left"] > 86400 * 80)
    assert warnings(caplog) == [f"{fleet.members['a'].folder / 'node.pem'}: names nobody: no common name"]
