"""Downloads, from files and from a server of the test's own."""

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lntrust.core.errors import LNTrustError
from lntrust.world.data.datasets import FILES
from lntrust.world.data.download import SOURCES, Source, download

Serve = Callable[[str, bytes], str]
Refused = Callable[..., None]
LABELS = "UCI HAR Dataset/activity_labels.txt"


def tar_gz(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """The address of a file with this content, outside of tmp_path."""

    def serve(name: str, content: bytes) -> str:
        path = tmp_path_factory.mktemp("served") / name
        path.write_bytes(content)
        return path.as_uri()

    return serve


class Unreliable(BaseHTTPRequestHandler):
    """Announces more bytes than it sends, or has nothing."""

    def do_GET(self) -> None:
        if self.path == "/no.zip":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(zipped(a=b"x"))

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def unreliable(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Unreliable) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """A download that fails with this message; in the end nothing is left of any."""

    def refused(url: str | None, says: str, name: str = "cifar10", **more: str) -> None:
        with pytest.raises(LNTrustError, match=says):
            download(name, tmp_path / "raw", url, **more)

    yield refused
    assert not any(tmp_path.iterdir())


def test_every_dataset_with_files_has_a_source(refused: Refused) -> None:
    assert set(SOURCES) == {name for name, files in FILES.items() if files}
    assert all(source.url.startswith("https://") for source in SOURCES.values())
    refused(None, f"must be one of {', '.join(SOURCES)}", name="digits")


def test_tar_with_the_right_md5(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar_gz(**{"batches/a.bin": b"abc", "batches/b.txt": b"def"})
    md5 = hashlib.md5(content).hexdigest()
    monkeypatch.setitem(SOURCES, "cifar10", Source(serve("a.tar.gz", content), md5))
    seen: list[tuple[int, int]] = []
    to = tmp_path / "new" / "raw"
    assert download("cifar10", to, progress=lambda *p: seen.append(p)) == to
    assert (to / "batches" / "a.bin").read_bytes() == b"abc"
    assert seen[-1] == (len(content), len(content))
    assert list(to.parent.iterdir()) == [to]


def test_wrong_md5_keeps_nothing(serve: Serve, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "cifar10", Source(serve("a.tar.gz", tar_gz(a=b"x")), "0" * 32))
    refused(None, r"a\.tar\.gz: md5 is .* must be 0{32}")


def test_nested_zip_of_uci_har_is_unpacked(serve: Serve, tmp_path: Path) -> None:
    inner = zipped(**{LABELS: b"1 WALKING\n"})
    url = serve("har.zip", zipped(**{"UCI HAR Dataset.zip": inner, "names": b"n"}))
    to = download("uci_har", tmp_path / "raw", url)
    assert sorted(path.name for path in to.iterdir()) == ["UCI HAR Dataset", "names"]
    assert (to / LABELS).is_file()


@pytest.mark.parametrize("member", ["../x", "a/../../x", "/elsewhere"])
def test_a_member_that_escapes_is_refused(serve: Serve, refused: Refused, member: str) -> None:
    evil = zipped(good=b"1", **{member: b"2"})
    refused(serve("evil", evil), "outside")
    refused(serve("evil", zipped(**{"UCI HAR Dataset.zip": evil})), "outside", name="uci_har")
    if not member.startswith("/"):  # in a tar, that is a place below
        refused(serve("evil", tar_gz(good=b"1", **{member: b"2"})), "outside")


def test_what_is_not_a_whole_archive_is_refused(serve: Serve, refused: Refused) -> None:
    whole = tar_gz(a=bytes(range(256)) * 400)
    other_checksum = whole[:-6] + bytes([whole[-6] ^ 255]) + whole[-5:]
    for content in (b"<html>sorry</html>", b"", whole[:-20], other_checksum):
        refused(serve("a.tar.gz", content), r"/a\.tar\.gz: ")


def test_a_bad_connection_says_what_to_do(unreliable: str, refused: Refused) -> None:
    refused(f"{unreliable}/a.zip", "closed after")
    refused(f"{unreliable}/no.zip", r"/no\.zip: cannot .*Not Found.*By hand: fetch .*raw")
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}/a.zip"
    refused(url, rf"{url}: cannot be downloaded: .*By hand: fetch {url}")
    refused("nonsense", "unknown url type")


def test_an_interrupted_download_keeps_nothing(serve: Serve, tmp_path: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download("cifar10", tmp_path / "raw", serve("a.zip", zipped(a=b"x")), interrupt)
    assert not any(tmp_path.iterdir())


def test_the_target_must_be_new_or_empty(serve: Serve, tmp_path: Path) -> None:
    url, to = serve("a.zip", zipped(a=b"x")), tmp_path / "raw"
    to.mkdir()
    assert (download("cifar10", to, url) / "a").is_file()
    with pytest.raises(LNTrustError, match="already there"):
        download("cifar10", to, url)
    assert [path.name for path in to.iterdir()] == ["a"]
    with pytest.raises(LNTrustError, match="cannot be written"):
        download("cifar10", to / "a" / "below", url)
