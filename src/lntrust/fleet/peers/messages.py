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
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.transport import BUSY
from lntrust.fleet.peers.zenoh_config import LIMIT
from lntrust.fleet.settings import InputSettings
from lntrust.network.codec import PROTOCOL, Message, decode, size
from lntrust.network.encodings import ReplyEncoding

INPUTS, PROBABILITIES, HELLO = "inputs", "probabilities", "hello"
HELLO_FIRST = "say hello first"
BAD_INPUT = "inputs:"  # so begins a refusal that is due to the inputs of a question
_BAD_REQUEST = ("HTTP 400:", "HTTP 422:")  # a server's way to say the same
ANY = 1 << 40  # inputs: more than anybody asks about
NOW = -1  # the round of a question that belongs to none
_LONGEST = 64 << 10  # bytes of a hello
_LONGEST_HEADER = 4 << 10  # bytes: a message between nodes has a handful of tensors
_FLOAT32, _UINT8, _MOST_CLASSES = 0, -1, 9999  # numbers of encodings; K stands for topK


@dataclass(frozen=True)
class Reply:
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


def failure_of(reason: str) -> Failure:
    """What a refusal means: it has too much to do, had too much of us, cannot use it, or does not want to."""
    if reason == BUSY:
        return Failure("busy", reason)
    if reason.startswith((BAD_INPUT, *_BAD_REQUEST)):
        return Failure("input", reason)
    if not reason.startswith("quota:"):
        return Failure("refused", reason)
    named = re.search(r"in (\d+\.\d) s", reason)
    return Failure("quota", reason, float(named[1]) if named else float("inf"))


def facts(
    wanted: InputSettings, degree: int, version: int, most: int = ANY, session: str = ""
) -> dict[str, Any]:
    """What a node says of itself when it meets another."""
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
        raise LNTrustError(_cut(str(error))) from None


def facts_in(message: Message) -> dict[str, Any]:
    """The facts in a hello, or an error that says what is wrong with them."""
    tensor = message.tensors.get(HELLO)
    if tensor is None or tensor.dtype != np.uint8 or tensor.ndim != 1 or len(tensor) > _LONGEST:
        raise LNTrustError("hello: must be a tensor of bytes")
    try:
        about = json.loads(tensor.tobytes())
    except (ValueError, RecursionError):
        raise LNTrustError("hello: not JSON") from None
    if not isinstance(about, dict):
        raise LNTrustError("hello: must be a JSON object")
    return about


def mismatch(mine: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """Why two nodes cannot work together, if so; in the words of the first."""
    for name in ("protocol", "input", "shape", "dtype"):
        if theirs.get(name) != mine[name]:
            return f"{name} is {mine[name]!r} here and {_cut(repr(theirs.get(name)))} there"
    if theirs.get("classes") == mine["classes"]:
        return None
    classes = theirs.get("classes")
    if isinstance(classes, list) and sorted(map(str, classes)) == sorted(mine["classes"]):
        pairs = enumerate(zip(mine["classes"], classes, strict=True))
        place, (a, b) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        return f"classes are in another order: class {place} is {a!r} here and {_cut(repr(b))} there"
    return f"classes are {_cut(repr(mine['classes']))} here and {_cut(repr(classes))} there"


def degree_of(theirs: dict[str, Any]) -> int:
    degree = theirs.get("degree")
    return degree if isinstance(degree, int) and 0 <= degree < 1_000_000 else 0


def most_of(theirs: dict[str, Any]) -> int:
    """How many inputs it takes at once, by its quota."""
    most = theirs.get("most")
    return most if isinstance(most, int) and 1 <= most <= ANY else ANY


def session_of(theirs: dict[str, Any]) -> str | None:
    """The number of its session, by which two of one name differ; older nodes say none."""
    session = theirs.get("session")
    return session if isinstance(session, str) and 0 < len(session) <= 64 else None


def attachment(round_: int) -> bytes:
    """Of a question in lockstep: its round."""
    return str(round_).encode()


def round_in(attached: bytes | None) -> int:
    """The round that a question in lockstep names; if none, it is about now."""
    if attached is None:
        return NOW
    if not re.fullmatch(rb"-?[0-9]{1,18}", attached):
        raise LNTrustError("beside the question: must be a round, in digits")
    return int(attached)


def question(x: Shaped[ndarray, "m *s"], round_: int = 0, encoding: ReplyEncoding | None = None) -> Message:
    name = "float32" if encoding is None else encoding.name
    plain = {"float32": _FLOAT32, "uint8": _UINT8}
    number = plain[name] if name in plain else int(name.removeprefix("top"))
    return Message("query", {INPUTS: x}, round=round_, version=number)


def encoding_in(message: Message) -> ReplyEncoding:
    """Which encoding a question wants its reply in."""
    number = message.version
    if 1 <= number <= _MOST_CLASSES:
        return ReplyEncoding(f"top{number}")
    if number in (_FLOAT32, _UINT8):
        return ReplyEncoding("uint8" if number else "float32")
    raise LNTrustError(
        f"replies of form {number} are unknown here; known are 0 (float32), -1 (uint8), and K from 1 to "
        f"{_MOST_CLASSES} (topK)"
    )


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
    p: Float[ndarray, "m C"], round_: int, version: int, encoding: ReplyEncoding | None = None,
    precision: str = "float32",
) -> Message:  # fmt: skip
    """The reply, in the encoding that was asked for.

    Encoded in the precision that the node computes in, it is what a simulation of that precision sees.
    """
    if encoding is None or encoding.exact:
        return Message("reply", {PROBABILITIES: p}, round=round_, version=version)
    if not are_probabilities(p):  # encoded they would look as if they were
        raise LNTrustError("this node's answers are no probabilities")
    codes = encoding.encode(torch.from_numpy(p).to(getattr(torch, precision)))
    return Message("reply", {name: t.numpy() for name, t in codes.items()}, round=round_, version=version)


def probabilities_in(
    message: Message, m: int, C: int, encoding: ReplyEncoding | None = None
) -> Float[ndarray, "m C"]:
    """The numbers of a reply; whether they are probabilities is up to the caller.

    In the encoding that was asked for, or in float32: an older node knows no other.
    """
    p = message.tensors.get(PROBABILITIES)
    if message.kind == "reply" and p is None and encoding is not None and not encoding.exact:
        return _decoded(message, m, C, encoding)
    if message.kind != "reply" or p is None:
        raise LNTrustError(f"a reply needs a tensor {PROBABILITIES!r}")
    if p.dtype != np.float32 or p.shape != (m, C):
        raise LNTrustError(f"reply is {p.dtype}{list(p.shape)}; must be float32[{m}, {C}]")
    return p.copy()  # what was read is a window on the message, and cannot be written to


def _decoded(message: Message, m: int, C: int, encoding: ReplyEncoding) -> Float[ndarray, "m C"]:
    """Probabilities out of codes of which nothing is taken for granted."""
    parts = {}
    for name, (shape, dtype) in encoding.specs(m, C).items():
        part = message.tensors.get(name)
        if part is None:
            raise LNTrustError(f"a reply of form {encoding.name} needs a tensor {name!r}")
        if part.dtype != dtype or part.shape != shape:
            raise LNTrustError(f"{name} are {part.dtype}{list(part.shape)}; must be {dtype}{list(shape)}")
        parts[name] = part.copy()
    if not parts["codes"].any(1).all():
        raise LNTrustError("codes are all 0, so that no class is likely")
    if "classes" in parts:
        numbers = np.sort(parts["classes"], axis=1)
        if m and not (numbers.min() >= 0 and numbers.max() < C):
            raise LNTrustError(f"classes are not all among 0…{C - 1}")
        if (numbers[:, 1:] == numbers[:, :-1]).any():
            raise LNTrustError("classes are named more than once")
    codes = {name: torch.from_numpy(part) for name, part in parts.items()}
    p: Float[ndarray, "m C"] = encoding.decode(codes, C).numpy()
    return p


def are_probabilities(p: Float[ndarray, "m C"]) -> bool:
    """Whether all rows are finite, not negative, and sum to one: `network.probability_rows`, but faster."""
    # NaN fails both comparisons, and infinity the second.
    return not p.size or bool(p.min() >= 0 and np.abs(p.sum(1) - 1.0).max() < 1e-3)


def at_once(wanted: InputSettings) -> int:
    """How many inputs fit into one question, and their answers into one reply."""
    C = len(wanted.classes)
    per_input = max(prod(wanted.shape) * np.dtype(wanted.dtype).itemsize, 4 * C)
    head = max(
        size({INPUTS: ((9_999_999, *wanted.shape), wanted.dtype)}).framing,
        size({PROBABILITIES: ((9_999_999, C), "float32")}).framing,
    )
    if per_input + head > LIMIT:
        raise LNTrustError(
            f"input.shape {list(wanted.shape)}: {per_input + head} bytes in a message; at most {LIMIT}"
        )
    return int((LIMIT - head) // per_input)


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
