"""The certificate authority. What its certificates do between nodes: peers/test_transport.py."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority, NodeCertificate


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.open(tmp_path / "fleet")


def certificate(authority: Authority, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((authority.folder / name / "node.pem").read_bytes())


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


def test_keys_are_their_owners_and_stay_when_it_is_opened_again(authority: Authority) -> None:
    authority.issue("a", ["localhost"])
    for key in (authority.folder / "ca.key", authority.folder / "a" / "node.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not (authority.folder / "a" / "ca.key").exists()
    before = (authority.folder / "ca.pem").read_bytes()
    assert Authority.open(authority.folder).nodes() == authority.nodes()
    assert (authority.folder / "ca.pem").read_bytes() == before


def test_renewal(authority: Authority) -> None:
    authority.issue("a", ["127.0.0.1"], days=1)
    authority.issue("b", ["127.0.0.1"])
    old, key = certificate(authority, "a"), (authority.folder / "a" / "node.key").read_bytes()
    authority.renew("a", days=60)
    new = certificate(authority, "a")
    assert new.serial_number != old.serial_number
    assert new.not_valid_after_utc > old.not_valid_after_utc + timedelta(days=58)
    assert (authority.folder / "a" / "node.key").read_bytes() != key
    assert NodeCertificate(authority.folder / "a").faults("a") == [], "they belong together"


def test_removal(authority: Authority) -> None:
    authority.issue("a", ["localhost"])
    authority.remove("a")
    assert not (authority.folder / "a").exists()
    assert [node.removed for node in Authority.open(authority.folder).nodes()] == [True]
    with pytest.raises(LNTrustError, match="has no certificate"):
        authority.renew("a")
    authority.issue("a", ["localhost"])  # somebody who is asked to can take it in again
    assert [node.removed for node in authority.nodes()] == [False]


@pytest.mark.parametrize(
    ("name", "host", "message"),
    [
        *((name, "localhost", "letters, digits") for name in (
            "", "a/b", "..", "*", "a b", "-a", "a$", "ca.pem", "x" * 64, "ä",
        )),
        *(("a", host, "neither a host name nor an address") for host in (
            "127.0.0.1:7447", "a b", "", "tls/localhost", "-a", "*.example",
        )),
    ],
)  # fmt: skip
def test_names_and_hosts_that_are_none(authority: Authority, name: str, host: str, message: str) -> None:
    with pytest.raises(LNTrustError, match=message):
        authority.issue(name, [host])
    assert authority.nodes() == []
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
