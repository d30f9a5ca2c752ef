"""What tests of a node's files and processes share."""

import os
import shutil
from collections.abc import Callable
from datetime import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from fleets import Fleet

from lntrust.fleet.operations.certificates import NODE_FILES, Authority


@pytest.fixture
def renew() -> Callable[..., None]:
    """Renew a node's certificate, for so many days; only these files reach the device."""

    def renew(fleet: Fleet, name: str, days: float = 90, files: tuple[str, ...] = NODE_FILES) -> None:
        Authority(fleet.root / "certificates").renew(name, days)
        for file in files:
            shutil.copy(fleet.root / "certificates" / name / file, fleet.members[name].folder / file)

    return renew


@pytest.fixture
def recertify() -> Callable[..., None]:
    """A certificate that the authority would not make: for other dates, or for nobody."""

    def recertify(fleet: Fleet, name: str, begins: datetime, ends: datetime, subject: bool = True) -> None:
        folder, authority = fleet.members[name].folder, fleet.root / "certificates"
        ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
        signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
        old = x509.load_pem_x509_certificate((folder / "node.pem").read_bytes())
        whose = old.subject if subject else x509.Name([])
        made = x509.CertificateBuilder(
            ca.subject, whose, old.public_key(), x509.random_serial_number(), begins, ends
        )
        for extension in old.extensions:
            made = made.add_extension(extension.value, extension.critical)
        pem = made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]
        (folder / "node.pem").write_bytes(pem)

    return recertify


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Whether there is no process of this number."""

    def gone(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return gone
