"""How much a neighbour may ask, and when to stop asking one: a token bucket and a breaker.

Both take the time as a number of seconds, so that a test can be their clock. Several threads may use them.
"""

import math
import threading
from dataclasses import dataclass, field
from enum import Enum


@dataclass
class Quota:
    """A token bucket: `rate` examples a second, and at most `burst` of them at once.

    Protects against floods, and makes copying a model by asking it take long.
    """

    rate: float
    burst: float
    _left: float = field(init=False)
    _at: float | None = field(init=False, default=None)
    _lock: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._left = self.burst

    def take(self, examples: float, now: float) -> float:
        """0 if these may be asked now, and they are taken; else the seconds until they may.

        More than `burst` at once are never granted; the answer is then infinite.
        """
        if examples > self.burst:
            return float("inf")
        with self._lock:
            passed = (
                0.0 if self._at is None else max(now - self._at, 0.0)
            )  # a clock that goes back gives nothing
            self._at = now if self._at is None else max(now, self._at)
            self._left = min(self.burst, self._left + passed * self.rate)
            if examples <= self._left:
                self._left -= examples
                return 0.0
            return (examples - self._left) / self.rate if self.rate else float("inf")


@dataclass
class Flood:
    """More than `most` refusals of one neighbour in `within` seconds: each of them costs time, too."""

    most: int = 1000
    within: float = 2.0
    _count: int = field(init=False, default=0)
    _since: float = field(init=False, default=-math.inf)

    def rises(self, now: float) -> bool:
        """One more. Whether they are too many by now; then counting begins anew."""
        if now - self._since > self.within:
            self._count, self._since = 0, now
        self._count += 1
        if self._count <= self.most:
            return False
        self._count = 0
        return True


class State(Enum):
    """As `/metrics` will have it."""

    CLOSED = 0  # questions pass
    HALF_OPEN = 1  # one question passes, to see
    OPEN = 2  # none passes


@dataclass
class Breaker:
    """Stops asking a neighbour that fails again and again, and tries it now and then.

    After `failures` in a row it opens for `pause` seconds; then one question may pass. If that fails, it
    opens for twice as long, up to `longest`; if it succeeds, all is as before.
    """

    failures: int = 3
    pause: float = 1.0
    longest: float = 60.0
    _row: int = field(init=False, default=0)
    _pause: float = field(init=False, default=0.0)
    _until: float | None = field(init=False, default=None)
    _trying: bool = field(init=False, default=False)
    _came: float = field(init=False, default=-math.inf)
    _lock: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def state(self, now: float) -> State:
        with self._lock:
            return self._state(now)

    def _state(self, now: float) -> State:
        if self._until is None:
            return State.CLOSED
        return State.OPEN if now < self._until or self._trying else State.HALF_OPEN

    def admits(self, now: float) -> bool:
        """Whether to ask now. Who is admitted tells how it went: `succeeded` or `failed`."""
        with self._lock:
            state = self._state(now)
            self._trying = self._trying or state is State.HALF_OPEN
            return state is not State.OPEN

    def succeeded(self) -> None:
        with self._lock:
            self._row, self._pause, self._until, self._trying = 0, 0.0, None, False
            self._came = -math.inf

    def appeared(self, now: float) -> None:
        """The neighbour has come anew, and may be well again: one question may pass at once.

        One in `longest` seconds, and a failure counts on from where it was: coming and going is no answer.
        """
        with self._lock:
            if self._state(now) is State.OPEN and not self._trying and now - self._came >= self.longest:
                self._came = self._until = now

    def not_asked(self) -> None:
        """Who was admitted was not asked after all: nothing is known that was not before."""
        with self._lock:
            self._trying = False

    def failed(self, now: float) -> None:
        with self._lock:
            self._row += 1
            if self._row < self.failures and not self._trying:
                return
            if (
                self._trying or self._until is None
            ):  # answers that were under way when it opened change nothing
                self._pause = min(self._pause * 2 or self.pause, self.longest)
                self._until = now + self._pause
                self._trying = False
