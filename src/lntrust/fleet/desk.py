"""The desk where neighbours' questions are answered, or refused with a reason."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from lntrust.errors import LNTrustError
from lntrust.fleet import wire
from lntrust.fleet.books import HELLO, SERVED, Books, size_of
from lntrust.fleet.learner import Snapshot
from lntrust.fleet.limits import Quota
from lntrust.fleet.logs import event
from lntrust.fleet.settings import NodeSettings
from lntrust.network.codec import Message, encode

HELLO_FIRST = "say hello first"


class Desk:
    """Called with an asker's name, which access control vouches for, and its message; returns the answer.

    Raises LNTrustError to refuse, and counts why. Several threads may call it.
    """

    def __init__(
        self,
        settings: NodeSettings,
        books: Books,
        snapshot: Callable[[int], Snapshot],
        facts: Callable[[], dict[str, Any]],
    ) -> None:
        self._settings, self._books = settings, books
        self._snapshot, self._facts = snapshot, facts
        limits = settings.limits
        self._quotas = {each.name: Quota(limits.rate, limits.burst) for each in settings.peers}
        self._met: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, asker: str, data: bytes) -> bytes:
        self._books.count("queries in", asker)
        try:
            message = wire.read(data)
        except LNTrustError as error:
            raise self._refusal("protocol" if "protocol" in str(error) else "malformed", str(error)) from None
        is_hello = wire.HELLO in message.tensors
        self._books.received(asker, HELLO if is_hello else SERVED, "query", size_of(message, data))
        answer = self._greeted(asker, message) if is_hello else self._answered(asker, message)
        out = encode(answer)
        self._books.sent(asker, HELLO if is_hello else SERVED, "reply", size_of(answer, out))
        return out

    def _greeted(self, asker: str, message: Message) -> Message:
        """Compare what both mean by inputs and classes."""
        try:
            theirs = wire.told(message)
        except LNTrustError as error:
            raise self._refusal("malformed", str(error)) from None
        mine = self._facts()
        difference = wire.mismatch(mine, theirs)
        with self._lock:
            if difference is None:
                self._met.add(asker)
            else:
                self._met.discard(asker)
        if difference is not None:
            event("neighbour does not fit", level=logging.WARNING, neighbour=asker, reason=difference)
            raise self._refusal("mismatch", difference)
        return wire.hello(mine, "reply")

    def _answered(self, asker: str, message: Message) -> Message:
        with self._lock:
            met = asker in self._met
        if not met:
            raise self._refusal("hello", HELLO_FIRST)
        try:
            x = wire.asked(message, self._settings.input)
        except LNTrustError as error:
            raise self._refusal("shape", str(error)) from None
        try:
            form = wire.wanted_form(message)
        except LNTrustError as error:
            raise self._refusal("form", str(error)) from None
        wait = self._quotas[asker].take(len(x), time.monotonic())
        if wait:
            when = "never at once" if wait == float("inf") else f"in {wait:.1f} s"
            raise self._refusal("quota", f"quota: {len(x)} examples can be asked about {when}")
        try:
            snapshot = self._snapshot(message.round)
        except LNTrustError as error:
            raise self._refusal("round", str(error)) from None
        p, precision = snapshot.predict(x), self._settings.training.precision
        try:
            return wire.reply(p, message.round, snapshot.version, form, precision)
        except LNTrustError as error:
            raise self._refusal("unsound", str(error)) from None

    def busy(self, asker: str) -> None:
        """The door has turned somebody away."""
        self._books.count("queries in", asker)
        self._books.count("refusals", "busy")

    def _refusal(self, reason: str, text: str) -> LNTrustError:
        self._books.count("refusals", reason)
        return LNTrustError(text)
