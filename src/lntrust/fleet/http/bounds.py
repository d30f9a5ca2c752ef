"""What clients may cost: bounds on their connections, and on the memory for what they send and do not read.

uvicorn bounds nothing of a connection, and all of it comes before anybody's token is looked at.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

FREE = 64 << 10  # bytes that anybody may have; so small requests never wait
_AT_ONCE = 64 << 10  # bytes that are read or written at once; asyncio itself reads 256 KiB
_LOOK = 0.02  # seconds between two looks for free memory


@dataclass(frozen=True)
class Bounds:
    """How much clients may cost. Bytes, seconds, and numbers of things."""

    connections: int = 256
    headers: int = 64 << 10  # bytes of headers, and of all else that is no body
    header_lines: int = 100  # each takes more memory than its bytes
    in_line: int = 64  # requests of one connection that wait for the answer to the one before
    slowest: float = 30.0  # seconds in which headers have to arrive, and then the body
    polite: float = 5.0  # seconds more for a body: who waits for it first says that it is late
    unread: float = 30.0  # seconds in which a client has to read on
    at_once: int = 64  # requests that are computed; more are told to come back
    probabilities: int = 1 << 20  # of one answer
    memory: int = 4 << 20  # bytes of bodies, and of answers that have not been read, beside one of each
    grace: float = 5.0  # seconds in which the first in line has not to give up

    def budget(self) -> "MemoryBudget":
        return MemoryBudget(self.memory, self.grace)


# -- connections: headers, trailers, requests in line, time, and how many at once -----------------


class _TooMuchError(Exception):
    """Raised inside the parser: uvicorn answers with 400, and closes the connection."""


class _InTurn(FlowControl):
    """Reads no more requests while some wait in line."""

    def __init__(self, transport: Any, line: Any) -> None:
        super().__init__(transport)
        self._line = line

    def resume_reading(self) -> None:
        if not self._line:
            super().resume_reading()


class BoundedConnection(HttpToolsProtocol):
    """A client that sends without end, or nothing, or does not read, is cut off.

    If there are too many connections, the one goes that has kept the node waiting for longest.
    """

    _bare = 0  # bytes since the last byte of a body, or since a request began or ended
    _in_headers = True
    _waits_since: float | None = None  # for the client; none: it is the node's turn

    def __init__(self, *args: Any, bounds: Bounds, **more: Any) -> None:
        super().__init__(*args, **more)
        self._bounds = bounds
        self._timers = dict[str, asyncio.TimerHandle]()  # for what is being received, and for what is sent

    def connection_made(self, transport: Any) -> None:
        transport.max_size = _AT_ONCE
        super().connection_made(transport)
        self.flow = _InTurn(transport, self.pipeline)
        self._waits_since = self.loop.time()
        self._set_limit()
        all_: set[Any] = self.connections
        if len(all_) > self._bounds.connections:
            idlest = min(all_ - {self}, key=BoundedConnection._idle_since)
            all_.discard(idlest)  # at once: `connection_lost` comes later
            idlest.transport.abort()

    def _idle_since(self) -> float:
        """Since when it has kept the node waiting: for ever, if all that is left is to read the answer."""
        if self.transport.is_closing():
            return -math.inf
        return math.inf if self._waits_since is None else self._waits_since

    def data_received(self, data: bytes) -> None:
        self._bare += len(data)
        if "receive" not in self._timers and self._waits_since is not None:
            self._set_limit()  # else blank lines would go on for ever
        super().data_received(data)
        if self._bare > self._bounds.headers:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._in_headers, self._bare = True, 0
        self._set_limit()
        super().on_message_begin()
        self.scope["state"]["cut"] = self.transport.abort

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            return  # a trailer: nobody here reads any
        if len(self.headers) >= self._bounds.header_lines:
            raise _TooMuchError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._bounds.in_line:
            raise _TooMuchError
        self._in_headers = False
        self._set_limit(self._bounds.polite)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bare = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bare, self._waits_since = 0, None
        self._end("receive")
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before it had ended
            self._waits_since = self.loop.time()

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()  # it begins with the next in line, whose body may not be there
        if last or (not self.pipeline and self.cycle.more_body):
            self._waits_since = self.loop.time()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waits_since = self.loop.time()
        self._timers["send"] = self.loop.call_later(self._bounds.unread, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waits_since = None
        self._end("send")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("receive")
        self._end("send")
        super().connection_lost(exc)

    def _set_limit(self, more: float = 0.0) -> None:
        """From now on there is so much time for what comes next."""
        self._end("receive")
        self._timers["receive"] = self.loop.call_later(self._bounds.slowest + more, self._too_late)

    def _end(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()

    def _too_late(self) -> None:
        if self.flow.read_paused and not self.transport.is_closing():  # it is the node that makes it wait
            self._set_limit()
        else:
            self.transport.abort()


# -- memory: for one event loop; nothing here is shared between threads ---------------------------


class FullError(Exception):
    """There was no memory in time."""


@dataclass(eq=False)
class Share:
    """One request's part of the memory. `give_up` ends the request; none while not the client is slow."""

    budget: "MemoryBudget"
    give_up: Callable[[], None] | None = None
    size: int = 0
    is_first: bool = False  # of all in line
    since: float = 0.0  # both is so: it is the first, and its client is waited for

    def wait_for_client(self, give_up: Callable[[], None]) -> None:
        """From now on it is the client who may be slow, whatever time has passed before."""
        self.give_up, self.since = give_up, time.monotonic()

    async def take(self, size: int) -> None:
        """So many bytes in all, once they are there. Raises `FullError`."""
        wanted, end = max(0, size - FREE), time.monotonic() + 2 * self.budget.grace
        if wanted > self.size:
            self.budget.line.setdefault(self)
            while not self.budget.has(self, wanted):
                last = time.monotonic() > end
                await asyncio.sleep(_LOOK)  # in which somebody may give up
                if last and not self.budget.has(self, wanted):
                    raise FullError
            self.size = wanted

    def release(self) -> None:
        self.budget.line.pop(self, None)


@dataclass
class MemoryBudget:
    """Bytes for requests in line. The first may have what it needs, so that one always gets to its end."""

    most: int  # for all the others
    grace: float  # seconds in which the first has not to give up
    line: dict[Share, None] = field(default_factory=dict)  # in the order in which they came

    def has(self, share: Share, size: int) -> bool:
        """Whether there is memory. If not, and the first has been slow for too long, it has to give up."""
        first = next(iter(self.line))
        if not first.is_first:
            first.is_first, first.since = True, time.monotonic()
        if first is share or sum(s.size for s in self.line if s not in (first, share)) + size <= self.most:
            return True
        if first.give_up is not None and time.monotonic() - first.since > self.grace:
            first.give_up()
            first.give_up = None
        return False


class StreamedResponse(Response):
    """Piece by piece, the next one when the client has read the last: so there is one copy of it at most."""

    def __init__(self, share: Share, parts: list[bytes], headers: dict[str, str]) -> None:
        super().__init__(None, headers={"Content-Length": str(sum(map(len, parts))), **headers})
        self._share, self._parts = share, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            for number, part in enumerate(self._parts):
                self._parts[number] = b""  # what has been read is gone
                for at in range(0, len(part), _AT_ONCE):
                    body = part[at : at + _AT_ONCE]
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    await asyncio.sleep(0)  # in which a lost connection is noticed
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._share.release()
