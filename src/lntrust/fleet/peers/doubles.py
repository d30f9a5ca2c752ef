"""Two that speak under one name: the authority has made a second certificate, or a key was copied.

Every session has a number of its own, a new one after each start. A node that was started again speaks with
another number than before, and never with the old one. If both are heard in turn, there are two.
"""

import threading
import time
from collections import defaultdict

_REMEMBERED = 600.0  # seconds
_MOST = 16  # sessions of one name: whoever makes up ever more fills no memory


class Doubles:
    """Which sessions were heard under which name. Several threads may use it."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
        self._lock = threading.Lock()

    def heard(self, name: str, session: str, now: float | None = None) -> None:
        """A session has spoken under a name."""
        now = time.monotonic() if now is None else now
        with self._lock:
            sessions = self._heard[name]
            first, _ = sessions.pop(session, (now, now))
            sessions[session] = (first, now)  # the last heard stands last
            if len(sessions) > _MOST:
                del sessions[next(iter(sessions))]

    def count(self, name: str, now: float | None = None) -> int:
        """How many there are of a name: 0 if none was heard lately; more than 1 is one too many."""
        now = time.monotonic() if now is None else now
        with self._lock:
            spans = [(a, b) for a, b in self._heard.get(name, {}).values() if now - b < _REMEMBERED]
        if not spans:
            return 0
        # Of two that were heard in turn, each began before the other ended.
        beside = [sum(a < d and c < b for c, d in spans) for a, b in spans]
        return max(1, *beside)
