"""Tensors of the Open Inference Protocol v2 as numpy arrays, and back: as JSON, and as bytes after the JSON.

Strings (BYTES) are written, and not read: nobody here has a use for them.
Whatever comes in may come from anybody. What does not fit is an `LNTrustError`, nothing else; and memory is
taken for numbers that are there, never for those that a shape only claims.
"""

import json
import math
import reprlib
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from lntrust.core.errors import LNTrustError

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
DATATYPES = {**{dtype: name for name, dtype in DTYPES.items()}, np.dtype(object): "BYTES"}
_LENGTH = "Inference-Header-Content-Length"  # of the JSON, if bytes follow
JSON_MEMORY = 48 << 20  # bytes that a message's JSON may take: about 600,000 numbers
# What each of these characters may cost at most, with all that is made of it here.
_COSTS = {b",": 60, b"[": 96, b"{": 256, b":": 100, b'"': 16}
_PIECE = 1 << 16  # values that are written at once: as objects they take more memory than as text


@dataclass(frozen=True)
class Tensor:
    """A tensor with its name, and whether it travels as bytes. BYTES are an object array, empty if read."""

    name: str
    array: Shaped[ndarray, "..."]
    binary: bool = False


@dataclass(frozen=True)
class InferRequest:
    """What a client asks."""

    id: str | None
    inputs: list[Tensor]
    outputs: dict[str, bool]  # those to give, and whether as bytes


def cast(tensor: Tensor, dtype: np.dtype[Any]) -> Shaped[ndarray, "..."]:
    """As the type that is needed. Numbers from JSON may have another that fits into it without loss."""
    given = DATATYPES[tensor.array.dtype]
    # For numpy every whole number fits into float64, which has 53 bits for it.
    fits = np.can_cast(tensor.array.dtype, dtype) and not (given.endswith("INT64") and dtype.kind == "f")
    if tensor.array.dtype != dtype and (tensor.binary or not fits):
        needed = f"datatype {given} is not what is needed; send {DATATYPES[dtype]}"
        raise LNTrustError(f"input {_brief(tensor.name)}: {needed}")
    return tensor.array.astype(dtype, copy=False)


# -- in ---------------------------------------------------------------------------------------------------


class _Parameters(BaseModel):
    """All that are known. None may be there of other extensions: to ignore them would mislead."""

    model_config = ConfigDict(strict=True)
    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    classification: None = None
    shared_memory_region: None = None


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)
    parameters: Annotated[_Parameters, BeforeValidator(lambda it: {} if it is None else it)] = _Parameters()


class _Output(_Entry):
    name: str


class _Head(_Output):
    """A tensor, but for bytes after the JSON."""

    datatype: Literal[(*DTYPES, "BYTES")]  # type: ignore[valid-type]
    shape: list[Annotated[int, Field(ge=0, le=1 << 40)]] = Field(max_length=32)  # the most of older numpy
    data: Any = None


class _Question(_Entry):
    """A request, but for its inputs."""

    id: str | None = None
    outputs: list[_Output] | None = Field(None, max_length=64)


_QUESTION = TypeAdapter(_Question)
_HEADS = TypeAdapter(Annotated[list[_Head], Field(max_length=64)])


def _checked(kind: TypeAdapter[Any], value: Any, where: str = "") -> Any:
    try:
        return kind.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        found = f"{_brief(first['input'])}: {first['msg']}"
        raise LNTrustError(f"{(where + path).lstrip('.')}: {found}") from None


def read_request(
    body: bytes | bytearray, headers: Mapping[str, str], available: Sequence[str]
) -> InferRequest:
    """A request, from its body and the header that says where its JSON ends."""
    head, tail = split(body, headers)
    asked: _Question = _checked(_QUESTION, head)
    all_binary, outputs = asked.parameters.binary_data_output, {}
    for output in asked.outputs or []:
        if output.name not in available:
            raise _wrong("outputs", output.name, f"is not there; there are {', '.join(available)}")
        binary = output.parameters.binary_data
        outputs[output.name] = all_binary if binary is None else binary
    inputs = read_tensors(head, tail, "inputs")
    return InferRequest(asked.id, inputs, outputs or dict.fromkeys(available, all_binary))


def split(
    body: bytes | bytearray, headers: Mapping[str, str], memory: int = JSON_MEMORY
) -> tuple[dict[str, Any], memoryview]:
    """The JSON object that a message begins with, and the bytes after it.

    Values take up to 30 times the memory of their text: what would take too much is not even begun.
    """
    length, said = len(body), headers.get(_LENGTH)
    if said is not None:
        if not (said.isascii() and said.isdigit() and len(said) <= 18 and int(said) <= length):
            raise _wrong(f"header {_LENGTH}", said, f"is not a number of bytes within the body's {length}")
        length = int(said)
    text = body if length == len(body) else body[:length]
    if _cost(text) > memory:
        why = f"{length} bytes of JSON that would take more than {memory >> 20} MiB of memory"
        raise LNTrustError(f"body: {why}; send fewer values at once, or numbers as binary data")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        hint = "" if said else f"; bytes after it need the header {_LENGTH}"
        raise LNTrustError(f"body: not JSON: {why}{hint}") from None
    if not isinstance(head, dict):
        raise _wrong("body", head, "is not a JSON object with inputs")
    return head, memoryview(body)[length:]


def _cost(text: bytes | bytearray) -> int:
    """Bytes of memory that JSON may take at most: its text, its strings, and its values."""
    width = 1 if text.isascii() else 4  # bytes of a letter
    return 2 * width * len(text) + sum(cost * text.count(sign) for sign, cost in _COSTS.items())


def read_tensors(head: dict[str, Any], tail: bytes | memoryview, field: str) -> list[Tensor]:
    """The tensors in a message's `inputs` or `outputs`."""
    tensors = []
    for number, each in enumerate(_checked(_HEADS, head.get(field), field)):
        size, where = each.parameters.binary_data_size, f"{field}[{number}]"
        if size is not None and not 0 <= size <= len(tail):
            within = f"is not a number of bytes within the {len(tail)} left after the JSON"
            ends = f"which ends where the header {_LENGTH} says"
            raise _wrong(f"{where}.parameters.binary_data_size", size, f"{within} ({ends})")
        tensors.append(_tensor(each, where, None if size is None else tail[:size]))
        tail = tail[size or 0 :]
    if len(tail):
        hint = "give each its parameters.binary_data_size"
        raise LNTrustError(f"body: {len(tail)} bytes after the JSON belong to no tensor; {hint}")
    return tensors


def _tensor(head: _Head, where: str, raw: bytes | memoryview | None) -> Tensor:
    kind, shape = head.datatype, head.shape
    if raw is not None and head.data is not None:
        raise LNTrustError(f"{where}: has data and parameters.binary_data_size; one of them would do")
    if kind == "BYTES":
        return Tensor(head.name, np.empty(0, object), binary=raw is not None)
    if raw is None:
        values = _from_json(head.data, kind, shape, f"{where}.data")
    else:
        values = _from_bytes(raw, DTYPES[kind], where)
    try:
        return Tensor(head.name, values.reshape(shape), binary=raw is not None)
    except (ValueError, OverflowError):  # it does not fit, or is larger than any array
        filled = f"{values.size} values do not fill shape {_brief(shape)} of {kind}"
        raise LNTrustError(f"{where}: {filled}; send {_brief(math.prod(shape))}") from None


def _from_bytes(raw: bytes | memoryview, dtype: np.dtype[Any], where: str) -> Shaped[ndarray, "n"]:
    if len(raw) % dtype.itemsize:
        why = f"{len(raw)} is no multiple of {dtype.itemsize}, the bytes of one {DATATYPES[dtype]}"
        raise LNTrustError(f"{where}.parameters.binary_data_size: {why}")
    if dtype == np.bool_ and (wrong := np.frombuffer(raw, np.uint8).max(initial=0)) > 1:
        raise LNTrustError(f"{where}: a BOOL of {wrong}; each is a byte of 0 or 1")
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype)  # a copy: aligned, and writable


def _from_json(data: Any, kind: str, shape: list[int], where: str) -> Shaped[ndarray, "n"]:
    if not isinstance(data, list):
        raise _wrong(where, data, "is not a list; send one, or parameters.binary_data_size and bytes")
    nested = np.array(data, object)
    if nested.size and nested.shape not in ((nested.size,), tuple(shape)):
        raise _wrong(where, data, f"is not nested as shape {_brief(shape)}; nest it so or send one flat list")
    values = nested.ravel().tolist()
    kinds: set[type] = {bool} if kind == "BOOL" else {float, int} if kind[0] == "F" else {int}
    if not kinds.issuperset(map(type, values)):
        place, wrong = next((k, value) for k, value in enumerate(values) if type(value) not in kinds)
        needed = " or ".join(sorted(each.__name__ for each in kinds))
        raise _wrong(f"{where}: number {place}", wrong, f"cannot be {kind}; each has to be {needed}")
    code = {"B": "B", "F": "d"}.get(kind[0], DTYPES[kind].char)
    try:  # by an array of Python, which takes no number that is out of its range
        with np.errstate(over="raise"):
            return np.asarray(array(code, values)).astype(DTYPES[kind])
    except (OverflowError, FloatingPointError):
        raise _wrong(where, max(values, key=abs), f"is beyond the range of {kind}") from None


def _wrong(where: str, value: Any, why: str) -> LNTrustError:
    return LNTrustError(f"{where}: {_brief(value)} {why}")


def _brief(value: Any) -> str:
    """A value in a message: short, however long or deep it is."""
    text = reprlib.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# -- out --------------------------------------------------------------------------------------------------


def write_message(
    head: dict[str, Any], tensors: Iterable[Tensor], field: str
) -> tuple[list[bytes], dict[str, str]]:
    """A message's body, in parts, since joined it would be in memory twice; and the headers that it needs."""
    texts, chunks = list[bytes](), list[bytes]()
    for tensor in tensors:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": DATATYPES[tensor.array.dtype]}
        entry["shape"] = list(tensor.array.shape)
        if tensor.binary:
            chunks.append(_to_bytes(tensor.array))
            entry["parameters"] = {"binary_data_size": len(chunks[-1])}
            texts += [b",", _json(entry, field)]
        else:
            texts += [b",", _json(entry, field)[:-1], b',"data":[', *_values(tensor, field), b"]}"]
    texts = [_json({**head, field: []}, field)[:-2], *texts[1:], b"]}"]
    if not chunks:
        return texts, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", _LENGTH: str(sum(map(len, texts)))}
    return texts + chunks, headers


def _values(tensor: Tensor, field: str) -> Iterator[bytes]:
    flat = tensor.array.ravel()
    for at in range(0, flat.size, _PIECE):
        yield (b"," if at else b"") + _json(flat[at : at + _PIECE].tolist(), field)[1:-1]


def _json(value: Any, field: str) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise LNTrustError(f"{field}: JSON has no infinite numbers and no NaN; ask for binary data") from None


def _to_bytes(array: Shaped[ndarray, "..."]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    words = [str(value).encode() for value in array.flat]
    return b"".join(struct.pack("<I", len(word)) + word for word in words)
