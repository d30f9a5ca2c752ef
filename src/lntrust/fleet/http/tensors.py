"""Tensors of the Open Inference Protocol v2 as numpy arrays, and back: as JSON, and as bytes after the JSON.

Whatever comes in may come from anybody. What does not fit is an `LNTrustError`, nothing else; and memory is
taken for numbers that are there, never for those that a shape only claims.
"""

import json
import math
import reprlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
_KNOWN = ", ".join([*DTYPES, "BYTES"])
_MOST_SIDES = 32  # numpy's own bound, in its older versions
_MOST_NUMBERS = 1 << 40  # of a shape, a side of 0 counted as 1: beyond it numpy itself may fail
_MOST_STRINGS = 1 << 18  # after the JSON: each takes far more memory than its bytes
JSON_MEMORY = 48 << 20  # bytes that a message's JSON may take: about 600,000 numbers
# What each of these characters may cost at most, with all that is made of it here.
_COSTS = {b",": 60, b"[": 96, b"{": 256, b":": 100, b'"': 16}
_PIECE = 1 << 16  # values that are written at once: as objects they take more memory than as text
_FOREIGN = ("classification", "shared_memory_region")  # other extensions: to ignore them would mislead
_WORDS = {
    str: "a string", bool: "true or false", dict: "a JSON object",
    list: f"a list of at most {_MOST_SIDES} sizes, each 0 or more",
}  # fmt: skip
_short = reprlib.Repr()
_short.maxlist = _short.maxdict = 8
_short.maxstring = _short.maxlong = _short.maxother = 60
_short.maxlevel = 3


@dataclass(frozen=True)
class Tensor:
    """A tensor with its name, and whether it travels as bytes. BYTES are an object array of str."""

    name: str
    array: Shaped[ndarray, "..."]
    binary: bool = False


@dataclass(frozen=True)
class InferRequest:
    """What a client asks."""

    id: str | None
    inputs: list[Tensor]
    outputs: dict[str, bool]  # those to give, and whether as bytes


def datatype(array: Shaped[ndarray, "..."]) -> str:
    """The protocol's name for an array's type."""
    if array.dtype == object:
        return "BYTES"
    name = DATATYPES.get(array.dtype.newbyteorder("="))
    if name is None:
        raise LNTrustError(f"dtype {array.dtype}: the protocol has no such type; there are {_KNOWN}")
    return name


def cast(tensor: Tensor, dtype: np.dtype[Any]) -> Shaped[ndarray, "..."]:
    """As the type that is needed. Numbers from JSON may have another that fits into it without loss."""
    given = datatype(tensor.array)
    if tensor.array.dtype == dtype:
        return tensor.array
    fits = given != "BYTES" and np.can_cast(tensor.array.dtype, dtype, casting="safe")
    if given in ("INT64", "UINT64") and dtype.kind == "f":
        fits = False  # numpy calls it safe, but float64 has 53 bits for a whole number
    if tensor.binary or not fits:
        needed = f"datatype {given} is not what is needed; send {DATATYPES[dtype]}"
        raise LNTrustError(f"input {_brief(tensor.name)}: {needed}")
    return tensor.array.astype(dtype)


# -- in ---------------------------------------------------------------------------------------------------


def read_request(
    body: bytes | bytearray, header_length: str | None, available: Sequence[str]
) -> InferRequest:
    """A request, from its body and the header Inference-Header-Content-Length, if there is one."""
    head, tail = split(body, header_length)
    name = _field(head, "id", "", str, NoneType)
    binary = _field(_parameters(head, ""), "binary_data_output", "parameters.", bool, default=False)
    outputs = {}
    for where, entry in _entries(head.get("outputs") or [], "outputs"):
        parameters = _parameters(entry, where)
        for foreign in _FOREIGN:
            if foreign in parameters:
                raise LNTrustError(f"{where}parameters.{foreign}: is not known here; leave it out")
        output = _field(entry, "name", where, str)
        if output not in available:
            raise _wrong("outputs", output, f"is not there; there are {', '.join(available)}")
        outputs[output] = _field(parameters, "binary_data", f"{where}parameters.", bool, default=binary)
    inputs = read_tensors(head, tail, "inputs")
    return InferRequest(name, inputs, outputs or dict.fromkeys(available, binary))


def split(
    body: bytes | bytearray, header_length: str | None = None, memory: int = JSON_MEMORY
) -> tuple[dict[str, Any], memoryview]:
    """The JSON object that a message begins with, and the bytes after it.

    Values take up to 30 times the memory of their text: what would take too much is not even begun.
    """
    length = len(body)
    if header_length is not None:
        plain = header_length.isascii() and header_length.isdigit() and len(header_length) <= 18
        if not plain or int(header_length) > len(body):
            why = f"is not a number of bytes within the body's {len(body)}"
            raise _wrong("header Inference-Header-Content-Length", header_length, why)
        length = int(header_length)
    text = body if length == len(body) else body[:length]
    if _cost(text) > memory:
        why = f"{length} bytes of JSON that would take more than {memory >> 20} MiB of memory"
        raise LNTrustError(f"body: {why}; send fewer values at once, or numbers as binary data")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        hint = "" if header_length else "; bytes after it need the header Inference-Header-Content-Length"
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
    for where, entry in _entries(head.get(field), field):
        size = _binary_size(entry, where, len(tail))
        tensors.append(_tensor(entry, where, None if size is None else tail[:size]))
        tail = tail[size or 0 :]
    if len(tail):
        hint = "give each its parameters.binary_data_size"
        raise LNTrustError(f"body: {len(tail)} bytes after the JSON belong to no tensor; {hint}")
    return tensors


def _entries(value: Any, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with where it stands."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise _wrong(field, value, "is not a list of tensors, each a JSON object")
    return ((f"{field}[{number}].", entry) for number, entry in enumerate(value))


def _field(table: dict[str, Any], name: str, where: str, *kinds: type, default: Any = None) -> Any:
    """A field of one of these types, as JSON has them."""
    value = table.get(name, default)
    if type(value) not in kinds:
        raise _wrong(f"{where}{name}", value, f"is not {_WORDS[kinds[0]]}")
    return value


def _parameters(entry: dict[str, Any], where: str) -> dict[str, Any]:
    return _field(entry, "parameters", where, dict, NoneType) or {}


def _binary_size(entry: dict[str, Any], where: str, left: int) -> int | None:
    """How many bytes a tensor has after the JSON; none: its numbers are in the JSON."""
    size = _parameters(entry, where).get("binary_data_size")
    if size is not None and (type(size) is not int or not 0 <= size <= left):
        ends = "which ends where the header Inference-Header-Content-Length says"
        within = f"is not a number of bytes within the {left} left after the JSON ({ends})"
        raise _wrong(f"{where}parameters.binary_data_size", size, within)
    if size is not None and "data" in entry:
        raise LNTrustError(f"{where[:-1]}: has data and parameters.binary_data_size; one of them would do")
    return size


def _tensor(entry: dict[str, Any], where: str, raw: bytes | memoryview | None) -> Tensor:
    name, kind = _field(entry, "name", where, str), entry.get("datatype")
    if kind != "BYTES" and (not isinstance(kind, str) or kind not in DTYPES):
        raise _wrong(f"{where}datatype", kind, f"is not known; there are {_KNOWN}")
    shape = _field(entry, "shape", where, list)
    if len(shape) > _MOST_SIDES or not all(type(side) is int and side >= 0 for side in shape):
        raise _wrong(f"{where}shape", shape, f"is not {_WORDS[list]}")
    if math.prod(max(side, 1) for side in shape) > _MOST_NUMBERS:
        raise _wrong(f"{where}shape", shape, f"is too large; at most {_MOST_NUMBERS} values")
    if raw is None:
        values = _from_json(entry.get("data"), kind, shape, f"{where}data")
    elif kind == "BYTES":
        values = _objects(_strings(raw, where[:-1]))
    else:
        values = _from_bytes(raw, DTYPES[kind], where)
    if values.size != math.prod(shape):
        filled = f"{values.size} values do not fill shape {_brief(shape)} of {kind}"
        raise LNTrustError(f"{where[:-1]}: {filled}; send {_brief(math.prod(shape))}")
    return Tensor(name, values.reshape(shape), binary=raw is not None)


def _from_bytes(raw: bytes | memoryview, dtype: np.dtype[Any], where: str) -> Shaped[ndarray, "n"]:
    if len(raw) % dtype.itemsize:
        why = f"{len(raw)} is no multiple of {dtype.itemsize}, the bytes of one {DATATYPES[dtype]}"
        raise LNTrustError(f"{where}parameters.binary_data_size: {why}")
    if dtype == np.bool_ and (wrong := np.frombuffer(raw, np.uint8).max(initial=0)) > 1:
        raise LNTrustError(f"{where[:-1]}: a BOOL of {wrong}; each is a byte of 0 or 1")
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype)  # a copy: aligned, and writable


def _strings(raw: bytes | memoryview, where: str) -> list[str]:
    """Strings, each after its length in four bytes."""
    strings, at = list[str](), 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at) if at + 4 <= len(raw) else (len(raw),)
        at += 4 + length
        if at > len(raw):
            raise LNTrustError(f"{where}: BYTES that end within a string; each has its length in four bytes")
        if len(strings) >= _MOST_STRINGS:
            raise LNTrustError(f"{where}: more than {_MOST_STRINGS} strings; send fewer at once")
        try:
            strings.append(str(raw[at - length : at], "utf-8"))
        except UnicodeDecodeError:
            raise LNTrustError(f"{where}: BYTES that are not UTF-8; only text is known here") from None
    return strings


def _from_json(data: Any, kind: str, shape: list[int], where: str) -> Shaped[ndarray, "n"]:
    if not isinstance(data, list):
        raise _wrong(where, data, "is not a list; send one, or parameters.binary_data_size and bytes")
    values = _flat(data, shape, where)
    floats = kind.startswith("FP")
    one: dict[str, set[type]] = {"BOOL": {bool}, "BYTES": {str}}
    kinds = one.get(kind, {int, float} if floats else {int})
    if not set(map(type, values)) <= kinds:
        place, wrong = next((k, value) for k, value in enumerate(values) if type(value) not in kinds)
        needed = " or ".join(sorted(each.__name__ for each in kinds))
        raise _wrong(f"{where}: number {place}", wrong, f"cannot be {kind}; each has to be {needed}")
    if kind == "BYTES":
        return _objects(values)
    if kind.startswith(("INT", "UINT")) and values:
        bounds = np.iinfo(DTYPES[kind])
        for value in (min(values), max(values)):
            if not bounds.min <= value <= bounds.max:
                raise _wrong(where, value, f"is beyond the range of {kind}")
    try:
        exact = np.array(values, np.float64 if floats else DTYPES[kind])
    except OverflowError:
        raise LNTrustError(f"{where}: a number is beyond the range of {kind}") from None
    with np.errstate(over="ignore"):
        array = exact.astype(DTYPES[kind], copy=False)
    if (lost := np.isinf(array) & np.isfinite(exact)).any():
        raise LNTrustError(f"{where}: {exact[lost][0]:g} is beyond the range of {kind}")
    return array


def _flat(data: list[Any], shape: list[int], where: str) -> list[Any]:
    """Values in order, from a list of them, or from lists in lists as the shape has it."""
    if not data or not isinstance(data[0], list):
        return data
    for side in shape[1:]:
        if not all(type(value) is list and len(value) == side for value in data):
            nested = f"is not nested as shape {_brief(shape)}, in lists of {side}"
            raise LNTrustError(f"{where}: {nested}; nest it so or send one flat list")
        data = list(chain.from_iterable(data))
    return data


def _objects(strings: list[str]) -> Shaped[ndarray, "n"]:
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


def _wrong(where: str, value: Any, why: str) -> LNTrustError:
    return LNTrustError(f"{where}: {_brief(value)} {why}")


def _brief(value: Any) -> str:
    """A value in a message: short, however long or deep it is."""
    text = _short.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# -- out --------------------------------------------------------------------------------------------------


def write_message(head: dict[str, Any], tensors: Iterable[Tensor], field: str) -> tuple[bytes, int | None]:
    """A message's body, and the length of its JSON where bytes follow (Inference-Header-Content-Length)."""
    parts, length = message_parts(head, tensors, field)
    return b"".join(parts), length


def message_parts(
    head: dict[str, Any], tensors: Iterable[Tensor], field: str
) -> tuple[list[bytes], int | None]:
    """The same in parts: a large message joined would be in memory twice."""
    texts, chunks, comma = [], [], b""
    for tensor in tensors:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": datatype(tensor.array)}
        entry["shape"] = list(tensor.array.shape)
        if tensor.binary:
            chunks.append(_to_bytes(tensor))
            entry["parameters"] = {"binary_data_size": len(chunks[-1])}
            texts += [comma, _json(entry, field)]
        else:
            texts += [comma, _json(entry, field)[:-1], b',"data":[', *_values(tensor, field), b"]}"]
        comma = b","
    start = _json(head, field)[:-1] + (b"," if head else b"") + _json(field, field) + b":["
    texts = [start, *texts, b"]}"]
    return texts + chunks, sum(map(len, texts)) if chunks else None


def _values(tensor: Tensor, field: str) -> Iterator[bytes]:
    flat = tensor.array.ravel()
    for at in range(0, flat.size, _PIECE):
        yield (b"," if at else b"") + _json(flat[at : at + _PIECE].tolist(), field)[1:-1]


def _json(value: Any, field: str) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise LNTrustError(f"{field}: JSON has no infinite numbers and no NaN; ask for binary data") from None


def _to_bytes(tensor: Tensor) -> bytes:
    array = tensor.array
    if array.dtype != object:
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    try:
        strings = [str(value).encode() for value in array.flat]
    except UnicodeEncodeError:
        raise LNTrustError(f"tensor {_brief(tensor.name)}: has text that is not UTF-8") from None
    return b"".join(struct.pack("<I", len(each)) + each for each in strings)
