"""HTTP connections that end: headers within bounds of bytes and time, and so many connections at once.

uvicorn bounds none of these, and they come before anybody's token is looked at.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS = 64 << 10  # bytes
SLOWEST = 30.0  # seconds in which headers have to arrive
CONNECTIONS = 512


class BoundedProtocol(HttpToolsProtocol):
    """A client that sends headers without end, or none, or opens ever more connections, is cut off."""

    _incomplete = 0  # bytes of a request whose headers have not ended
    _waiting = True
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self._limit = self.loop.call_later(SLOWEST, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waiting:
            self._incomplete += len(data)
            if self._incomplete > HEADERS:
                self.transport.abort()

    def on_message_begin(self) -> None:
        self._waiting, self._incomplete = True, 0
        if self._limit is None:
            self._limit = self.loop.call_later(SLOWEST, self.transport.close)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._waiting = False
        self._unlimited()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimited()
        super().connection_lost(exc)

    def _unlimited(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
