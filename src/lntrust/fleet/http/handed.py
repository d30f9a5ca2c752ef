"""An answer that is handed over as fast as its client reads."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lntrust.fleet.http.room import Guest

PIECE = 64 << 10  # bytes


class Handed(Response):
    """Piece by piece, the next one when the client has read the last: so there is one copy of it at most."""

    def __init__(self, guest: Guest, parts: list[bytes], headers: dict[str, str], media_type: str) -> None:
        length = str(sum(map(len, parts)))
        super().__init__(None, 200, {"content-length": length, **headers}, media_type)
        self._guest, self._parts = guest, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            self._parts.reverse()
            while self._parts:
                part = self._parts.pop()  # what has been read is gone
                for at in range(0, len(part), PIECE):
                    body = part[at : at + PIECE]
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    await asyncio.sleep(0)  # in which a lost connection is noticed
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._guest.leave()
