"""Answers neighbours' questions, or refuses them with a reason."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom, why
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.limits import EMPTY_QUOTA, DuplicateNames, Quota
from lntrust.fleet.peers.traffic import HELLO, SERVED, TrafficCounters, size_of
from lntrust.fleet.peers.transport import BUSY, QuotaError
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.learner import Snapshot
from lntrust.network.codec import Message, encode
from lntrust.world.data.datasets import check_finite

_ABOUT_NOTHING = ("protocol", "malformed", "hello", "shape", "input", "form")  # what is refused for these


class QueryHandler:
    """Called with an asker's name, which access control vouches for, and its message; returns the reply.

    Raises LNTrustError to refuse, and counts why. Several threads may call it.
    """

    def __init__(
        self, settings: NodeSettings, traffic: TrafficCounters, snapshot: Callable[[int], Snapshot],
        facts: Callable[[], dict[str, Any]],
    ) -> None:  # fmt: skip
        self._settings, self._traffic, self._snapshot, self._facts = settings, traffic, snapshot, facts
        rate, burst = settings.limits.rate, settings.limits.burst
        self._quotas = {each.name: Quota(rate, burst) for each in settings.peers}
        # Hellos, and whatever is no question, use up no examples: they have a quota of their own.
        self._empty_quotas = {each.name: Quota(*EMPTY_QUOTA) for each in settings.peers}
        self.duplicates, self._seldom = DuplicateNames(), Seldom()
        self._greeted: set[str] = set()

    def __call__(self, asker: str, data: bytes, attachment: bytes | None = None) -> bytes:
        self._traffic.count("queries in", asker)
        with self._refusing("malformed", asker):
            message = wire.read(data)
        is_hello = wire.HELLO in message.tensors
        phase = HELLO if is_hello else SERVED
        self._traffic.received(asker, phase, "query", size_of(message.tensors.values(), len(data)))
        reply = self._greet(asker, message) if is_hello else self._answer(asker, message, attachment)
        out = encode(reply)
        self._traffic.sent(asker, phase, "reply", size_of(reply.tensors.values(), len(out)))
        return out

    def busy(self, asker: str) -> None:
        """The door has turned somebody away."""
        self._traffic.count("queries in", asker)
        self._traffic.count("refusals", "busy")

    def _greet(self, asker: str, message: Message) -> Message:
        """Compare what both mean by inputs and classes."""
        if self._empty_quotas[asker].take(1, time.monotonic()):
            raise self._refusal("quota", BUSY, asker)  # an older node takes any other reason for a difference
        with self._refusing("malformed", asker):
            theirs = wire.facts_in(message)
        if theirs["session"]:
            self.duplicates.add(asker, theirs["session"], time.monotonic())
        mine = self._facts()
        if (difference := wire.mismatch(mine, theirs)) is not None:
            self._greeted.discard(asker)
            self._seldom.event("neighbour does not fit", neighbour=asker, reason=difference)
            raise self._refusal("mismatch", difference, asker)
        self._greeted.add(asker)
        return wire.hello(mine, "reply")

    def _answer(self, asker: str, message: Message, attachment: bytes | None) -> Message:
        if asker not in self._greeted:
            raise self._refusal("hello", wire.HELLO_FIRST, asker)
        with self._refusing("shape", asker):
            x = wire.inputs_in(message, self._settings.input)
        with self._refusing("input", asker):
            check_finite(wire.BAD_INPUT.removesuffix(":"), x)
        with self._refusing("form", asker):
            encoding = wire.encoding_in(message)
        # Also one about no example counts.
        quota, count = (self._quotas, len(x)) if len(x) else (self._empty_quotas, 1)
        if wait := quota[asker].take(count, time.monotonic()):
            when = "never at once" if wait == float("inf") else f"in {wait:.1f} s"
            raise self._refusal("quota", f"quota: {len(x)} examples can be asked about {when}", asker)
        with self._refusing("round", asker):
            snapshot = self._snapshot(wire.round_in(attachment))
        try:
            p = snapshot.predict(x)
        except Exception as error:  # the model is the user's, and may fail in any way
            self._seldom.event("no answer to a neighbour", neighbour=asker, error=why(error))
            text = f"{wire.BAD_INPUT} this node's model fails on them"
            raise self._refusal("unsound", text, asker) from None
        if not wire.are_probabilities(p):
            text = f"{wire.BAD_INPUT} this node's answers are no probabilities"
            raise self._refusal("unsound", text, asker)
        return wire.reply(p, message.round, snapshot.version, encoding, self._settings.training.precision)

    @contextmanager
    def _refusing(self, reason: str, asker: str) -> Iterator[None]:
        """An error of the block is a refusal."""
        try:
            yield
        except LNTrustError as error:
            kind = "protocol" if "speaks protocol" in str(error) else reason
            raise self._refusal(kind, str(error), asker) from None

    def _refusal(self, reason: str, text: str, asker: str) -> LNTrustError:
        """Counted; and what is about no example has a quota, too."""
        if reason in _ABOUT_NOTHING and (wait := self._empty_quotas[asker].take(1, time.monotonic())):
            reason, text = "quota", f"quota: messages about nothing are read in {wait:.1f} s"
        self._traffic.count("refusals", reason)
        return QuotaError(text) if reason == "quota" else LNTrustError(text)
