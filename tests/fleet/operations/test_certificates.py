"""The certificate authority, and what its certificates are for: two nodes that know each other by name."""

import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.open(tmp_path / "fleet")


def certificate(authority: Authority, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((authority.folder / name / "node.pem").read_bytes())


def context(folder: Path, purpose: ssl.Purpose) -> ssl.SSLContext:
    """As a node has it: its own certificate, and only the authority's word for others'."""
    made = ssl.create_default_context(purpose, cafile=str(folder / "ca.pem"))
    made.load_cert_chain(folder / "node.pem", folder / "node.key")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def greeted(server: Path, client: Path) -> str:
    """The name by which a server knows the client that connects to it; raises what the client would see."""
    names: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def serve() -> None:
            try:
                raw, _ = listener.accept()
                with context(server, ssl.Purpose.CLIENT_AUTH).wrap_socket(raw, server_side=True) as link:
                    subject = link.getpeercert()["subject"]  # type: ignore[index]
                    names.append(dict(pair[0] for pair in subject)["commonName"])
                    link.sendall(b"hello")
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            raw = socket.create_connection(listener.getsockname(), timeout=10)
            with context(client, ssl.Purpose.SERVER_AUTH).wrap_socket(
                raw, server_hostname="127.0.0.1"
            ) as link:
                assert link.recv(5) in (b"hello", b"")
        finally:
            thread.join(10)
    return names[0] if names else ""


def test_two_nodes_know_each_other_by_name(authority: Authority) -> None:
    for name in ("camera-1", "camera-2"):
        authority.issue(name, ["127.0.0.1", "localhost"])
    assert greeted(authority.folder / "camera-1", authority.folder / "camera-2") == "camera-2"


def test_another_fleets_node_is_a_stranger(authority: Authority, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other")
    authority.issue("camera-1", ["127.0.0.1"])
    other.issue("camera-1", ["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError):
        greeted(other.folder / "camera-1", authority.folder / "camera-1")


def test_a_node_is_not_believed_at_another_address(authority: Authority) -> None:
    authority.issue("here", ["127.0.0.1"])
    authority.issue("elsewhere", ["192.0.2.7"])
    with pytest.raises(ssl.SSLCertVerificationError):
        greeted(authority.folder / "elsewhere", authority.folder / "here")


def test_what_a_certificate_says(authority: Authority) -> None:
    given = authority.issue("pump_3.north", ["192.0.2.7", "::1", "pump-3.example"], days=30)
    made = certificate(authority, "pump_3.north")
    assert made.subject.rfc4514_string() == "CN=pump_3.north"
    hosts = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in hosts] == ["192.0.2.7", "::1", "pump-3.example"]
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert made.not_valid_after_utc == given.expires
    assert abs(given.expires - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    assert made.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4), "a clock may be behind"


def test_keys_are_their_owners(authority: Authority) -> None:
    authority.issue("a", ["localhost"])
    for key in (authority.folder / "ca.key", authority.folder / "a" / "node.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not (authority.folder / "a" / "ca.key").exists()


def test_it_is_the_same_when_opened_again(authority: Authority) -> None:
    authority.issue("a", ["localhost"])
    before = (authority.folder / "ca.pem").read_bytes()
    again = Authority.open(authority.folder)
    assert (authority.folder / "ca.pem").read_bytes() == before
    assert again.nodes() == authority.nodes()


def test_renewal(authority: Authority) -> None:
    authority.issue("a", ["127.0.0.1"], days=1)
    authority.issue("b", ["127.0.0.1"])
    old, key = certificate(authority, "a"), (authority.folder / "a" / "node.key").read_bytes()
    authority.renew("a", days=60)
    new = certificate(authority, "a")
    assert new.serial_number != old.serial_number
    assert new.not_valid_after_utc > old.not_valid_after_utc + timedelta(days=58)
    assert (authority.folder / "a" / "node.key").read_bytes() != key
    assert greeted(authority.folder / "b", authority.folder / "a") == "a", (
        "key and certificate belong together"
    )


def test_removal(authority: Authority) -> None:
    authority.issue("a", ["localhost"])
    authority.remove("a")
    assert not (authority.folder / "a").exists()
    assert [node.removed for node in Authority.open(authority.folder).nodes()] == [True]
    with pytest.raises(LNTrustError, match="has no certificate"):
        authority.renew("a")
    authority.issue("a", ["localhost"])  # somebody who is asked to can take it in again
    assert [node.removed for node in authority.nodes()] == [False]


@pytest.mark.parametrize("name", ["", "a/b", "..", "*", "a b", "-a", "a$", "ca.pem", "x" * 64, "ä"])
def test_names_that_no_key_on_the_network_can_have(authority: Authority, name: str) -> None:
    with pytest.raises(LNTrustError, match="letters, digits"):
        authority.issue(name, ["localhost"])
    assert authority.nodes() == []


@pytest.mark.parametrize("host", ["127.0.0.1:7447", "a b", "", "tls/localhost", "-a", "*.example"])
def test_hosts_that_are_none(authority: Authority, host: str) -> None:
    with pytest.raises(LNTrustError, match="neither a host name nor an address"):
        authority.issue("a", [host])
    assert not (authority.folder / "a").exists()


def test_nothing_is_certified_twice_or_too_long(authority: Authority) -> None:
    authority.issue("a", ["localhost"])
    before = certificate(authority, "a")
    with pytest.raises(LNTrustError, match="renew it"):
        authority.issue("a", ["localhost"])
    with pytest.raises(LNTrustError, match="the authority itself ends"):
        authority.renew("a", days=4000)
    assert certificate(authority, "a") == before


def test_half_an_authority_is_none(authority: Authority) -> None:
    (authority.folder / "ca.key").unlink()
    with pytest.raises(LNTrustError, match="belong together"):
        Authority.open(authority.folder)
