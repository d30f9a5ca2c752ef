"""What strangers can make the door for clients hold: a hundred megabytes at most, and nobody waits for it.

The door is in a process of its own. The system tells the most memory that it ever held.
"""

import json
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from fleets import Forked, free_port, wait_until
from http_service import CHUNKED, GET, INFER, POST, ask, connect, serve

BEARABLE = 100 << 20  # bytes
LARGEST = 16 << 20
QUESTION = {"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [2, 1], "data": [0, 7]}]}


class Served:
    """The process, and where its door is."""

    def __init__(self, address: str, pid: int) -> None:
        self.address, self._process = address, Path(f"/proc/{pid}")
        self.is_well()
        (self._process / "clear_refs").write_text("5")  # it forgets its peak
        self._before = self._peak()

    def _peak(self) -> int:
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", (self._process / "status").read_text())
        return int(kilobytes) << 10

    @contextmanager
    def clients(self, count: int) -> Iterator[list[socket.socket]]:
        """So many connections."""
        with ExitStack() as stack:
            yield [stack.enter_context(connect(self.address)) for _ in range(count)]

    def is_well(self) -> float:
        """Health and answers, as ever; the seconds they take together."""
        began = time.monotonic()
        assert ask(self.address, "/v2/health/live") == (200, {"live": True})
        assert ask(self.address, "/v2/health/ready") == (200, {"ready": True})
        code, answer = ask(self.address, INFER, QUESTION)
        assert (code, len(answer["outputs"][0]["data"])) == (200, 20)
        return time.monotonic() - began

    def bears_it(self, seconds: float = 60) -> None:
        """It is well, and has not grown by much since the test began."""
        assert self.is_well() < seconds
        assert self._peak() - self._before < BEARABLE

    def refuses(self, count: int, *parts: bytes) -> None:
        """So many clients who send this at the same time are all refused; they come back when told to."""

        def code(_: int) -> int:
            while True:
                with self.clients(1) as (client,):
                    send(client, *parts)
                    if (got := status(client)) not in (408, 503):
                        return got
                time.sleep(0.1)

        with ThreadPoolExecutor(count) as pool:
            assert list(pool.map(code, range(count), timeout=300)) == [400] * count


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    log, address = tmp_path / "log", f"127.0.0.1:{free_port()}"
    process = Forked(serve, address, log=log)

    def is_there() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(ConnectionError), connect(address):
            return True
        return False

    try:
        wait_until(is_there)
        yield Served(address, process.pid)
    finally:
        process.kill()


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


def ends(client: socket.socket, piece: bytes, most: int = 64 << 20) -> bool:
    """Whether the connection is cut before so many bytes have been taken."""
    try:
        for _ in range(most // len(piece)):
            client.sendall(piece)
    except ConnectionError:
        return True
    return False


LINES = b"".join(b"t%d: x\r\n" % number for number in range(1000))


ENDLESS: dict[str, tuple[bytes, bytes, int]] = {
    "trailers": (POST + CHUNKED + b"1\r\n{\r\n0\r\n", LINES, 4),
    "trailers nobody waits for": (GET + CHUNKED + b"0\r\n", LINES, 4),
    "a trailer": (POST + CHUNKED + b"1\r\n{\r\n0\r\nt: ", b"x" * 10_000, 4),
    "an extension": (POST + CHUNKED + b"1;", b"x" * 10_000, 4),
    "headers": (GET, LINES, 4),
    "a header": (GET + b"X-Y: ", b"z" * 10_000, 4),
    "requests in line": (b"", (GET + b"\r\n") * 1000, 20),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_cut(served: Served, what: str) -> None:
    begun, piece, count = ENDLESS[what]
    with served.clients(count) as clients:
        for client in clients:
            client.sendall(begun)
        assert all(ends(client, piece) for client in clients)
        served.bears_it()


@pytest.mark.parametrize("item", ["{}", "[]", "[0]", '{"a":0}', '"ab"', "1.5", '"ä€😀"', '{"name":{}}'])
def test_json_that_swells(served: Served, item: str) -> None:
    """As much of it as a body may hold, in a list."""
    one = item.encode()
    body = b'{"inputs":[' + b",".join([one] * ((LARGEST - 100) // (len(one) + 1))) + b"]}"
    assert LARGEST - 200 < len(body) <= LARGEST
    served.refuses(4, POST + b"Content-Length: %d\r\n\r\n" % len(body), body)
    served.bears_it()


@pytest.mark.parametrize(("count", "padding"), [(650_000, 0), (270_000, LARGEST)])
def test_as_much_json_as_is_taken(served: Served, count: int, padding: int) -> None:
    head = b'{"inputs":[{"name":"pixels","datatype":"FP64","shape":[%d],"data":[' % count
    body = (head + b",".join([b"123.5"] * count) + b"]}]}").ljust(padding)
    served.refuses(12, POST + b"Content-Length: %d\r\n\r\n" % len(body), body)
    served.bears_it()
    code, answer = ask(served.address, INFER, body)
    assert (code, "datatype FP64 is not what is needed" in answer["error"]) == (400, True)


# A million of probabilities, in JSON, are asked for by as many bytes as this.
HEAD = json.dumps({"inputs": [{
    "name": "pixels", "datatype": "UINT8", "shape": [100_000, 1], "parameters": {"binary_data_size": 100_000}
}]}).encode()  # fmt: skip
LENGTHS = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
MILLION = [POST + LENGTHS % (len(HEAD), len(HEAD) + 100_000), HEAD, bytes(range(250)) * 400]


def test_answers_that_nobody_reads(served: Served) -> None:
    with served.clients(40) as clients:
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            send(client, *MILLION)
        heard = 0
        for client in clients:  # every one is answered, if only by a word, or cut
            heard += status(client) == 200
            served.is_well()
        assert heard
        served.bears_it()


SOON = 10  # seconds; half a minute, if they had to be waited for


@pytest.mark.parametrize("large", [False, True])
def test_bodies_that_do_not_come(served: Served, large: bool) -> None:
    begun = b'{"inputs":' + (b" " * (4 << 20) if large else b"")
    with served.clients(64) as clients:
        for client in clients:
            client.setblocking(False)
            client.send(POST + b"Content-Length: %d\r\n\r\n" % LARGEST)
        end = time.monotonic() + 5
        left = {client: memoryview(begun) for client in clients}
        while time.monotonic() < end and any(left.values()):
            for client, rest in left.items():
                with suppress(BlockingIOError, ConnectionError):
                    left[client] = rest[client.send(rest) :] if rest else rest
            time.sleep(0.01)
        served.bears_it(SOON)


def test_connections_that_say_nothing(served: Served) -> None:
    with served.clients(520):
        served.bears_it(SOON)


def test_many_headers_on_many_connections(served: Served) -> None:
    with served.clients(200) as clients:
        for client in clients:
            send(client, POST, b"a:\r\n" * 15_000, b"Content-Length: 9\r\n\r\n{")
        served.bears_it()


def test_strangers_write_nothing_into_the_log(served: Served, tmp_path: Path) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    for request in (GET + upgrade, b"\x00\x01 garbage\r\n\r\n", POST + b"Content-Length: -1\r\n\r\n"):
        for _ in range(5):
            with served.clients(1) as (client,), suppress(OSError):
                client.sendall(request)
                client.recv(1 << 16)
    for _ in range(3):  # one that begins to read its answer, and is gone
        with served.clients(1) as (client,):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            send(client, *MILLION)
            client.recv(1)
    served.is_well()
    assert (tmp_path / "log").read_text() == ""
