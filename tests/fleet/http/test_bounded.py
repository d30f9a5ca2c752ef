"""Clients that never come to the point: they are cut off before anybody's token is looked at."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from http_service import Node, ask, question, settings

from lntrust.fleet.http import bounded
from lntrust.fleet.http.app import HttpDoor


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpDoor]:
    """One with little patience."""
    monkeypatch.setattr(bounded, "SLOWEST", 0.5)
    monkeypatch.setattr(bounded, "CONNECTIONS", 8)
    door = HttpDoor(Node(settings()))
    yield door
    door.close()


@pytest.fixture
def address(door: HttpDoor) -> str:
    return door.address


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed it; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


METRICS = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n"
TEXT = json.dumps(question()).encode()
POST = b"POST /v2/models/self/infer HTTP/1.%d\r\nHost: here\r\n"


def responses(client: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """So many, one after another."""
    reader, got = client.makefile("rb"), []
    for _ in range(count):
        code, length = int(reader.readline().split()[1]), 0
        while (line := reader.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        got.append((code, reader.read(length)))
    return got


def test_headers_without_end(address: str) -> None:
    with connected(address) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\nHost: here\r\n")
        with pytest.raises(ConnectionError):
            send_all(client, [b"X-Y: " + b"z" * 8000 + b"\r\n"] * (100 * bounded.HEADERS // 8000))


def send_all(client: socket.socket, parts: list[bytes]) -> None:
    for part in parts:
        client.sendall(part)


@pytest.mark.parametrize("begun", [b"", b"GET /v2 HTTP/1.1\r\nHos"])
def test_requests_that_do_not_come(address: str, begun: bytes) -> None:
    with connected(address) as client:
        client.sendall(begun)
        since = time.monotonic()
        assert ended(client)
        assert time.monotonic() - since < 5


def test_blank_lines_without_end(address: str) -> None:
    with connected(address) as client:
        client.sendall(LIVE)
        assert responses(client, 1) == [(200, b'{"live":true}')]
        client.sendall(b"\r\n")
        assert ended(client)


def test_a_body_that_nobody_waits_for_has_to_come_in_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "_POLITE", 0.0)
    with connected(address) as client:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n1")
        assert responses(client, 1) == [(200, b'{"live":true}')]
        assert ended(client)


def test_who_has_waited_longest_makes_way(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SLOWEST", 60)
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(address)) for _ in range(8)]
        for client in [*clients, clients[0]]:  # the door has heard them in this order, the first one last
            client.sendall(LIVE)
            assert responses(client, 1) == [(200, b'{"live":true}')]
        stack.enter_context(connected(address)).sendall(LIVE)
        assert ended(clients[1])
        clients[0].sendall(LIVE)
        assert responses(clients[0], 1) == [(200, b'{"live":true}')]


def test_an_answer_that_nobody_reads(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "UNREAD", 0.5)
    monkeypatch.setattr(bounded, "IN_LINE", 1 << 30)  # it is not for their number that they are cut
    with connected(address) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            send_all(client, [METRICS * 10] * 10_000)


def until(what: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def reads_nothing(door: HttpDoor, client: socket.socket) -> None:
    """Connects, and asks until some of its answers wait in the door's own memory, not much."""
    host, _, port = door.address.rpartition(":")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # before it connects: else it has more
    client.settimeout(10)
    client.connect((host, int(port)))
    client.sendall(LIVE)
    assert responses(client, 1) == [(200, b'{"live":true}')]
    (mine,) = [each for each in door._server.server_state.connections if each.client == client.getsockname()]
    while mine.transport.get_write_buffer_size() < 2000:  # type: ignore[union-attr]
        before = mine.cycle
        client.sendall(METRICS)
        until(lambda before=before: mine.cycle is not before and mine.cycle.response_complete)  # type: ignore[misc, union-attr]


def test_who_asks_too_much_and_reads_nothing_is_cut(door: HttpDoor) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(2)]
        for client in clients:
            reads_nothing(door, client)
        for client in clients:
            client.sendall(LIVE * (bounded.IN_LINE + 16))
        until(lambda: not door._server.server_state.connections)


def test_who_waits_behind_an_answered_request_makes_way(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has been answered, and has begun to ask again: for the rest of that the node waits."""
    monkeypatch.setattr(bounded, "SLOWEST", 60)
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(connected(address))
            client.sendall(LIVE + POST % 1 + b"Content-Length: 9\r\n\r\n{")
            assert responses(client, 1) == [(200, b'{"live":true}')]
        assert ask(address, "/v2/health/live")[0] == 200


def test_too_many_connections(address: str) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connected(address)) for _ in range(20)]
        since = time.monotonic()
        assert all(map(ended, held))
        assert time.monotonic() - since < 5
    assert ask(address, "/v2/models/self/infer", question())[0] == 200


def test_a_line_that_is_too_long(address: str) -> None:
    with connected(address) as client:
        with suppress(ConnectionError):
            client.sendall(LIVE * 2000)
        with suppress(ConnectionError):
            while client.recv(1 << 16):
                pass
    assert ask(address, "/v2/health/live")[0] == 200


# -- and those who do ---------------------------------------------------------------------------------


def test_requests_in_line_are_answered_in_order(address: str) -> None:
    posted = POST % 1 + b"Content-Length: %d\r\n\r\n" % len(TEXT) + TEXT
    missing = b"GET /nowhere HTTP/1.1\r\nHost: here\r\n\r\n"
    with connected(address) as client:
        client.sendall((LIVE + posted + missing) * 20)
        got = responses(client, 60)
    assert [code for code, _ in got] == [200, 200, 404] * 20
    assert got[0][1] == b'{"live":true}'
    assert len(json.loads(got[1][1])["outputs"]) == 2


@pytest.mark.parametrize("minor", [0, 1])
def test_older_http(address: str, minor: int) -> None:
    with connected(address) as client:
        client.sendall(POST % minor + b"Content-Length: %d\r\n\r\n" % len(TEXT) + TEXT)
        ((code, answer),) = responses(client, 1)
        assert (code, len(json.loads(answer)["outputs"])) == (200, 2)
        assert minor or ended(client)


def test_a_few_trailers_are_read_and_mean_nothing(address: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (len(TEXT), TEXT)
    trailers = b"Checksum: 17\r\nInference-Header-Content-Length: 3\r\n\r\n"
    with connected(address) as client:
        client.sendall((POST % 1 + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n" + trailers) * 2)
        assert [code for code, _ in responses(client, 2)] == [200, 200]


def test_who_waits_to_be_told_to_go_on(address: str) -> None:
    with connected(address) as client:
        client.sendall(POST % 1 + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(TEXT))
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(TEXT)
        ((code, _),) = responses(client, 1)
        assert code == 200


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
