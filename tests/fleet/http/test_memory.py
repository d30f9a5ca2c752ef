"""What strangers can make the door for clients hold: a hundred megabytes at most, and nobody waits for it.

The door is in a process of its own. The system tells the most memory that it ever held.
"""

import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from http_service import ask

BEARABLE = 100 << 20  # bytes
LARGEST = 16 << 20
INFER = "/v2/models/self/infer"
POST = f"POST {INFER} HTTP/1.1\r\nHost: a\r\n".encode()
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
QUESTION = {"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [2, 1], "data": [0, 7]}]}


@dataclass
class Served:
    """The process, and where its door is."""

    address: str
    pid: int
    log: Path

    def connect(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=60)

    def peak(self) -> int:
        """The most bytes that it ever held, since it was last asked to forget."""
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(kilobytes) << 10

    def forget(self) -> int:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.peak()

    def is_well(self) -> float:
        """Health and answers, as ever; the seconds they take together."""
        began = time.monotonic()
        assert ask(self.address, "/v2/health/live") == (200, {"live": True})
        assert ask(self.address, "/v2/health/ready") == (200, {"ready": True})
        code, answer = ask(self.address, INFER, QUESTION)
        assert (code, len(answer["outputs"][0]["data"])) == (200, 20)
        return time.monotonic() - began


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    program = [sys.executable, str(Path(__file__).parents[1] / "live_http.py")]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        served = Served(process.stdout.readline().strip(), process.pid, tmp_path / "log")
        served.is_well()
        yield served
        process.kill()


@pytest.fixture
def grown(served: Served) -> Callable[[], int]:
    """By how many bytes it has grown since the test began, at its peak."""
    before = served.forget()
    return lambda: served.peak() - before


def send(client: socket.socket, *parts: bytes) -> None:
    """All of it, or as much as the other side takes."""
    with suppress(ConnectionError):
        for part in parts:
            client.sendall(part)


def status(client: socket.socket) -> int:
    """Of the response that comes; 0: the connection was cut."""
    try:
        line = client.recv(1 << 16).split(b"\r\n")[0]
    except ConnectionError:
        return 0
    return int(line.split()[1]) if line else 0


def at_once(count: int, what: Callable[[], int]) -> list[int]:
    """What so many clients see who do this at the same time."""
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(what()), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return seen


def in_the_end(what: Callable[[], int]) -> Callable[[], int]:
    """What a client sees at last that is told to come back, as on a busy machine."""

    def answered() -> int:
        while (code := what()) in (408, 503):
            time.sleep(0.1)
        return code

    return answered


def ends(client: socket.socket, piece: bytes, most: int) -> bool:
    """Whether the connection is cut before so many bytes have been taken."""
    client.settimeout(20)
    try:
        for _ in range(most // len(piece)):
            client.sendall(piece)
    except ConnectionError:
        return True
    return False


LINES = b"".join(b"t%d: x\r\n" % number for number in range(1000))


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (POST + CHUNKED + b"1\r\n{\r\n0\r\n", LINES),
        (GET + CHUNKED + b"0\r\n", LINES),
        (POST + CHUNKED + b"1\r\n{\r\n0\r\nt: ", b"x" * 10_000),
        (POST + CHUNKED + b"1;", b"x" * 10_000),
        (GET, LINES),
    ],
    ids=["trailers", "trailers nobody waits for", "one long trailer", "one long extension", "headers"],
)
def test_what_does_not_end_is_cut(
    served: Served, grown: Callable[[], int], begun: bytes, piece: bytes
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(served.connect()) for _ in range(4)]
        for client in clients:
            client.sendall(begun)
        assert all(ends(client, piece, 64 << 20) for client in clients)
        served.is_well()
    assert grown() < BEARABLE


def bomb(item: str) -> bytes:
    """As much of this as a body may hold, in a list."""
    one = item.encode()
    return b'{"inputs":[' + b",".join([one] * ((LARGEST - 100) // (len(one) + 1))) + b"]}"


@pytest.mark.parametrize("item", ["{}", "[]", "[0]", '{"a":0}', '"ab"', "1.5", '"ä€😀"', '{"name":{}}'])
def test_json_that_swells(served: Served, grown: Callable[[], int], item: str) -> None:
    body = bomb(item)
    assert LARGEST - 200 < len(body) <= LARGEST

    def attack() -> int:
        with served.connect() as client:
            send(client, POST + b"Content-Length: %d\r\n\r\n" % len(body), body)
            return status(client)

    assert at_once(4, in_the_end(attack)) == [400] * 4
    assert grown() < BEARABLE
    served.is_well()


@pytest.mark.parametrize("length", [0, 2, 40])
def test_strings_that_swell(served: Served, grown: Callable[[], int], length: int) -> None:
    """As bytes after the JSON, as many as a body holds."""
    one = length.to_bytes(4, "little") + b"a" * length
    count = (LARGEST - 1000) // len(one)
    entry = {"name": "pixels", "datatype": "BYTES", "shape": [count, 1]}
    entry["parameters"] = {"binary_data_size": count * len(one)}
    head = json.dumps({"inputs": [entry]}).encode()
    start = POST + b"Inference-Header-Content-Length: %d\r\n" % len(head)

    def attack() -> int:
        with served.connect() as client:
            length = b"Content-Length: %d\r\n\r\n" % (len(head) + count * len(one))
            send(client, start + length, head, one * count)
            return status(client)

    assert at_once(4, in_the_end(attack)) == [400] * 4
    assert grown() < BEARABLE
    served.is_well()


@pytest.mark.parametrize(("count", "padding"), [(650_000, 0), (270_000, LARGEST)])
def test_as_much_json_as_is_taken(served: Served, grown: Callable[[], int], count: int, padding: int) -> None:
    numbers = b",".join([b"123.5"] * count)
    head = b'{"inputs":[{"name":"pixels","datatype":"FP64","shape":[%d],"data":[' % count
    body = (head + numbers + b"]}]}").ljust(padding)

    def attack() -> int:
        code, answer = ask(served.address, INFER, body)
        assert code != 400 or "datatype FP64 is not what is needed" in answer["error"]
        return code

    assert at_once(12, in_the_end(attack)) == [400] * 12
    assert grown() < BEARABLE
    served.is_well()


def million() -> bytes:
    """A request about 100,000 examples, in bytes: a million probabilities in JSON."""
    m = 100_000
    head = {"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [m, 1], "parameters": {}}]}
    head["inputs"][0]["parameters"] = {"binary_data_size": m}
    text = json.dumps(head).encode()
    body = text + bytes(range(250)) * (m // 250)
    lengths = (len(text), len(body))
    return POST + b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % lengths + body


def test_answers_that_nobody_reads(served: Served, grown: Callable[[], int]) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(served.connect()) for _ in range(40)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(million())
        heard = 0
        for client in clients:  # every one is answered, if only by a word, or cut
            heard += status(client) == 200
            served.is_well()
        assert heard
        assert grown() < BEARABLE


@pytest.mark.parametrize("large", [False, True])
def test_bodies_that_do_not_come(served: Served, grown: Callable[[], int], large: bool) -> None:
    begun = b'{"inputs":' + (b" " * (4 << 20) if large else b"")
    with ExitStack() as stack:
        clients = [stack.enter_context(served.connect()) for _ in range(64)]
        for client in clients:
            client.setblocking(False)
            client.send(POST + b"Content-Length: %d\r\n\r\n" % LARGEST)
        end = time.monotonic() + 5
        left = {client: memoryview(begun) for client in clients}
        while time.monotonic() < end and any(left.values()):
            for client in clients:
                with suppress(BlockingIOError, ConnectionError):
                    left[client] = left[client][client.send(left[client]) :] if left[client] else left[client]
            time.sleep(0.01)
        assert served.is_well() < 10, "half a minute, if they had to be waited for"
        assert grown() < BEARABLE


def test_connections_that_say_nothing(served: Served, grown: Callable[[], int]) -> None:
    with ExitStack() as stack:
        for _ in range(520):
            stack.enter_context(served.connect())
        assert served.is_well() < 10, "half a minute, if they had to be waited for"
        assert grown() < BEARABLE


def test_requests_in_line_without_end(served: Served, grown: Callable[[], int]) -> None:
    many = (GET + b"\r\n") * 1000
    with ExitStack() as stack:
        clients = [stack.enter_context(served.connect()) for _ in range(20)]
        assert all(ends(client, many, 64 << 20) for client in clients)
        served.is_well()
    assert grown() < BEARABLE


def test_many_headers_on_many_connections(served: Served, grown: Callable[[], int]) -> None:
    lines = b"a:\r\n" * 15_000
    with ExitStack() as stack:
        for _ in range(200):
            send(stack.enter_context(served.connect()), POST, lines, b"Content-Length: 9\r\n\r\n{")
        served.is_well()
    assert grown() < BEARABLE


def test_strangers_write_nothing_into_the_log(served: Served) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    for request in (GET + upgrade, b"\x00\x01 garbage\r\n\r\n", POST + b"Content-Length: -1\r\n\r\n"):
        for _ in range(20):
            with served.connect() as client, suppress(OSError):
                client.sendall(request)
                client.settimeout(10)
                client.recv(1 << 16)
    for _ in range(10):  # one that begins to read its answer, and is gone
        with served.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(million())
            client.settimeout(20)
            client.recv(1)
    served.is_well()
    assert served.log.read_text() == ""
