"""What is known of one neighbour, what it said, and why it did not."""

import re
from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray

from lntrust.fleet import wire
from lntrust.fleet.foreign import Foreign
from lntrust.fleet.limits import Breaker
from lntrust.fleet.settings import NeighbourSettings
from lntrust.fleet.transport import BUSY


@dataclass
class Neighbour:
    """What is known of one. Plain fields: several threads read them, whoever heard last writes."""

    settings: NeighbourSettings
    breaker: Breaker
    foreign: Foreign | None = None
    seen: int = 0  # at which of its appearances it was last looked at
    greeted: int = 0  # at which of its appearances it answered a hello; 0: never
    degree: int = 0
    most: int = wire.ANY  # inputs that it takes at once
    refused: str | None = None  # why it does not fit, until it is greeted again
    version: int | None = None  # of its model, by its last reply
    heard_at: float | None = None
    round_trip: float | None = None  # seconds a hello takes


@dataclass(frozen=True)
class Heard:
    """A sound reply: rows are probability vectors."""

    probabilities: Float[ndarray, "m C"]
    version: int


@dataclass(frozen=True)
class Failure:
    """No reply, or none that can be used."""

    kind: str  # as counted: absent, silent, busy, quota, refused, malformed, unsound, breaker, mismatch
    text: str
    wait: float = 0.0  # seconds after which it would answer, if it said so


def refused(reason: str) -> Failure:
    """What a refusal means: it has too much to do, or has had too much of us, or does not want to."""
    if reason == BUSY:
        return Failure("busy", reason)
    if not reason.startswith("quota:"):
        return Failure("refused", reason)
    named = re.search(r"in (\d+\.\d) s", reason)
    return Failure("quota", reason, float(named[1]) if named else float("inf"))
