"""How a node bears neighbours that ask too much, fail, or share a name: quota, flood, breaker, duplicates.

All take the time as a number of seconds, so that a test can be their clock. Several threads may use them.
"""

import math
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

_REMEMBER_SESSIONS = 600.0  # seconds
_SESSIONS_PER_NAME = 16  # whoever makes up ever more fills no memory


@dataclass
class Quota:
    """A token bucket: `rate` examples a second, and at most `burst` of them at once.

    Protects against floods, and makes copying a model by asking it take long.
    """

    rate: float
    burst: float
    _left: float = field(init=False)
    _at: float = field(init=False, default=-math.inf)
    _lock: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._left = self.burst

    def take(self, examples: float, now: float) -> float:
        """0 if these may be asked now, and they are taken; else the seconds until they may.

        More than `burst` at once are never granted; the answer is then infinite.
        """
        if examples > self.burst:
            return math.inf
        with self._lock:
            if now > self._at:  # a clock that goes back gives nothing
                passed = 0.0 if math.isinf(self._at) else now - self._at
                self._left, self._at = min(self.burst, self._left + passed * self.rate), now
            if examples <= self._left:
                self._left -= examples
                return 0.0
            return (examples - self._left) / self.rate if self.rate else math.inf


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
    """Of a breaker, as `/metrics` has it."""

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
    _appeared: float = field(init=False, default=-math.inf)
    _lock: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def state(self, now: float) -> State:
        with self._lock:
            return self._state(now)

    def _state(self, now: float) -> State:
        if self._until is None:
            return State.CLOSED
        return State.OPEN if now < self._until or self._trying else State.HALF_OPEN

    def admits(self, now: float) -> bool:
        """Whether to ask now. Whoever asks then reports `succeeded`, `failed` or `not_asked`."""
        with self._lock:
            state = self._state(now)
            self._trying = self._trying or state is State.HALF_OPEN
            return state is not State.OPEN

    def succeeded(self) -> None:
        with self._lock:
            self._row, self._pause, self._until, self._trying = 0, 0.0, None, False
            self._appeared = -math.inf

    def failed(self, now: float) -> None:
        with self._lock:
            self._row += 1
            if self._row < self.failures and not self._trying:
                return
            if (
                self._trying or self._until is None
            ):  # failures of questions from before it opened change nothing
                self._pause = min(self._pause * 2 or self.pause, self.longest)
                self._until = now + self._pause
                self._trying = False

    def not_asked(self) -> None:
        """The question was not asked after all: nothing is known that was not before."""
        with self._lock:
            self._trying = False

    def appeared(self, now: float) -> None:
        """The neighbour has come anew, and may be well again: one question may pass at once.

        One in `longest` seconds, and a failure counts on from where it was: coming and going is no answer.
        """
        with self._lock:
            if self._state(now) is State.OPEN and not self._trying and now - self._appeared >= self.longest:
                self._appeared = self._until = now


class DuplicateNames:
    """Which sessions use which name: two at a time are a second certificate, or a copied key.

    Every session has a number of its own. A node that was started again speaks with a new number, and never
    again with the old one. If both speak in turn, there are two.
    """

    def __init__(self) -> None:
        self._spans: defaultdict[str, dict[str, tuple[float, float]]] = defaultdict(dict)  # first, last time
        self._lock = threading.Lock()

    def add(self, name: str, session: str, now: float) -> None:
        """A session has spoken under a name."""
        with self._lock:
            sessions = self._spans[name]
            first, _ = sessions.pop(session, (now, now))
            sessions[session] = (first, now)  # in the order of their last words
            if len(sessions) > _SESSIONS_PER_NAME:
                del sessions[next(iter(sessions))]

    def count(self, name: str, now: float) -> int:
        """How many nodes use a name: 0 if none did lately; more than 1 is one too many."""
        with self._lock:
            spans = [(a, b) for a, b in self._spans[name].values() if now - b < _REMEMBER_SESSIONS]
        # Of two that spoke in turn, each began before the other ended.
        return max((max(1, sum(a < d and c < b for c, d in spans)) for a, b in spans), default=0)
