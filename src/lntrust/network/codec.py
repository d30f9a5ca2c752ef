"""Messages as safetensors bytes, and their exact size without encoding them.

A message is a few named tensors. The numbers of its envelope (protocol, kind, round, model version)
travel in one more tensor, `envelope`, int64[4]; metadata text is never used, since its order and length
vary. Payload is the bytes of the message's own tensors; framing is the header and the envelope.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal, get_args

import numpy as np
from numpy import ndarray

from lntrust.core.errors import LNTrustError

PROTOCOL = 1
Kind = Literal["query", "reply", "parameters", "anchors"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_ENVELOPE = "envelope"

# numpy dtype → safetensors name, in the order of the format: tensors are laid out from the last dtype
# of this list to the first, and by name inside one dtype.
_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16",
    "int32": "I32", "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
_NUMPY = {theirs: f"<{np.dtype(ours).str[1:]}" for ours, theirs in _DTYPES.items()}
_LONGEST_HEADER = 1 << 20
_REMEMBERED = 1024  # bytes of a header
_MOST_SIDES = 32
_ORDER = {name: rank for rank, name in enumerate(_DTYPES)}

Spec = tuple[tuple[int, ...], str]  # shape, numpy dtype


@dataclass(frozen=True)
class Message:
    """What passes between two nodes."""

    kind: Kind
    tensors: Mapping[str, ndarray]
    round: int = 0
    version: int = 0


@dataclass(frozen=True)
class Size:
    """Bytes of one message."""

    payload: int
    framing: int

    @property
    def total(self) -> int:
        return self.payload + self.framing


def encode(message: Message) -> bytes:
    """The bytes that go over the wire."""
    if _ENVELOPE in message.tensors:
        raise LNTrustError(f"a message cannot carry a tensor named {_ENVELOPE!r}: the name is taken")
    numbers = (PROTOCOL, KINDS.index(message.kind), message.round, message.version)
    tensors = {name: np.asarray(t) for name, t in message.tensors.items()}
    tensors[_ENVELOPE] = np.array(numbers, dtype=np.int64)
    # Written by hand: safetensors' own `save` takes 2 ms for a question of a megabyte, and this a tenth.
    head, order = _header(frozenset((name, (t.shape, t.dtype.name)) for name, t in tensors.items()))
    little = (np.ascontiguousarray(tensors[n], tensors[n].dtype.newbyteorder("<")) for n in order)
    return b"".join([head, *(t.reshape(-1).view(np.uint8).data for t in little)])


def decode(data: bytes) -> Message:
    """The message in these bytes, or an error that says what is wrong with them.

    Its tensors are windows on the bytes, and cannot be written to.
    """
    try:
        tensors = _views(data)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise LNTrustError(f"message of {len(data)} bytes: not safetensors: {error}") from None
    envelope = tensors.pop(_ENVELOPE, None)
    if envelope is None or envelope.dtype != np.int64 or envelope.shape != (4,):
        raise LNTrustError(f"message: needs a tensor {_ENVELOPE!r}, int64[4]")
    protocol, kind, round_, version = map(int, envelope)
    if protocol != PROTOCOL:
        raise LNTrustError(f"message: speaks protocol {protocol}; this node speaks {PROTOCOL}")
    if not 0 <= kind < len(KINDS):
        raise LNTrustError(f"message: kind {kind} is unknown; known are 0…{len(KINDS) - 1}")
    return Message(KINDS[kind], tensors, round_, version)


def _views(data: bytes) -> dict[str, ndarray]:
    """The tensors of a safetensors file, without a copy: what the format's own library refuses is refused.

    By hand, since that library copies every tensor, which takes longer than to check all claims.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _LONGEST_HEADER):
        raise ValueError(f"a header of {length} bytes")
    begin = 8 + length
    # Most messages have the header of one before; a long one is not worth remembering, or an attack.
    read = _layout if length <= _REMEMBERED else _layout.__wrapped__
    return {
        name: np.frombuffer(data, dtype, count, begin + first).reshape(shape)
        for name, dtype, shape, count, first in read(data[8:begin], len(data) - begin)
    }


@lru_cache(256)
def _layout(text: bytes, there: int) -> tuple[tuple[str, np.dtype[Any], tuple[int, ...], int, int], ...]:
    """Name, dtype, shape, count and place of every tensor, if a header's claims fit so many bytes."""
    header = json.loads(text.decode("utf-8"), parse_constant=_no_number)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata are no table of texts")
    out = []
    reached = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = np.dtype(_NUMPY[entry["dtype"]]), entry["shape"]
        first, last = entry["data_offsets"]
        if (
            type(shape) is not list
            or len(shape) > _MOST_SIDES
            or any(type(n) is not int or not 0 <= n < 2**48 for n in (first, last, *shape))
        ):
            raise ValueError(f"tensor {name!r}: shape and offsets must be whole numbers")
        count = prod(shape)
        if first != reached or last - first != count * dtype.itemsize:
            raise ValueError(f"tensor {name!r}: {last - first} bytes from {first}, for {dtype}{shape}")
        reached = last
        out.append((name, dtype, tuple(shape), count, first))
    if reached != there:
        raise ValueError(f"its tensors have {reached} bytes, and {there} are there")
    return tuple(out)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def size(tensors: Mapping[str, Spec]) -> Size:
    """Size of a message from names, shapes and dtypes alone: `len(encode(…))`, exactly.

    >>> size({"probabilities": ((256, 10), "float32")}).payload
    10240
    """
    specs = ((name, (tuple(shape), dtype)) for name, (shape, dtype) in tensors.items())
    head, _ = _header(frozenset([*specs, (_ENVELOPE, ((4,), "int64"))]))
    payload = sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in tensors.values())
    return Size(payload=payload, framing=len(head) + 4 * 8)


@lru_cache(1024)
def _header(specs: frozenset[tuple[str, Spec]]) -> tuple[bytes, tuple[str, ...]]:
    """The bytes before the tensors' own, and in which order these follow."""
    header: dict[str, object] = {}
    offset = 0
    for name, (shape, dtype) in sorted(specs, key=lambda spec: (-_ORDER[spec[1][1]], spec[0])):
        end = offset + prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, tuple(header)
