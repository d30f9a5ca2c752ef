"""Memory for what clients send and have not read yet: so many bytes, and who is slow makes way for others.

For one event loop; nothing here is shared between threads.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FREE = 64 << 10  # bytes that anybody may have; so small requests never wait
GRACE = 5.0  # seconds in which the first in line has not to make way
_LOOK = 0.02  # seconds between two looks for room


class FullError(Exception):
    """There was no room in time."""


@dataclass(eq=False)
class Guest:
    """A request that takes room. `make_way` ends it; none while it is not the client who is slow."""

    room: "Room"
    make_way: Callable[[], None] | None = None
    size: int = 0
    _slow_since: float = 0.0  # the client has been waited for since then

    def wait_for_client(self, make_way: Callable[[], None]) -> None:
        """From now on it is the client who may be slow, whatever time has passed before."""
        self.make_way, self._slow_since = make_way, time.monotonic()

    def dawdles(self, since: float) -> bool:
        """Whether it has had its time, as the first in line since then."""
        return self.make_way is not None and time.monotonic() - max(since, self._slow_since) > GRACE

    async def take(self, size: int) -> None:
        """So many bytes in all, once they are there. Raises `FullError`."""
        wanted, end = max(0, size - FREE), time.monotonic() + 2 * GRACE
        if wanted > self.size:
            self.room.line.setdefault(self)
            while not self.room.has(self, wanted):
                last = time.monotonic() > end
                await asyncio.sleep(_LOOK)  # in which somebody may make way
                if last and not self.room.has(self, wanted):
                    raise FullError
            self.size = wanted

    def leave(self) -> None:
        self.room.line.pop(self, None)


@dataclass
class Room:
    """Bytes for guests in line. The first may have what it needs, so that one always gets to its end."""

    most: int  # for all the others
    line: dict[Guest, None] = field(default_factory=dict)  # in the order in which they came
    _first: Guest | None = None
    _since: float = 0.0  # it is the first since then

    def has(self, guest: Guest, size: int) -> bool:
        """Whether there is room. If not, and the first has dawdled, it has to make way."""
        first = next(iter(self.line))
        if first is not self._first:
            self._first, self._since = first, time.monotonic()
        if first is guest or sum(g.size for g in self.line if g not in (first, guest)) + size <= self.most:
            return True
        if first.make_way is not None and first.dawdles(self._since):
            first.make_way()
            first.make_way = None
        return False
