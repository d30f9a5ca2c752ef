"""What tests of a node's files share."""

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
        signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
        old = x509.load_pem_x509_certificate((folder / "node.pem").read_bytes())
        whose = old.subject if subject else x509.Name([])
        made = x509.CertificateBuilder(old.issuer, whose, old.public_key(), 7, begins, ends)
        for extension in old.extensions:
            made = made.add_extension(extension.value, extension.critical)
        pem = made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]
        (folder / "node.pem").write_bytes(pem)

    return recertify
