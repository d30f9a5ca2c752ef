"""Clients that never come to the point: they are cut off before anybody's token is looked at."""

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from http_service import Node, ask, question, settings

from lntrust.fleet import bounded
from lntrust.fleet.http import HttpDoor


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A door with little patience."""
    monkeypatch.setattr(bounded, "SLOWEST", 0.5)
    monkeypatch.setattr(bounded, "CONNECTIONS", 8)
    door = HttpDoor(Node(settings()))
    yield door.address
    door.close()


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed it; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_headers_without_end(address: str) -> None:
    with connected(address) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\nHost: here\r\n")
        with pytest.raises(ConnectionError):
            send_headers(client, 100 * bounded.HEADERS)


def send_headers(client: socket.socket, count: int) -> None:
    line = b"X-Y: " + b"z" * 8000 + b"\r\n"
    for _ in range(count // len(line)):
        client.sendall(line)


@pytest.mark.parametrize("begun", [b"", b"GET /v2 HTTP/1.1\r\nHos"])
def test_requests_that_do_not_come(address: str, begun: bytes) -> None:
    with connected(address) as client:
        client.sendall(begun)
        since = time.monotonic()
        assert ended(client)
        assert time.monotonic() - since < 5


def test_too_many_connections(address: str) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connected(address)) for _ in range(20)]
        since = time.monotonic()
        assert all(map(ended, held))
        assert time.monotonic() - since < 5
    assert ask(address, "/v2/models/self/infer", question())[0] == 200


def test_a_connection_that_asks_again_and_again_is_kept(address: str) -> None:
    """The time for headers begins anew with every request."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.connect()
    first = connection.sock
    for _ in range(4):
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read() == b'{"live":true}'
        time.sleep(0.3)
    assert connection.sock is first
    connection.close()
