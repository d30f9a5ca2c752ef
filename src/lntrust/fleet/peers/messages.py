"""What nodes say to each other, in the codec's messages: hello, questions, replies, refusals.

Two nodes that meet compare what they mean by an input and by a class. Permuted classes would only look like
an untrustworthy neighbour, so they are refused by name.

A question names the encoding of its reply by a number, in place of the model's version in its envelope: 0 is
float32, as ever, so that it costs no byte, and a node that knows no other replies so. Its round is always the
same: a neighbour that could tell a probe from a client's question could be right on the one and wrong on the
other. In lockstep the round is an attachment of the message.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.transport import BUSY, readable
from lntrust.fleet.peers.zenoh_config import LIMIT
from lntrust.fleet.settings import InputSettings
from lntrust.network.codec import PROTOCOL, Message, decode, size
from lntrust.network.encodings import ReplyEncoding

INPUTS, PROBABILITIES, HELLO = "inputs", "probabilities", "hello"
HELLO_FIRST = "say hello first"
BAD_INPUT = "inputs:"  # so begins a refusal that is due to the inputs of a question
EXACT = ReplyEncoding()
ANY = 1 << 40  # inputs: more than anybody asks about
NOW = -1  # the round of a question that belongs to none
_MANY = 9_999_999  # inputs: no message has a longer number of them
_LONGEST = 64 << 10  # bytes of a hello
_LONGEST_HEADER = 4 << 10  # bytes: a message between nodes has a handful of tensors
_FORMS = {0: "float32", -1: "uint8"}  # of replies; K stands for topK


@dataclass(frozen=True)
class Reply:
    """A sound reply: rows are probability vectors."""

    probabilities: Float[ndarray, "m C"]
    version: int


@dataclass(frozen=True)
class Failure:
    """No reply, or none that can be used."""

    # absent, silent, busy, quota, put off, few, queue, input, refused, malformed, unsound, breaker, mismatch
    kind: str
    text: str
    wait: float = 0.0  # seconds after which it would answer, if it said so


def failure_of(reason: str) -> Failure:
    """What a refusal means: it has too much to do, had too much of us, cannot use it, or does not want to."""
    if reason == BUSY:
        return Failure("busy", reason)
    if reason.startswith((BAD_INPUT, "HTTP 400:", "HTTP 422:")):  # a server says it in its own way
        return Failure("input", reason)
    if not reason.startswith("quota:"):
        return Failure("refused", reason)
    named = re.search(r"in (\d+\.\d) s", reason)
    return Failure("quota", reason, float(named[1]) if named else float("inf"))


def facts(
    wanted: InputSettings, degree: int, version: int, most: int = ANY, session: str = ""
) -> dict[str, Any]:
    """What a node says of itself when it meets another: how many neighbours it has, how many inputs it takes
    at once, and the number of its session, by which two of one name differ."""
    return {
        "protocol": PROTOCOL, "input": wanted.name, "shape": list(wanted.shape), "dtype": wanted.dtype,
        "classes": list(wanted.classes), "degree": degree, "version": version, "most": most,
        "session": session,
    }  # fmt: skip


def hello(about: dict[str, Any], kind: Any = "query") -> Message:
    text = json.dumps(about, separators=(",", ":")).encode()
    return Message(kind, {HELLO: np.frombuffer(text, dtype=np.uint8)}, version=int(about["version"]))


def read(data: bytes) -> Message:
    """The message in these bytes, or an error of bearable length: what is wrong may quote the sender.

    A header of ten thousand tensors is not even looked at: it would cost the reader more than the sender.
    """
    header = int.from_bytes(data[:8], "little")
    if _LONGEST_HEADER < header <= len(data):
        raise LNTrustError(f"its header has {header} bytes; at most {_LONGEST_HEADER} are read")
    try:
        return decode(data)
    except LNTrustError as error:
        raise LNTrustError(readable(str(error))) from None


def facts_in(message: Message) -> dict[str, Any]:
    """The facts in a hello, or an error that says what is wrong with them.

    What nodes may differ in, and older ones leave out, is replaced if it makes no sense.
    """
    tensor = message.tensors.get(HELLO)
    if tensor is None or tensor.dtype != np.uint8 or tensor.ndim != 1 or len(tensor) > _LONGEST:
        raise LNTrustError("hello: must be a tensor of bytes")
    try:
        about = json.loads(tensor.tobytes())
    except (ValueError, RecursionError):
        raise LNTrustError("hello: not JSON") from None
    if not isinstance(about, dict):
        raise LNTrustError("hello: must be a JSON object")
    session = about.get("session")
    return {
        **about,
        "degree": _whole(about.get("degree"), 0, 999_999, otherwise=0),
        "most": _whole(about.get("most"), 1, ANY, otherwise=ANY),
        "session": session if isinstance(session, str) and len(session) <= 64 else "",
    }


def _whole(number: Any, least: int, most: int, otherwise: int) -> int:
    return number if isinstance(number, int) and least <= number <= most else otherwise


def mismatch(mine: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """Why two nodes cannot work together, if so; in the words of the first."""
    for name in ("protocol", "input", "shape", "dtype", "classes"):
        here, there, what = mine[name], theirs.get(name), f"{name} is"
        if here == there:
            continue
        if name == "classes":
            what = "classes are"
            if isinstance(there, list) and sorted(map(str, there)) == sorted(here):
                place = next(i for i, both in enumerate(zip(here, there, strict=True)) if both[0] != both[1])
                what = f"classes are in another order: class {place} is"
                here, there = here[place], there[place]
        return f"{what} {readable(repr(here), 200)} here and {readable(repr(there), 200)} there"
    return None


def round_in(attached: bytes | None) -> int:
    """The round that is attached to a question in lockstep; if none, it is about now."""
    if attached is None:
        return NOW
    if not re.fullmatch(rb"-?[0-9]{1,18}", attached):
        raise LNTrustError("beside the question: must be a round, in digits")
    return int(attached)


def question(x: Shaped[ndarray, "m *s"], round_: int = 0, encoding: ReplyEncoding = EXACT) -> Message:
    forms = {name: number for number, name in _FORMS.items()}
    number = forms[encoding.name] if encoding.name in forms else int(encoding.name.removeprefix("top"))
    return Message("query", {INPUTS: x}, round=round_, version=number)


def encoding_in(message: Message) -> ReplyEncoding:
    """Which encoding a question wants its reply in."""
    number = message.version
    try:
        return ReplyEncoding(_FORMS.get(number, f"top{number}"))
    except LNTrustError:
        known = "0 (float32), -1 (uint8), and K from 1 to 9999 (topK)"
        raise LNTrustError(f"replies of form {number} are unknown here; known are {known}") from None


def inputs_in(message: Message, wanted: InputSettings) -> Shaped[ndarray, "m *s"]:
    """The inputs of a question, or an error that says what is wrong with them."""
    x = message.tensors.get(INPUTS)
    if message.kind != "query" or x is None:
        raise LNTrustError(f"a question needs a tensor {INPUTS!r}; this is a {message.kind}")
    if x.dtype != wanted.dtype or x.shape[1:] != tuple(wanted.shape) or not x.ndim:
        want = f"{wanted.dtype}[m, {', '.join(map(str, wanted.shape))}]"
        raise LNTrustError(f"inputs are {x.dtype}{list(x.shape)}; must be {want}")
    return x


def reply(
    p: Float[ndarray, "m C"], round_: int, version: int, encoding: ReplyEncoding = EXACT,
    precision: str = "float32",
) -> Message:  # fmt: skip
    """The reply, in the encoding that was asked for.

    Encoded in the precision that the node computes in, it is what a simulation of that precision sees.
    """
    codes = encoding.encode(torch.tensor(p, dtype=getattr(torch, precision)))
    return Message("reply", {name: t.numpy() for name, t in codes.items()}, round=round_, version=version)


def probabilities_in(
    message: Message, m: int, C: int, encoding: ReplyEncoding = EXACT
) -> Float[ndarray, "m C"]:
    """The numbers of a reply, in the encoding asked for, or in float32: an older node knows no other.

    Nothing is taken for granted; but whether floats are probabilities is up to the caller.
    """
    encoding = EXACT if PROBABILITIES in message.tensors else encoding
    parts = {}
    for name, (shape, dtype) in encoding.specs(m, C).items():
        part = message.tensors.get(name)
        if message.kind != "reply" or part is None:
            raise LNTrustError(f"a reply of form {encoding.name} needs a tensor {name!r}")
        if part.dtype != dtype or part.shape != shape:
            raise LNTrustError(f"{name} are {part.dtype}{list(part.shape)}; must be {dtype}{list(shape)}")
        parts[name] = part.copy()  # what was read is a window on the message, and cannot be written to
    if encoding.exact:
        return parts[PROBABILITIES]
    if "codes" in parts and not parts["codes"].any(1).all():
        raise LNTrustError("codes are all 0, so that no class is likely")
    if "classes" in parts:
        numbers = np.sort(parts["classes"], axis=1)
        if m and not (numbers.min() >= 0 and numbers.max() < C):
            raise LNTrustError(f"classes are not all among 0…{C - 1}")
        if (numbers[:, 1:] == numbers[:, :-1]).any():
            raise LNTrustError("classes are named more than once")
    p: Float[ndarray, "m C"] = encoding.decode({n: torch.from_numpy(t) for n, t in parts.items()}, C).numpy()
    return p


def are_probabilities(p: Float[ndarray, "m C"]) -> bool:
    """Whether all rows are finite, not negative, and sum to one: `network.probability_rows`, but faster."""
    # NaN fails both comparisons, and infinity the second.
    return not p.size or bool(p.min() >= 0 and np.abs(p.sum(1) - 1.0).max() < 1e-3)


def at_once(wanted: InputSettings) -> int:
    """How many inputs fit into one question, and their answers into one reply."""
    C = len(wanted.classes)
    both = [
        size({INPUTS: ((_MANY, *wanted.shape), wanted.dtype)}),
        size({PROBABILITIES: ((_MANY, C), "float32")}),
    ]
    per_input, head = max(each.payload for each in both) // _MANY, max(each.framing for each in both)
    if per_input + head > LIMIT:
        text = f"{per_input + head} bytes in a message; at most {LIMIT}"
        raise LNTrustError(f"input.shape {list(wanted.shape)}: {text}")
    return (LIMIT - head) // per_input
