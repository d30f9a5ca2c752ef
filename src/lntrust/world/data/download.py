"""Raw datasets from where their authors publish them.

A download either ends as a complete folder or leaves nothing: the archive is fetched and unpacked
in a temporary folder beside the target, on the same disk, and the finished folder is renamed into
place. So a folder that is there is whole, and a later step need not wonder.
"""

import gzip
import hashlib
import http.client
import lzma
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lntrust.core.errors import LNTrustError

Progress = Callable[[int, int], None]  # bytes so far, bytes in all (0: not known)


@dataclass(frozen=True)
class Source:
    """Where one dataset is published. `nested` is an archive inside the archive."""

    url: str
    md5: str | None
    nested: str | None = None


_CIFAR = "https://www.cs.toronto.edu/~kriz"
_ZENODO = "https://zenodo.org/records/7711810/files"
_UCI = "https://archive.ics.uci.edu/static/public/240"
SOURCES: dict[str, Source] = {
    "cifar10": Source(f"{_CIFAR}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": Source(f"{_CIFAR}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    "eurosat": Source(f"{_ZENODO}/EuroSAT_RGB.zip", "f46e308c4d50d4bf32fedad2d3d62f3b"),
    # Its publisher gives no checksum.
    "uci_har": Source(
        f"{_UCI}/human+activity+recognition+using+smartphones.zip", None, nested="UCI HAR Dataset.zip"
    ),
}

# What a damaged archive raises, by way of its format; RuntimeError: an encrypted zip.
_DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError
)  # fmt: skip
_CHUNK = 1 << 20
_TIMEOUT = 60.0  # seconds without a byte


def download(name: str, to: Path, url: str | None = None, progress: Progress | None = None) -> Path:
    """Fetch a raw dataset and unpack it as the folder `to`, which must be new or empty.

    A mirror given as `url` may pack the same files differently, so the known checksum is asked of
    the known address only.
    """
    if name not in SOURCES:
        raise LNTrustError(f"dataset {name!r}: nothing to download; must be one of {', '.join(SOURCES)}")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):  # never mixed with what is there
        raise LNTrustError(f"{to}: is already there; name a new folder, or remove it to download again")
    source = SOURCES[name]
    address = url or source.url
    expected = source.md5 if url is None else None
    by_hand = f"By hand: fetch {address} and unpack it into {to}; or name a mirror of it with --url."
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as scratch:
            archive, folder = Path(scratch) / "archive", Path(scratch) / "unpacked"
            digest = _fetch(address, archive, by_hand, progress)
            if expected is not None and digest != expected:
                raise LNTrustError(
                    f"{address}: md5 is {digest}, must be {expected}: the file is damaged or not "
                    f"the one expected; nothing was kept. {by_hand}"
                )
            folder.mkdir()
            _unpack(archive, folder, address)
            if source.nested is not None and (inner := folder / source.nested).is_file():
                _unpack(inner, folder, f"{address}: {source.nested}")
                inner.unlink()
            folder.replace(to)  # also where an empty folder is
    except OSError as error:  # the disk: what the network raises was turned into ours above
        raise LNTrustError(f"{to}: cannot be written: {error}") from None
    return to


def _fetch(url: str, path: Path, advice: str, progress: Progress | None) -> str:
    """Stream a URL to a file; the md5 of what came."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "lntrust"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response, path.open("wb") as file:
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
        if done < total:  # a connection that closes early reads like a file that ends
            raise OSError(f"the connection closed after {done} of {total} bytes")
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise LNTrustError(f"{url}: cannot be downloaded: {reason}. {advice}") from None
    return digest.hexdigest()


def _unpack(archive: Path, folder: Path, origin: str) -> None:
    """Unpack a tar or zip, told apart by content: a mirror's URL need not end in a suffix."""
    try:
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
                # A tar ends before the checksum of what compresses it: read on, to have it checked.
                while tar.fileobj is not None and tar.fileobj.read(_CHUNK):
                    pass
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                for member in file.namelist():  # `zipfile` would quietly rewrite one that escapes
                    if not (folder / member).resolve().is_relative_to(folder.resolve()):
                        raise LNTrustError(f"{origin}: member {member!r} lies outside the folder")
                file.extractall(folder)
        else:
            raise LNTrustError(f"{origin}: is neither a tar nor a zip archive")
    except _DAMAGED as error:
        raise LNTrustError(f"{origin}: cannot be unpacked: {error}") from None
