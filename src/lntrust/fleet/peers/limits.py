"""How a node bears neighbours that ask too much, fail, or share a name: quota, breaker, duplicates.

All take the time as a number of seconds, so that a test can be their clock. Several threads may use them.
"""

import math
import threading
from collections import defaultdict
from enum import StrEnum

EMPTY_QUOTA = (20.0, 100.0)  # of one neighbour's messages that are about no example: a second, and at once
_REMEMBER_SESSIONS = 600.0  # seconds
_SESSIONS_PER_NAME = 16  # whoever makes up ever more fills no memory


class Quota:
    """A token bucket: `rate` examples a second, and at most `burst` of them at once.

    Protects against floods, and makes copying a model by asking it take long.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._left = rate, burst, burst
        self._at, self._lock = -math.inf, threading.Lock()

    def take(self, examples: float, now: float) -> float:
        """0 if these may be asked now, and they are taken; else the seconds until they may.

        More than `burst` at once are never granted; the answer is then infinite.
        """
        if examples > self._burst:
            return math.inf
        with self._lock:
            if now > self._at:  # a clock that goes back gives nothing
                self._left = min(self._burst, self._left + (now - self._at) * self._rate)
                self._at = now
            if examples <= self._left:
                self._left -= examples
                return 0.0
            return (examples - self._left) / self._rate


class State(StrEnum):
    """Of a breaker; `/metrics` has their place in this list."""

    CLOSED = "closed"  # questions pass
    HALF_OPEN = "half open"  # one question passes, to see
    OPEN = "open"  # none passes


class Breaker:
    """Stops asking a neighbour that fails again and again, and tries it now and then.

    After `failures` in a row it opens for `pause` seconds; then one question may pass. If that fails, it
    opens for twice as long, up to `longest`; if it succeeds, all is as before.
    """

    def __init__(self, failures: int = 3, pause: float = 1.0, longest: float = 60.0) -> None:
        self._failures, self._first, self._longest = failures, pause, longest
        self._lock, self._changes = threading.Lock(), 0
        self._close()

    def _close(self) -> None:
        self._row, self._pause, self._trying = 0, 0.0, False
        self._until: float | None = None  # none: it is closed
        self._came = -math.inf  # when it was last tried because it had come

    def state(self, now: float) -> State:
        until = self._until
        if until is None:
            return State.CLOSED
        return State.OPEN if now < until or self._trying else State.HALF_OPEN

    def admits(self, now: float, changes: int = 0) -> bool:
        """Whether to ask now, if so often it has come or gone. Whoever asks then has to `tell` how it went.

        One that has come anew may be well again: it is tried at once, but for that reason only once in
        `longest` seconds, and a failure counts on from where it was: coming and going is no answer.
        """
        with self._lock:
            if changes > self._changes:
                self._changes = changes
                if self.state(now) is State.OPEN and not self._trying and now - self._came >= self._longest:
                    self._came = self._until = now
            state = self.state(now)
            self._trying = self._trying or state is State.HALF_OPEN
            return state is not State.OPEN

    def tell(self, well: bool | None, now: float) -> None:
        """Whether it is well; none: nothing is known that was not before."""
        with self._lock:
            if well:
                self._close()
            elif well is None:
                self._trying = False
            else:
                self._row += 1
                # Once it is open, failures of questions from before change nothing.
                if self._trying or (self._until is None and self._row >= self._failures):
                    self._pause = min(self._pause * 2 or self._first, self._longest)
                    self._until, self._trying = now + self._pause, False


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
