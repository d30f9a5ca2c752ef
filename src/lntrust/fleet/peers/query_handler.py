"""The desk where neighbours' questions are answered, or refused with a reason."""

import threading
import time
from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.doubles import Doubles
from lntrust.fleet.peers.limits import Quota
from lntrust.fleet.peers.neighbour import BAD_INPUT
from lntrust.fleet.peers.traffic import HELLO, SERVED, TrafficCounters, size_of
from lntrust.fleet.peers.transport import BUSY, EnoughError
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.learner import Snapshot
from lntrust.network.codec import Message, encode
from lntrust.world.data.datasets import check_finite

HELLO_FIRST = "say hello first"
_LONGEST_WHY = 400  # characters of a model's own error that are logged
_TRIFLES, _TRIFLES_AT_ONCE = 20.0, 100.0  # messages a second of one neighbour that are about no example


class QueryHandler:
    """Called with an asker's name, which access control vouches for, and its message; returns the answer.

    Raises LNTrustError to refuse, and counts why. Several threads may call it.
    """

    def __init__(
        self,
        settings: NodeSettings,
        books: TrafficCounters,
        snapshot: Callable[[int], Snapshot],
        facts: Callable[[], dict[str, Any]],
        doubles: Doubles | None = None,
    ) -> None:
        self._settings, self._books = settings, books
        self._snapshot, self._facts = snapshot, facts
        limits = settings.limits
        self._quotas = {each.name: Quota(limits.rate, limits.burst) for each in settings.peers}
        # Who asks about nothing uses up no examples: hellos, and whatever is no question, have their own.
        self._trifles = {each.name: Quota(_TRIFLES, _TRIFLES_AT_ONCE) for each in settings.peers}
        self._doubles, self._seldom = doubles or Doubles(), Seldom()
        self._met: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, asker: str, data: bytes, beside: bytes | None = None) -> bytes:
        self._books.count("queries in", asker)
        try:
            message = wire.read(data)
        except LNTrustError as error:
            self._trifle(asker)
            raise self._refusal("protocol" if "protocol" in str(error) else "malformed", str(error)) from None
        is_hello = wire.HELLO in message.tensors
        self._books.received(asker, HELLO if is_hello else SERVED, "query", size_of(message, data))
        answer = self._greeted(asker, message) if is_hello else self._answered(asker, message, beside)
        out = encode(answer)
        self._books.sent(asker, HELLO if is_hello else SERVED, "reply", size_of(answer, out))
        return out

    def _greeted(self, asker: str, message: Message) -> Message:
        """Compare what both mean by inputs and classes."""
        self._trifle(asker, BUSY)  # an older node takes any other reason for a difference
        try:
            theirs = wire.told(message)
        except LNTrustError as error:
            raise self._refusal("malformed", str(error)) from None
        session = wire.session_of(theirs)
        if session is not None:
            self._doubles.heard(asker, session)
        mine = self._facts()
        difference = wire.mismatch(mine, theirs)
        with self._lock:
            if difference is None:
                self._met.add(asker)
            else:
                self._met.discard(asker)
        if difference is not None:
            self._seldom.event("neighbour does not fit", neighbour=asker, reason=difference)
            raise self._refusal("mismatch", difference)
        return wire.hello(mine, "reply")

    def _answered(self, asker: str, message: Message, beside: bytes | None) -> Message:
        with self._lock:
            met = asker in self._met
        if not met:
            self._trifle(asker)
            raise self._refusal("hello", HELLO_FIRST)
        try:
            x = wire.asked(message, self._settings.input)
        except LNTrustError as error:
            self._trifle(asker)
            raise self._refusal("shape", str(error)) from None
        try:
            check_finite(BAD_INPUT.removesuffix(":"), x)
        except LNTrustError as error:
            self._trifle(asker)
            raise self._refusal("input", str(error)) from None
        try:
            form = wire.wanted_form(message)
        except LNTrustError as error:
            self._trifle(asker)
            raise self._refusal("form", str(error)) from None
        if not len(x):
            self._trifle(asker)
        wait = self._quotas[asker].take(len(x), time.monotonic())
        if wait:
            when = "never at once" if wait == float("inf") else f"in {wait:.1f} s"
            raise self._refusal("quota", f"quota: {len(x)} examples can be asked about {when}")
        try:
            snapshot = self._snapshot(wire.round_beside(beside))
        except LNTrustError as error:
            raise self._refusal("round", str(error)) from None
        p, precision = self._predicted(snapshot, x, asker), self._settings.training.precision
        return wire.reply(p, message.round, snapshot.version, form, precision)

    def _predicted(self, snapshot: Snapshot, x: Shaped[ndarray, "m *s"], asker: str) -> Float[ndarray, "m C"]:
        """Probabilities. If the model has none for these inputs, it is they that are refused."""
        try:
            p = snapshot.predict(x)
        except Exception as error:  # the model is the user's, and may fail in any way
            why = f"{type(error).__name__}: {error}"[:_LONGEST_WHY]
            self._seldom.event("no answer to a neighbour", neighbour=asker, error=why)
            raise self._refusal("unsound", f"{BAD_INPUT} this node's model fails on them") from None
        if not wire.are_probabilities(p):
            raise self._refusal("unsound", f"{BAD_INPUT} this node's answers are no probabilities")
        return p

    def _trifle(self, asker: str, text: str = "") -> None:
        """It is about no example, and counts all the same."""
        wait = self._trifles[asker].take(1, time.monotonic())
        if wait:
            raise self._refusal("quota", text or f"quota: messages about nothing are read in {wait:.1f} s")

    def busy(self, asker: str) -> None:
        """The door has turned somebody away."""
        self._books.count("queries in", asker)
        self._books.count("refusals", "busy")

    def _refusal(self, reason: str, text: str) -> LNTrustError:
        self._books.count("refusals", reason)
        return EnoughError(text) if reason == "quota" else LNTrustError(text)
