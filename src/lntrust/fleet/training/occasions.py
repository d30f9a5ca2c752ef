"""When to probe out of turn: somebody is there that was not probed as it is now."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from lntrust.fleet.logs import event
from lntrust.fleet.peers.neighbours import Neighbours

OUT_OF_TURN = 2.0  # seconds at least between two refreshes because somebody came


class Occasions:
    """One that gives cause again and again is believed less and less often."""

    def __init__(self, circle: Neighbours, longest: float) -> None:
        self._circle, self._longest = circle, longest
        self._believed: dict[str, tuple[float, float]] = {}  # from when a neighbour may cause a refresh again
        self._probed_at: dict[str, int] = {}  # at which of its appearances each was probed

    def wait_for_somebody(self, seconds: float, stopping: threading.Event) -> None:
        """Until a first neighbour is there, or the time is over."""
        deadline = time.monotonic() + seconds
        while not (met := self._circle.somebody()) and time.monotonic() < deadline and not stopping.wait(0.1):
            pass
        if not met:
            event("nobody is there", level=logging.WARNING, note="stage 2 begins alone")

    def probed(self, names: Iterable[str]) -> None:
        """These have just been."""
        self._probed_at = {name: self._circle.appearances(name) for name in names}

    def somebody_came(self, probed: Mapping[str, int]) -> bool:
        """Whether a neighbour is new, was away, or has an older model than the version that was probed."""
        now, came = time.monotonic(), False
        for name in set(self._circle.chosen()) & self._circle.present:
            until, pause = self._believed.get(name, (0.0, OUT_OF_TURN))
            if now >= until and self._gives_cause(name, probed.get(name)):
                came = True
                self._believed[name] = (now + pause, min(2 * pause, self._longest))
        return came

    def _gives_cause(self, name: str, probed: int | None) -> bool:
        version = self._circle.members[name].version
        if probed is None or (version is not None and version < probed):
            return True
        appearance = self._circle.appearances(name)
        return appearance != self._probed_at.get(name, appearance)
