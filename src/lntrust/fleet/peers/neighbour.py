"""What is known of one neighbour, what it said, and why it did not."""

import math
import re
from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray

from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.inference_server import Foreign
from lntrust.fleet.peers.limits import Breaker, Quota
from lntrust.fleet.peers.transport import BUSY
from lntrust.fleet.settings import NeighbourSettings

_MOST_PIECES = 32  # messages of one question because a neighbour takes few inputs at once
_MUTE = 30.0  # seconds
_BAD_REQUEST = ("HTTP 400:", "HTTP 422:")  # a server's way to say the same
BAD_INPUT = "inputs:"  # so begins a refusal that is due to what was asked about


@dataclass
class Neighbour:
    """What is known of one. Plain fields: several threads read them, whoever heard last writes."""

    settings: NeighbourSettings
    breaker: Breaker
    waits: Quota  # the seconds for which it may be waited for because of its quota
    foreign: Foreign | None = None
    seen: int = 0  # at which of its appearances it was last looked at
    greeted: int = 0  # at which of its appearances it answered a hello; 0: never
    mute: tuple[int, float] = (0, -math.inf)  # at which appearance, and when, it last ignored a hello
    put_off: int = 0  # refusals for its quota in a row, without an answer between
    degree: int = 0
    most: int = wire.ANY  # inputs that it takes at once
    refused: str | None = None  # why it does not fit, until it is greeted again
    version: int | None = None  # of its model, by its last reply
    heard_at: float | None = None
    round_trip: float | None = None  # seconds a hello takes

    def is_mute(self, appearance: int, now: float) -> bool:
        """Whether it has ignored a hello since it came, not long ago."""
        at, when = self.mute
        return at == appearance and now - when < _MUTE

    def put_off_again(self, failure: "Failure", patience: int) -> "Failure":
        """It has refused for its quota. Who says nothing but "later" does not answer: it is waited for no
        more, and left alone."""
        self.put_off += 1
        if self.put_off <= patience:
            return failure
        return Failure("put off", f"nothing but refusals, {self.put_off} in a row: {failure.text}")

    def takes_too_few(self, m: int, at_once: int) -> "Failure | None":
        """Whether a question about m inputs would be a storm of messages, though so many fit into one."""
        if self.most >= at_once or m <= _MOST_PIECES * self.most:
            return None
        pieces = -(-m // self.most)
        return Failure(
            "few",
            f"takes {self.most} inputs at once: {pieces} messages for {m}; at most {_MOST_PIECES} are sent",
        )


@dataclass(frozen=True)
class Heard:
    """A sound reply: rows are probability vectors."""

    probabilities: Float[ndarray, "m C"]
    version: int


@dataclass(frozen=True)
class Failure:
    """No reply, or none that can be used."""

    # As counted: absent, silent, busy, quota, put off, few, input, refused, malformed, unsound, breaker,
    # mismatch.
    kind: str
    text: str
    wait: float = 0.0  # seconds after which it would answer, if it said so


def refused(reason: str) -> Failure:
    """What a refusal means: it has too much to do, had too much of us, cannot use it, or does not want to."""
    if reason == BUSY:
        return Failure("busy", reason)
    if reason.startswith((BAD_INPUT, *_BAD_REQUEST)):
        return Failure("input", reason)
    if not reason.startswith("quota:"):
        return Failure("refused", reason)
    named = re.search(r"in (\d+\.\d) s", reason)
    return Failure("quota", reason, float(named[1]) if named else float("inf"))
