"""HTTP connections within bounds: of headers, trailers, requests in line, time, and connections at once.

uvicorn bounds none of these, and they come before anybody's token is looked at.
"""

import asyncio
import math
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS = 64 << 10  # bytes of headers, and of all else that is no body
MOST_HEADERS = 100  # each takes more memory than its bytes
IN_LINE = 64  # requests of one connection that wait for the answer to the one before
SLOWEST = 30.0  # seconds in which headers have to arrive, and then the body
UNREAD = 30.0  # seconds in which a client has to read on
CONNECTIONS = 256
_POLITE = 5.0  # seconds more for a body: who waits for it first says that it is late
_AT_ONCE = 64 << 10  # bytes that are read from a connection at once; asyncio itself takes 256 KiB


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


class BoundedProtocol(HttpToolsProtocol):
    """A client that sends without end, or nothing, or does not read, is cut off.

    If there are too many connections, the one goes that has kept the node waiting for longest.
    """

    _bare = 0  # bytes since the last byte of a body, or since a request began or ended
    _in_headers = True
    _limit: asyncio.TimerHandle | None = None  # for what is being received
    _unread: asyncio.TimerHandle | None = None  # for what is being sent
    _waits_since: float | None = None  # for the client; none: it is the node's turn

    def connection_made(self, transport: Any) -> None:
        transport.max_size = _AT_ONCE
        super().connection_made(transport)
        self.flow = _InTurn(transport, self.pipeline)
        self._waits_since = self.loop.time()
        self._limited()
        if len(self.connections) > CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        all_: set[Any] = self.connections
        idlest = min(all_ - {self}, key=BoundedProtocol._idle_since)
        all_.discard(idlest)  # at once: `connection_lost` comes later
        idlest.transport.abort()

    def _idle_since(self) -> float:
        """Since when it has kept the node waiting: for ever, if all that is left is to read the answer."""
        if self.transport.is_closing():
            return -math.inf
        return math.inf if self._waits_since is None else self._waits_since

    def data_received(self, data: bytes) -> None:
        self._bare += len(data)
        if self._limit is None and self._waits_since is not None:  # else blank lines would go on for ever
            self._limited()
        super().data_received(data)
        if self._bare > HEADERS:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._in_headers, self._bare = True, 0
        self._limited()
        super().on_message_begin()
        self.scope["state"]["cut"] = self.transport.abort

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            return  # a trailer: nobody here reads any
        if len(self.headers) >= MOST_HEADERS:
            raise _TooMuchError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= IN_LINE:
            raise _TooMuchError
        self._in_headers = False
        self._limited(_POLITE)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bare = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bare, self._waits_since = 0, None
        self._unlimited()
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
        self._unread = self.loop.call_later(UNREAD, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waits_since = None
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimited()
        self._read()
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _limited(self, more: float = 0.0) -> None:
        """From now on there is so much time for what comes next."""
        self._unlimited()
        self._limit = self.loop.call_later(SLOWEST + more, self._too_late)

    def _unlimited(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_late(self) -> None:
        if self.flow.read_paused and not self.transport.is_closing():  # it is the node that makes it wait
            self._limited()
        else:
            self.transport.abort()
