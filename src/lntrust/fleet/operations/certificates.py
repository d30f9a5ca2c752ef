"""Certificates: a small authority that makes and renews them, and what a node checks of its own.

The authority's folder holds `ca.pem`, `ca.key`, and `fleet.json` with the nodes it has certified. Each node
has a folder in it with all that goes to the device: `node.pem`, its common name the node's name, `node.key`
and a copy of `ca.pem`. Keys can be read by their owner only; the authority's own never leaves its folder.

A certificate that is out cannot be called back: there is no list that nodes ask. Whoever is removed has to be
taken off the neighbours' lists, and its certificate runs out. So certificates are short-lived, and renewed: a
running node looks for new files again and again (`Renewal`).
"""

import hashlib
import ipaddress
import logging
import os
import re
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json, write_json, write_whole
from lntrust.fleet.logs import event

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:  # said where it is used, with what to install
    x509 = None  # type: ignore[assignment]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # a part of a key on the network, and a folder
NODE_FILES = ("node.pem", "node.key", "ca.pem")
AUTHORITY_DAYS = 3650
NODE_DAYS = 90
_SLACK = timedelta(minutes=5)  # a device's clock may be a little behind ours
_COPYING = 3  # looks in a row, before files that do not go together are no longer just being copied


@dataclass(frozen=True)
class Certified:
    """A node's certificate, as the authority remembers it."""

    name: str
    hosts: tuple[str, ...]
    expires: datetime
    removed: bool = False

    def days_left(self, now: datetime) -> float:
        return (self.expires - now) / timedelta(days=1)


class Authority:
    """Certifies nodes. `Authority.open(folder)` makes one there, if there is none yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: dict[str, dict[str, Any]] = read_json(folder / "fleet.json")["nodes"]

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        _need_extra()
        if folder.is_file():
            raise LNTrustError(f"{folder}: is a file; must be a folder, or a name for a new one")
        made = [(folder / name).is_file() for name in ("ca.pem", "ca.key", "fleet.json")]
        if any(made) and not all(made):
            raise LNTrustError(f"{folder}: ca.pem, ca.key and fleet.json belong together, and one is missing")
        if not all(made):
            _make_authority(folder)
        return cls(folder)

    def nodes(self) -> list[Certified]:
        """Every node that was ever certified, by name."""
        return [
            Certified(name, tuple(n["hosts"]), datetime.fromisoformat(n["expires"]), n["removed"])
            for name, n in sorted(self._nodes.items())
        ]

    def issue(self, name: str, hosts: Sequence[str], days: float = NODE_DAYS) -> Certified:
        """A key and a certificate for a node that is reached at these names or addresses."""
        if not NAME.fullmatch(name) or (self.folder / name).is_file():
            letters = "letters, digits, dots, dashes and underscores"
            raise LNTrustError(f"node {name!r}: a name has {letters}, and is no file's")
        if not hosts:
            raise LNTrustError(f"node {name}: needs a host name or address at which others reach it")
        known = self._nodes.get(name)
        if known and not known["removed"]:
            raise LNTrustError(f"node {name}: has a certificate; renew it, or remove the node first")
        return self._certify(name, hosts, days)

    def renew(self, name: str, days: float = NODE_DAYS) -> Certified:
        """A new key and certificate in the place of the old ones; these work until they run out."""
        return self._certify(name, self._known(name)["hosts"], days)

    def remove(self, name: str) -> None:
        """Forget a node's key, and renew no more. Its neighbours still have to take it off their lists."""
        self._write(name, {**self._known(name), "removed": True})
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _known(self, name: str) -> dict[str, Any]:
        node = self._nodes.get(name)
        if node is None or node["removed"]:
            known = ", ".join(each.name for each in self.nodes() if not each.removed) or "none yet"
            raise LNTrustError(
                f"node {name}: has no certificate from {self.folder}; those that have: {known}"
            )
        return node

    def _certify(self, name: str, hosts: Sequence[str], days: float) -> Certified:
        authority = x509.load_pem_x509_certificate((self.folder / "ca.pem").read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        expires = _now() + timedelta(seconds=round(86400 * days))
        if expires > (last := authority.not_valid_after_utc):
            raise LNTrustError(f"{days:g} days: the authority itself ends on {last:%Y-%m-%d}")
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions = (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName([_host(each) for each in hosts]), False),
            (x509.ExtendedKeyUsage(usage), False),
        )
        place = self.folder / name
        _write_key(place / "node.key", key)
        _sign(place / "node.pem", _named(name), key, expires, extensions, authority.subject, signer)
        _write_bytes(place / "ca.pem", (self.folder / "ca.pem").read_bytes())
        self._write(name, {"hosts": list(hosts), "expires": expires.isoformat(), "removed": False})
        return Certified(name, tuple(hosts), expires)

    def _write(self, name: str, node: dict[str, Any]) -> None:
        self._nodes[name] = node
        write_json(self.folder / "fleet.json", {"schema": 1, "nodes": self._nodes})


def _make_authority(folder: Path) -> None:
    """A new key, and a certificate signed with it."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), _named(f"lntrust fleet {os.urandom(4).hex()}")
    usage = {flag: flag in ("key_cert_sign", "crl_sign", "digital_signature") for flag in _USAGES}
    extensions = ((x509.BasicConstraints(ca=True, path_length=0), True), (x509.KeyUsage(**usage), True))
    _write_key(folder / "ca.key", key)
    expires = _now() + timedelta(days=AUTHORITY_DAYS)
    _sign(folder / "ca.pem", subject, key, expires, extensions, subject, key)
    write_json(folder / "fleet.json", {"schema": 1, "nodes": {}})


_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def _sign(
    path: Path, subject: Any, key: Any, expires: datetime, extensions: Any, issuer: Any, signer: Any
) -> None:
    """Write a certificate for a key. Each of its extensions comes with whether it is critical."""
    begins = _now() - _SLACK
    made = x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), begins, expires
    )
    for extension, critical in extensions:
        made = made.add_extension(extension, critical)
    _write_bytes(path, made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _named(name: str) -> Any:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _host(text: str) -> Any:
    """An address, or a host's name."""
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    if not re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*", text):
        raise LNTrustError(f"host {text!r}: neither a host name nor an address; without port")
    return x509.DNSName(text)


def _write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    write_whole(path, lambda temporary: temporary.write_bytes(data), mode)


def _write_key(path: Path, key: Any) -> None:
    """Readable by its owner only, from the first moment on."""
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_bytes(path, text, mode=0o600)


def _need_extra() -> None:
    if x509 is None:
        raise LNTrustError("certificates need the extra fleet: pip install 'lntrust[fleet]'")


# -- a node's own certificate ---------------------------------------------------------------------


class Renewal:
    """Looks again and again whether a node's files were renewed, and what keeps new ones from being used."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._used: bytes | None = None  # none: not known, or to be tried again
        self._misfits = 0  # looks in a row

    def take_up(self) -> None:
        """The files as they are now are those in use."""
        self.try_again()
        with suppress(LNTrustError):
            self._used = _digest(self._folder, self._name)

    def try_again(self) -> None:
        """They could not be used: they are due at the next look."""
        self._used = None

    def due(self) -> bool:
        """Whether there are new ones that go together. What is in their way is logged once."""
        try:
            found = _digest(self._folder, self._name)
        except LNTrustError as error:
            self._misfits += 1
            if self._misfits == _COPYING:
                note = "nothing changes until they go together"
                event("certificates cannot be taken up", level=logging.WARNING, error=str(error), note=note)
            return False
        self._misfits = 0
        return found != self._used


def _digest(folder: Path, name: str) -> bytes:
    """Of a node's three files; an error, if they do not belong together and to it, or not yet."""
    try:
        files = [(folder / each).read_bytes() for each in NODE_FILES]
    except OSError as error:
        raise LNTrustError(f"{error.filename}: cannot be read: {error.strerror}") from None
    if wrong := faults(folder):
        raise LNTrustError(f"{folder}: {', and '.join(wrong)}")
    if (owner := name_in(folder)) != name:
        raise LNTrustError(f"{folder / 'node.pem'}: is {owner}'s, and not {name}'s")
    return hashlib.sha256(b"\0".join(files)).digest()


def dates(folder: Path) -> tuple[datetime, datetime]:
    """From when until when it holds; an error if one of the node's three files is missing or broken."""
    _need_extra()
    for name in NODE_FILES:
        if not (folder / name).is_file():
            hint = "`lntrust fleet certs` makes node.pem, node.key and ca.pem"
            raise LNTrustError(f"{folder / name}: is not there; {hint}")
    made = _certificate(folder)
    return made.not_valid_before_utc, made.not_valid_after_utc


def expiry(folder: Path) -> datetime:
    return dates(folder)[1]


def name_in(folder: Path) -> str:
    """Whose certificate it is."""
    names = _certificate(folder).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        raise LNTrustError(f"{folder / 'node.pem'}: names nobody: no common name")
    return str(names[0].value)


def faults(folder: Path) -> list[str]:
    """Why a node's certificate will not do, as far as its own files tell: authority, and key."""
    made, found = _certificate(folder), []
    try:
        authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / "node.key").read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        return [f"ca.pem or node.key cannot be read: {error}"]
    try:
        made.verify_directly_issued_by(authority)
    except Exception:  # of any kind: it is not that authority's
        found.append("node.pem is not of the authority in ca.pem")
    if key.public_key() != made.public_key():
        found.append("node.key is not the key of node.pem")
    return found


def _certificate(folder: Path) -> Any:
    try:
        return x509.load_pem_x509_certificate((folder / "node.pem").read_bytes())
    except (OSError, ValueError) as error:
        raise LNTrustError(f"{folder / 'node.pem'}: not a readable certificate: {error}") from None


def out_of_reach(folder: Path, host: str) -> str | None:
    """Why who dials the host that a node listens on will not connect; none: as far as it can tell, they will.

    TLS compares the certificate with what the other side has dialled. To an address that is also a name's the
    name may be dialled: whose names are that address's, this device need not know.
    """
    names, addresses = list[str](), set[Any]()
    for extension in _certificate(folder).extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = extension.value.get_values_for_type(x509.DNSName)
            addresses = set(extension.value.get_values_for_type(x509.IPAddress))
    try:
        here = ipaddress.ip_address(host)
        fits = bool(names) or here in addresses or (here.is_unspecified and bool(addresses))
    except ValueError:
        fits = any(_is_named(host, name) for name in names)
        with suppress(OSError, ValueError):
            found = socket.getaddrinfo(host, None) if not fits else []
            fits = fits or bool({ipaddress.ip_address(each[4][0]) for each in found} & addresses)
    if fits:
        return None
    listed = ", ".join(sorted([*names, *map(str, addresses)])) or "no address"
    return f"is for {listed}, and the node listens on {host}: neighbours that dial {host} will be refused"


def _is_named(host: str, name: str) -> bool:
    """As TLS compares names: in any case of letters, and a star is one label, the first."""
    one, other = host.lower().rstrip("."), name.lower().rstrip(".")
    return one == other or (other.startswith("*.") and one.partition(".")[2] == other[2:])
