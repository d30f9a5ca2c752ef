"""Certificates: a small authority that makes and renews them, and what a node checks of its own.

The authority's folder holds `ca.pem`, `ca.key`, and `fleet.json` with the nodes it has certified. Each node
has a folder in it with all that goes to the device: `node.pem`, its common name the node's name, `node.key`
and a copy of `ca.pem`. Keys can be read by their owner only; the authority's own never leaves its folder.

A certificate that is out cannot be called back: there is no list that nodes ask. Whoever is removed has to be
taken off the neighbours' lists, and its certificate runs out. So certificates are short-lived, and renewed: a
running node looks for new files again and again (`Renewal`).
"""

import ipaddress
import logging
import os
import re
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json, write_bytes, write_json
from lntrust.fleet import need_extra
from lntrust.fleet.logs import event

with suppress(ImportError):  # `need_extra` says what to install
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # a part of a key on the network, and a folder
NODE_FILES = ("node.pem", "node.key", "ca.pem")
AUTHORITY_DAYS = 3650
NODE_DAYS = 90
_SLACK = timedelta(minutes=5)  # a device's clock may be a little behind ours
_COPYING = 3  # looks in a row, before files that do not go together are no longer just being copied


class Certified(BaseModel):
    """A node's certificate, as the authority remembers it."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(exclude=True)  # fleet.json has it as a key
    hosts: tuple[str, ...]
    expires: datetime
    removed: bool = False


class Authority:
    """Certifies nodes. `Authority.open(folder)` makes one there, if there is none yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        nodes = read_json(folder / "fleet.json")["nodes"]
        self._nodes = {name: Certified(name=name, **each) for name, each in nodes.items()}

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        need_extra()
        if folder.is_file():
            raise LNTrustError(f"{folder}: is a file; must be a folder, or a name for a new one")
        made = [(folder / name).is_file() for name in ("ca.pem", "ca.key", "fleet.json")]
        if any(made) and not all(made):
            raise LNTrustError(f"{folder}: ca.pem, ca.key and fleet.json belong together, and one is missing")
        if not all(made):
            # Signatures, certificates and lists of those that were called back, and nothing else.
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            extensions = ((x509.BasicConstraints(ca=True, path_length=0), True), (usage, True))
            expires = _now() + timedelta(days=AUTHORITY_DAYS)
            _make(folder / "ca", f"lntrust fleet {os.urandom(4).hex()}", expires, extensions)
            write_json(folder / "fleet.json", {"schema": 1, "nodes": {}})
        return cls(folder)

    def nodes(self) -> list[Certified]:
        """Every node that was ever certified, by name."""
        return sorted(self._nodes.values(), key=lambda each: each.name)

    def issue(self, name: str, hosts: Sequence[str], days: float = NODE_DAYS) -> Certified:
        """A key and a certificate for a node that is reached at these names or addresses."""
        if not NAME.fullmatch(name) or (self.folder / name).is_file():
            letters = "letters, digits, dots, dashes and underscores"
            raise LNTrustError(f"node {name!r}: a name has {letters}, and is no file's")
        if not hosts:
            raise LNTrustError(f"node {name}: needs a host name or address at which others reach it")
        if name in self._nodes and not self._nodes[name].removed:
            raise LNTrustError(f"node {name}: has a certificate; renew it, or remove the node first")
        return self._certify(name, hosts, days)

    def renew(self, name: str, days: float = NODE_DAYS) -> Certified:
        """A new key and certificate in the place of the old ones; these work until they run out."""
        return self._certify(name, self._known(name).hosts, days)

    def remove(self, name: str) -> None:
        """Forget a node's key, and renew no more. Its neighbours still have to take it off their lists."""
        self._remember(self._known(name).model_copy(update={"removed": True}))
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _known(self, name: str) -> Certified:
        living = {each.name: each for each in self.nodes() if not each.removed}
        if name not in living:
            known = f"those that have: {', '.join(living) or 'none yet'}"
            raise LNTrustError(f"node {name}: has no certificate from {self.folder}; {known}")
        return living[name]

    def _certify(self, name: str, hosts: Sequence[str], days: float) -> Certified:
        authority = (self.folder / "ca.pem").read_bytes()
        signed_by = x509.load_pem_x509_certificate(authority)
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        expires = _now() + timedelta(seconds=round(86400 * days))
        if expires > (last := signed_by.not_valid_after_utc):
            raise LNTrustError(f"{days:g} days: the authority itself ends on {last:%Y-%m-%d}")
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions = (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName([_host(each) for each in hosts]), False),
            (x509.ExtendedKeyUsage(usage), False),
        )
        _make(self.folder / name / "node", name, expires, extensions, (signed_by.subject, signer))
        write_bytes(self.folder / name / "ca.pem", authority)
        made = Certified(name=name, hosts=tuple(hosts), expires=expires)
        self._remember(made)
        return made

    def _remember(self, node: Certified) -> None:
        self._nodes[node.name] = node
        nodes = {name: each.model_dump(mode="json") for name, each in self._nodes.items()}
        write_json(self.folder / "fleet.json", {"schema": 1, "nodes": nodes})


def _make(path: Path, name: str, expires: datetime, extensions: Any, signed_by: Any = None) -> None:
    """Write a new key, `path`.key, and its certificate, `path`.pem. Who signs: its name, and its key.

    Each of the extensions comes with whether it is critical.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = signed_by or (subject, key)
    made = x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), _now() - _SLACK, expires
    )
    for extension, critical in extensions:
        made = made.add_extension(extension, critical)
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_bytes(path.with_name(f"{path.name}.key"), key.private_bytes(pem, *plain), mode=0o600)
    write_bytes(path.with_name(f"{path.name}.pem"), made.sign(signer, hashes.SHA256()).public_bytes(pem))


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _host(text: str) -> Any:
    """An address, or a host's name."""
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    if not re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*", text):
        raise LNTrustError(f"host {text!r}: neither a host name nor an address; without port")
    return x509.DNSName(text)


# -- a node's own certificate ---------------------------------------------------------------------


class NodeCertificate:
    """A node's three files as they are now; an error, if one is missing, or its certificate is none."""

    def __init__(self, folder: Path) -> None:
        need_extra()
        path = folder / "node.pem"
        try:
            self.files = [(folder / name).read_bytes() for name in NODE_FILES]
            self._made = x509.load_pem_x509_certificate(self.files[0])
        except OSError as error:
            hint = f"`lntrust fleet certs` makes {', '.join(NODE_FILES)}"
            raise LNTrustError(f"{error.filename}: cannot be read: {error.strerror}; {hint}") from None
        except ValueError as error:
            raise LNTrustError(f"{path}: not a readable certificate: {error}") from None
        names = self._made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names:
            raise LNTrustError(f"{path}: names nobody: no common name")
        self.name = str(names[0].value)
        self.begins, self.expires = self._made.not_valid_before_utc, self._made.not_valid_after_utc

    def faults(self, name: str) -> list[str]:
        """Why it will not do for a node of this name, as far as the files tell: name, key, and authority."""
        _, key, authority = self.files
        found = [] if self.name == name else [f"node.pem is {self.name}'s, and not {name}'s"]
        try:
            signed_by = x509.load_pem_x509_certificate(authority)
            own = serialization.load_pem_private_key(key, None).public_key()
        except Exception as error:  # of many kinds: what is no key, or of a kind that nobody knows
            return [*found, f"ca.pem or node.key cannot be read: {error}"]
        if own != self._made.public_key():
            found.append("node.key is not the key of node.pem")
        try:
            self._made.verify_directly_issued_by(signed_by)
        except Exception:  # of any kind: it is not that authority's
            found.append("node.pem is not of the authority in ca.pem")
        return found

    def out_of_reach(self, host: str) -> str | None:
        """Why who dials the host that a node listens on will not connect; none, as far as it can tell.

        TLS compares the certificate with what the other side has dialled. To an address that is also a name's
        the name may be dialled: whose names are that address's, this device need not know.
        """
        names, addresses = list[str](), set[Any]()
        for extension in self._made.extensions:
            if isinstance(extension.value, x509.SubjectAlternativeName):
                names = extension.value.get_values_for_type(x509.DNSName)
                addresses = set(extension.value.get_values_for_type(x509.IPAddress))
        try:
            here = ipaddress.ip_address(host)
            fits = bool(names) or here in addresses or (here.is_unspecified and bool(addresses))
        except ValueError:  # names in any case of letters; a star is one label, the first
            dialled = host.lower().rstrip(".")
            known = {name.lower().rstrip(".") for name in names}
            fits = not known.isdisjoint((dialled, f"*.{dialled.partition('.')[2]}"))
            with suppress(OSError, ValueError):
                found = socket.getaddrinfo(host, None) if not fits else []
                fits = fits or any(ipaddress.ip_address(each[4][0]) in addresses for each in found)
        listed = ", ".join(sorted([*names, *map(str, addresses)])) or "no address"
        far = f"is for {listed}, and the node listens on {host}: neighbours that dial {host} will be refused"
        return None if fits else far


class Renewal:
    """Looks again and again whether a node's files were renewed, and what keeps new ones from being used."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._used: list[bytes] | None = None  # none: not known, or to be tried again
        self._misfits = 0  # looks in a row

    def take_up(self) -> None:
        """The files as they are now are those in use."""
        self.try_again()
        with suppress(LNTrustError):
            self._used = self._found()

    def try_again(self) -> None:
        """They could not be used: they are due at the next look."""
        self._used = None

    @property
    def fits(self) -> bool:
        """Whether the files went together at the last look."""
        return self._misfits == 0

    def due(self) -> bool:
        """Whether there are new ones that go together. What is in their way is logged once."""
        try:
            found = self._found()
        except LNTrustError as error:
            self._misfits += 1
            if self._misfits == _COPYING:
                note = "nothing changes until they go together"
                event("certificates cannot be taken up", level=logging.WARNING, error=str(error), note=note)
            return False
        self._misfits = 0
        return found != self._used

    def _found(self) -> list[bytes]:
        """The node's three files; an error, if they do not belong together and to it, or not yet."""
        own = NodeCertificate(self._folder)
        if wrong := own.faults(self._name):
            raise LNTrustError(f"{self._folder}: {', and '.join(wrong)}")
        return own.files
