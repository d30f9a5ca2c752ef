"""Clients that never come to the point are cut off before anybody looks at a token; memory is shared."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn
from http_service import CHUNKED, GET, POST, Node, ask, connect, question
from uvicorn.server import ServerState

from lntrust.fleet.http.app import make_app
from lntrust.fleet.http.bounds import FREE, BoundedConnection, Bounds, FullError, MemoryBudget, Share

METRICS = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
LIVE = GET + b"\r\n"
TEXT = json.dumps(question()).encode()
POSTED = POST + b"Content-Length: %d\r\n\r\n" % len(TEXT)
Opened = Callable[..., str]


@pytest.fixture
def patient(opened: Opened) -> str:
    return opened(Node(), connections=8)


def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed it; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


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


def is_live(client: socket.socket) -> None:
    client.sendall(LIVE)
    assert responses(client, 1) == [(200, b'{"live":true}')]


@pytest.mark.parametrize(
    ("before", "begun"), [(False, b""), (False, b"GET /v2 HTTP/1.1\r\nHos"), (True, b"\r\n")]
)
def test_requests_that_do_not_come(opened: Opened, before: bool, begun: bytes) -> None:
    """Nor, after one, are blank lines any."""
    with connect(opened(Node(), slowest=1.0), 20) as client:
        if before:
            is_live(client)
        client.sendall(begun)
        assert ended(client)


def test_a_body_that_nobody_waits_for_has_to_come_in_time(opened: Opened) -> None:
    with connect(opened(Node(), slowest=1.0, polite=0.0), 20) as client:
        client.sendall(GET + b"Content-Length: 9\r\n\r\n1")
        assert responses(client, 1) == [(200, b'{"live":true}')]
        assert ended(client)


def test_who_has_waited_longest_makes_way(patient: str) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(patient, 20)) for _ in range(8)]
        for client in [*clients, clients[0]]:  # the door has heard them in this order, the first one last
            is_live(client)
        stack.enter_context(connect(patient)).sendall(LIVE)
        assert ended(clients[1])
        is_live(clients[0])


def test_an_answer_that_nobody_reads(opened: Opened) -> None:
    """It is not for their number that they are cut."""
    with connect(opened(Node(), unread=0.5, in_line=1 << 30)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            client.sendall(METRICS * 1_000_000)


class Unread(asyncio.Transport):
    """A connection whose client reads nothing: closed, it stays until it is aborted."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.closed, self.aborted = False, asyncio.Event()

    def write(self, data: Any) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted.set()


def test_who_asks_too_much_and_reads_nothing_is_cut() -> None:
    async def run() -> None:
        config = uvicorn.Config(make_app(Node()), log_config=None, lifespan="off")
        config.load()
        transport = Unread()
        connection = BoundedConnection(config, ServerState(), {}, bounds=Bounds(slowest=0.1, in_line=64))
        connection.connection_made(transport)
        connection.data_received(LIVE * 80)
        assert transport.closed
        await asyncio.wait_for(transport.aborted.wait(), 30)
        connection.connection_lost(None)

    asyncio.run(run())


def test_who_waits_behind_an_answered_request_makes_way(patient: str) -> None:
    """Each has been answered, and has begun to ask again: for the rest of that the node waits."""
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(connect(patient))
            client.sendall(LIVE + POST + b"Content-Length: 9\r\n\r\n{")
            assert responses(client, 1) == [(200, b'{"live":true}')]
        assert ask(patient, "/v2/health/live")[0] == 200


# -- and those who do -----------------------------------------------------------------------------


def test_requests_in_line_are_answered_in_order(patient: str) -> None:
    missing = b"GET /nowhere HTTP/1.1\r\nHost: here\r\n\r\n"
    with connect(patient) as client:
        client.sendall((LIVE + POSTED + TEXT + missing) * 20)
        got = responses(client, 60)
    assert [code for code, _ in got] == [200, 200, 404] * 20
    assert got[0][1] == b'{"live":true}'
    assert len(json.loads(got[1][1])["outputs"]) == 2


CHUNK = b"%x\r\n%s\r\n" % (len(TEXT), TEXT)
TRAILERS = b"Checksum: 17\r\nInference-Header-Content-Length: 3\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (POSTED.replace(b"1.1", b"1.0") + TEXT, 1),
        ((POST + CHUNKED + CHUNK + b"0\r\n" + TRAILERS) * 2, 2),  # they mean nothing
    ],
    ids=["HTTP/1.0", "trailers"],
)
def test_other_ways_to_ask(patient: str, sent: bytes, count: int) -> None:
    with connect(patient) as client:
        client.sendall(sent)
        got = responses(client, count)
        assert [(code, len(json.loads(answer)["outputs"])) for code, answer in got] == [(200, 2)] * count
        assert count > 1 or ended(client)


def test_who_waits_to_be_told_to_go_on(patient: str) -> None:
    with connect(patient) as client:
        client.sendall(POSTED.replace(b"Content-", b"Expect: 100-continue\r\nContent-"))
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(TEXT)
        ((code, _),) = responses(client, 1)
        assert code == 200


def test_a_connection_that_asks_again_and_again_is_kept(opened: Opened) -> None:
    """The time for headers begins anew with every request."""
    connection = http.client.HTTPConnection(opened(Node(), slowest=2.0), timeout=60)
    connection.connect()
    first, end = connection.sock, time.monotonic() + 2.5
    while time.monotonic() < end:
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read() == b'{"live":true}'
        time.sleep(0.1)
    assert connection.sock is first
    connection.close()


# -- memory: one always gets to its end, and who is slow gives up ---------------------------------

MEMORY = 1000


def shares(count: int, grace: float = 0.3) -> list[Share]:
    budget = MemoryBudget(MEMORY, grace)
    return [Share(budget) for _ in range(count)]


async def waits(share: Share, size: int) -> bool:
    """Whether it has to wait for so much; it gives up at once."""
    taking = asyncio.create_task(share.take(size))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if taking.done():
        return False
    taking.cancel()
    share.release()
    return True


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


@in_a_loop
async def test_the_first_has_what_it_needs_and_the_others_share() -> None:
    first, second, third, *many = shares(100)
    await first.take(FREE + 50 * MEMORY)
    await second.take(FREE + MEMORY - 10)
    assert not await waits(third, FREE + 10)
    assert await waits(third, FREE + 11)
    for small in many:
        assert not await waits(small, FREE), "small ones never wait"
    first.release()
    assert not await waits(third, FREE + 11), "the second is the first now, and counts no more"
    await first.take(FREE + MEMORY - 11)


@in_a_loop
async def test_who_dawdles_makes_way_for_who_waits() -> None:
    first, other, early, honest = shares(4, grace=1.0)
    told: list[str] = []

    def makes_way(share: Share, name: str) -> Callable[[], None]:
        return lambda: (told.append(name), share.release())  # type: ignore[func-returns-value,return-value]

    await first.take(FREE + MEMORY)
    await other.take(FREE + MEMORY)
    other.wait_for_client(makes_way(other, "other"))
    await asyncio.sleep(1.1)  # more than the grace
    assert told == [], "as long as nobody waits"
    waiting = asyncio.create_task(early.take(FREE + MEMORY))
    first.wait_for_client(makes_way(first, "first"))
    await asyncio.sleep(0.1)
    assert told == [], "the node has computed until now; it has only begun to read"
    waiting.cancel()
    await honest.take(FREE + MEMORY)
    assert told == ["first"], "but does not go on"


@in_a_loop
async def test_who_cannot_make_way_is_waited_for_but_not_for_ever() -> None:
    computing, other, late = shares(3)
    await computing.take(FREE + MEMORY)
    await other.take(FREE + MEMORY)
    with pytest.raises(FullError):
        await late.take(FREE + MEMORY)
