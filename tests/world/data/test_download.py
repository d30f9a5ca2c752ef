"""Downloads, from a server of the test's own on the loopback interface."""

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lntrust.core.errors import LNTrustError
from lntrust.world.data.datasets import FILES
from lntrust.world.data.download import SOURCES, Source, download


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


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Server:
    """Serves `files` by path; `cut` paths announce more bytes than they send."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path not in outer.files:
                    self.send_error(404)
                    return
                content = outer.files[self.path]
                self.send_response(200)
                announced = len(content) + (100 if self.path in outer.cut else 0)
                self.send_header("Content-Length", str(announced))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))

    def serve(self, path: str, content: bytes) -> str:
        self.files[path] = content
        return self.url + path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    server.thread.start()
    yield server
    server.http.shutdown()
    server.thread.join()
    server.http.server_close()


def publish(monkeypatch: pytest.MonkeyPatch, source: Source, name: str = "cifar10") -> None:
    monkeypatch.setitem(SOURCES, name, source)


def test_every_dataset_with_files_has_a_source() -> None:
    assert set(SOURCES) == {name for name, files in FILES.items() if files}
    assert all(source.url.startswith("https://") for source in SOURCES.values())


def test_tar_with_the_right_md5(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar_gz(**{"batches/a.bin": b"abc", "batches/b.txt": b"def"})
    publish(monkeypatch, Source(server.serve("/a.tar.gz", content), md5(content)))
    seen: list[tuple[int, int]] = []
    to = tmp_path / "new" / "raw"
    assert download("cifar10", to, progress=lambda *p: seen.append(p)) == to
    assert (to / "batches" / "a.bin").read_bytes() == b"abc"
    assert seen[-1] == (len(content), len(content))
    assert list(to.parent.iterdir()) == [to]


def test_wrong_md5_keeps_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.serve("/a.tar.gz", tar_gz(a=b"x"))
    publish(monkeypatch, Source(url, "0" * 32))
    with pytest.raises(LNTrustError, match=r"a\.tar\.gz: md5 is .* must be 0{32}"):
        download("cifar10", tmp_path / "raw")
    assert not any(tmp_path.iterdir())


def test_own_url_is_not_asked_for_the_known_md5_but_for_a_given_one(server: Server, tmp_path: Path) -> None:
    content = zipped(a=b"x")
    url = server.serve("/mirror", content)
    assert download("cifar10", tmp_path / "one", url).is_dir()
    assert download("cifar10", tmp_path / "two", url, md5=md5(content).upper()).is_dir()
    with pytest.raises(LNTrustError, match="md5"):
        download("cifar10", tmp_path / "three", url, md5="1" * 32)


def test_nested_zip_of_uci_har_is_unpacked(server: Server, tmp_path: Path) -> None:
    inner = zipped(**{"UCI HAR Dataset/activity_labels.txt": b"1 WALKING\n"})
    url = server.serve("/har.zip", zipped(**{"UCI HAR Dataset.zip": inner, "names": b"n"}))
    to = download("uci_har", tmp_path / "raw", url)
    assert sorted(path.name for path in to.iterdir()) == ["UCI HAR Dataset", "names"]
    assert (to / "UCI HAR Dataset" / "activity_labels.txt").is_file()


@pytest.mark.parametrize("pack", [tar_gz, zipped])
@pytest.mark.parametrize("member", ["../x", "a/../../x"])
def test_a_member_that_escapes_is_refused(server: Server, tmp_path: Path, pack: object, member: str) -> None:
    assert callable(pack)
    url = server.serve("/evil", pack(**{"good": b"1", member: b"2"}))
    with pytest.raises(LNTrustError, match="outside"):
        download("cifar10", tmp_path / "raw", url)
    assert not any(tmp_path.iterdir())


def test_a_nested_member_that_escapes_is_refused(server: Server, tmp_path: Path) -> None:
    url = server.serve("/evil", zipped(**{"UCI HAR Dataset.zip": zipped(**{"../../x": b"2"})}))
    with pytest.raises(LNTrustError, match="outside"):
        download("uci_har", tmp_path / "raw", url)
    assert not any(tmp_path.iterdir())


def test_an_absolute_zip_member_is_refused(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    url = server.serve("/evil", zipped(**{str(target): b"2"}))
    with pytest.raises(LNTrustError, match="outside"):
        download("cifar10", tmp_path / "raw", url)
    assert not any(tmp_path.iterdir())


def broken_gzip() -> bytes:
    content = bytearray(tar_gz(a=bytes(range(256)) * 400))
    content[-6] ^= 255  # the checksum at the end
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [b"<html>sorry</html>", b"", tar_gz(a=b"x" * 5000)[:-20], broken_gzip()],
    ids=["page", "nothing", "cut", "checksum"],
)
def test_what_is_not_a_whole_archive_is_refused(server: Server, tmp_path: Path, content: bytes) -> None:
    url = server.serve("/a.tar.gz", content)
    with pytest.raises(LNTrustError, match=r"/a\.tar\.gz: "):
        download("cifar10", tmp_path / "raw", url)
    assert not any(tmp_path.iterdir())


def test_a_connection_that_closes_early(server: Server, tmp_path: Path) -> None:
    url = server.serve("/a.tar.gz", tar_gz(a=b"x"))
    server.cut.add("/a.tar.gz")
    with pytest.raises(LNTrustError, match="closed after"):
        download("cifar10", tmp_path / "raw", url)
    assert not any(tmp_path.iterdir())


def test_not_found_and_refused_say_what_to_do(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "raw"
    with pytest.raises(LNTrustError, match=r"/no\.zip: cannot .*Not Found.*By hand: fetch .*raw"):
        download("cifar10", to, server.url + "/no.zip")
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{closed.server_port}/a.zip"
    closed.server_close()
    with pytest.raises(LNTrustError, match=rf"{url}: cannot be downloaded: .*By hand: fetch {url}"):
        download("cifar10", to, url)
    with pytest.raises(LNTrustError, match="unknown url type"):
        download("cifar10", to, "nonsense")
    assert not any(tmp_path.iterdir())


def test_an_interrupted_download_keeps_nothing(server: Server, tmp_path: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    url = server.serve("/a.zip", zipped(a=b"x"))
    with pytest.raises(KeyboardInterrupt):
        download("cifar10", tmp_path / "raw", url, interrupt)
    assert not any(tmp_path.iterdir())


def test_the_target_must_be_new_or_empty(server: Server, tmp_path: Path) -> None:
    url = server.serve("/a.zip", zipped(a=b"x"))
    to = tmp_path / "raw"
    to.mkdir()
    assert (download("cifar10", to, url) / "a").is_file()
    with pytest.raises(LNTrustError, match="already there"):
        download("cifar10", to, url)
    assert [path.name for path in to.iterdir()] == ["a"]


def test_a_target_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    url = server.serve("/a.zip", zipped(a=b"x"))
    with pytest.raises(LNTrustError, match="cannot be written"):
        download("cifar10", tmp_path / "file" / "raw", url)


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(LNTrustError, match=f"must be one of {', '.join(SOURCES)}"):
        download("digits", tmp_path / "raw")
