"""Tensors of the Open Inference Protocol: there and back again, and whatever else may come."""

import json
import re
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.http.tensors import DATATYPES, DTYPES, Tensor, cast, read_request, split, write_message

LENGTH = "Inference-Header-Content-Length"
kinds = st.sampled_from(list(DTYPES.values()))
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
numbers = kinds.flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]} | changes


def text(*entries: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": entries, **more}).encode()


def read(body: bytes) -> list[Tensor]:
    return read_request(body, {}, ["y"]).inputs


def is_finite(array: ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def same(one: ndarray, other: ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@given(st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=3))
def test_there_and_back(given_: list[tuple[ndarray, bool]]) -> None:
    sent = [Tensor(f"t{n}", a, binary or not is_finite(a)) for n, (a, binary) in enumerate(given_)]
    parts, headers = write_message({"id": "7"}, sent, "inputs")
    assert (LENGTH in headers) == any(tensor.binary for tensor in sent)
    request = read_request(b"".join(parts), headers, ["y"])
    assert [(t.name, t.binary) for t in request.inputs] == [(t.name, t.binary) for t in sent]
    assert all(same(one.array, other.array) for one, other in zip(request.inputs, sent, strict=True))
    assert all(tensor.array.flags.writeable for tensor in request.inputs)
    assert request.id == "7"


@given(numbers.filter(lambda a: a.ndim > 0 and is_finite(a)))
def test_nested_data_is_the_same_as_flat(array: ndarray) -> None:
    item = entry(datatype=DATATYPES[array.dtype], shape=array.shape, data=array.tolist())
    [tensor] = read(text(item))
    assert same(tensor.array, array)


def test_bytes_are_those_of_the_protocol() -> None:
    words = np.array(["ab", "ü"], object)
    tensors = [Tensor("l", words, True), Tensor("x", np.float32([1]), True), Tensor("w", words)]
    parts, headers = write_message({}, tensors, "outputs")
    body, length = b"".join(parts), int(headers[LENGTH])
    assert body[length:] == b"\2\0\0\0ab" + b"\2\0\0\0\xc3\xbc" + struct.pack("<f", 1)
    *outputs, last = json.loads(body[:length])["outputs"]
    assert [entry["parameters"]["binary_data_size"] for entry in outputs] == [12, 4]
    assert last == {"name": "w", "datatype": "BYTES", "shape": [2], "data": ["ab", "ü"]}


def test_a_long_message_is_written_as_a_short_one() -> None:
    """In pieces, and still JSON."""
    x = np.arange(200_001, dtype=np.float32) / 7
    parts, headers = write_message({"id": "7"}, [Tensor("x", x), Tensor("y", x[:0])], "outputs")
    entries = [entry(name=name, shape=[len(a)], data=a.tolist()) for name, a in (("x", x), ("y", x[:0]))]
    whole = json.dumps({"id": "7", "outputs": entries}, separators=(",", ":")).encode()
    assert (b"".join(parts) == whole, headers) == (True, {"Content-Type": "application/json"})


def test_outputs_as_asked_for() -> None:
    def wanted(**request: Any) -> dict[str, bool]:
        return read_request(text(**request), {}, ("p", "label")).outputs

    binary = {"binary_data_output": True}
    assert wanted() == wanted(outputs=[]) == wanted(parameters=None) == {"p": False, "label": False}
    assert wanted(parameters=binary) == {"p": True, "label": True}
    assert wanted(outputs=[{"name": "label"}]) == {"label": False}
    assert wanted(outputs=[{"name": "label"}], parameters=binary) == {"label": True}
    not_binary = [{"name": "p", "parameters": {"binary_data": False}}]
    assert wanted(outputs=not_binary, parameters=binary) == {"p": False}


# -- what does not fit ----------------------------------------------------------------------------------

BAD_ENTRIES = {
    "inputs[0].name: None: Input should be a valid string": entry(name=None),
    "inputs[0].datatype: 'FP31': Input should be 'BOOL', 'UINT8'": entry(datatype="FP31"),
    "inputs[0].shape[0]: -1: Input should be greater": entry(shape=[-1, 2]),
    "inputs[0].shape[0]: True": entry(shape=[True, 2]),
    "inputs[0].shape: [1, 1, 1, 1, 1, 1, ...]: List should have at most 32": entry(shape=[1] * 33),
    "2 values do not fill shape [1000000000000, 1000000000000]": entry(shape=[10**12, 10**12]),
    "2 values do not fill shape [1, 3] of FP32; send 3": entry(shape=[1, 3]),
    "inputs[0].data: None is not a list": entry(data=None),
    "inputs[0].data: number 0: '1' cannot be FP32; each has to be float or int": entry(data=["1", 2]),
    "inputs[0].data: number 0: True cannot be FP32": entry(data=[True, 2]),
    "inputs[0].data: number 1: 1.5 cannot be INT8; each has to be int": entry(datatype="INT8", data=[1, 1.5]),
    "inputs[0].data: 128 is beyond the range of INT8": entry(datatype="INT8", data=[1, 128]),
    "inputs[0].data: -1 is beyond the range of UINT64": entry(datatype="UINT64", data=[0, -1]),
    "inputs[0].data: number 1: 1 cannot be BOOL": entry(datatype="BOOL", data=[True, 1]),
    "inputs[0].data: 1e+39 is beyond the range of FP32": entry(data=[1, 1e39]),
    "is beyond the range of FP64": entry(datatype="FP64", data=[1, 10**400]),
    "inputs[0].data: [[1], [2]] is not nested as shape [1, 2]": entry(data=[[1], [2]]),
    "inputs[0].data: number 0: [1, 2] cannot be FP32": entry(shape=[2, 2], data=[[1, 2], 3]),
    "inputs[0].data: [[1, 2]] is not nested as shape [2]": entry(shape=[2], data=[[1, 2]]),
    "inputs[0].parameters.binary_data_size: 8": entry(parameters={"binary_data_size": 8}),
    "inputs[0].parameters.binary_data_size: True": entry(parameters={"binary_data_size": True}),
    "has data and parameters.binary_data_size": entry(parameters={"binary_data_size": 0}),
}


def with_bytes(kind: str, shape: list[int], raw: bytes) -> tuple[bytes, str]:
    item = {"name": "x", "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    return text(item) + raw, str(len(text(item)))


BAD_BODIES: dict[str, tuple[bytes, str | None]] = {
    **{message: (text(bad), None) for message, bad in BAD_ENTRIES.items()},
    "body: not JSON": (b"{", None),
    "body: not JSON: nested too deep": (b"[" * 100_000, None),
    "body: [] is not a JSON object": (b"[]", None),
    "inputs[0]: 3: Input should be a valid dictionary": (text(3), None),
    "inputs: [{}, {}, {}, {}, {}, {}, ...]: List should have at most 64 items": (text(*[{}] * 65), None),
    "outputs[0].name: {}: Field required": (text(outputs=[{}]), None),
    "outputs: 'q' is not there; there are y": (text(outputs=[{"name": "q"}]), None),
    "outputs[0].parameters.classification: 3: Input should be None": (
        text(outputs=[{"name": "y", "parameters": {"classification": 3}}]), None,
    ),
    "parameters.binary_data_output: 'yes'": (text(parameters={"binary_data_output": "yes"}), None),
    "Inference-Header-Content-Length: '-3'": (b"{}", "-3"),
    "Inference-Header-Content-Length: '3'": (b"{}", "3"),
    "body: 2 bytes after the JSON belong to no tensor": (b'{"inputs": []}ab', "14"),
    "3 is no multiple of 4": with_bytes("FP32", [1], b"abc"),
    "1 values do not fill shape [2]": with_bytes("FP32", [2], b"abcd"),
    "a BOOL of 2": with_bytes("BOOL", [2], b"\1\2"),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD_BODIES)
def test_messages_name_field_and_value(message: str) -> None:
    body, length = BAD_BODIES[message]
    with pytest.raises(LNTrustError, match=re.escape(message)):
        read_request(body, {} if length is None else {LENGTH: length}, ["y"])


def test_what_is_not_json_is_not_written_as_json() -> None:
    with pytest.raises(LNTrustError, match="ask for binary data"):
        write_message({}, [Tensor("p", np.float32([np.nan]))], "outputs")


@given(kinds, kinds, st.booleans())
@example(np.dtype("uint8"), np.dtype("float32"), False)
@example(np.dtype("float16"), np.dtype("float32"), False)
@example(np.dtype("uint64"), np.dtype("float64"), False)
def test_a_cast_loses_nothing_or_is_refused(given_: Any, needed: Any, binary: bool) -> None:
    """From JSON; what came as bytes is of the right type, or refused."""
    if given_.kind == "b":
        array = np.array([False, True])
    else:
        bounds = np.finfo(given_) if given_.kind == "f" else np.iinfo(given_)
        array = np.array([bounds.min, bounds.max], given_)
    refused = ""
    try:
        got = cast(Tensor("x", array, binary), needed)
        assert (got.dtype, [*map(int, got)]) == (needed, [*map(int, array)])
    except LNTrustError as error:
        refused = str(error)
    words = f"input 'x': datatype {DATATYPES[given_]} is not what is needed; send {DATATYPES[needed]}"
    assert refused == ("" if given_ == needed else words if binary else refused)
    assert not refused or binary or (given_.itemsize, given_.kind, needed.kind) != (1, "u", "f")


def test_strings_are_nothing_that_a_model_is_asked_about() -> None:
    for item in (entry(datatype="BYTES", data=["a", "b"]), entry(datatype="BYTES", data=[{}])):
        [tensor] = read(text(item))
        with pytest.raises(LNTrustError, match="BYTES is not what is needed; send FP32"):
            cast(tensor, np.dtype(np.float32))


# -- anything at all --------------------------------------------------------------------------------------

keys = st.sampled_from(
    ["name", "shape", "datatype", "data", "parameters", "binary_data_size", "id", "inputs"]
)
atoms = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from([*DTYPES, "BYTES", 0, 1, 2, 4, 2**31, 2**63, 10**300])
)  # fmt: skip
anything = st.recursive(atoms, lambda s: st.lists(s, max_size=4) | st.dictionaries(keys, s, max_size=4))
entries = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=3) | anything,
        "datatype": st.sampled_from([*DTYPES, "BYTES"]) | anything,
        "shape": st.lists(st.integers(0, 3) | atoms, max_size=4) | anything,
        "data": st.lists(anything, max_size=5),
        "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-1, 20)}) | anything,
    },
)
requests = st.fixed_dictionaries(
    {"inputs": st.lists(entries, max_size=3) | anything},
    optional={"id": anything, "parameters": anything, "outputs": st.lists(entries, max_size=3) | anything},
)


def survives(body: bytes, length: str | None) -> None:
    message = ""
    try:
        read_request(body, {} if length is None else {LENGTH: length}, ["p"])
    except LNTrustError as error:
        message = str(error)
    assert len(message) < 1000


@given(requests, st.binary(max_size=40), st.booleans())
@example({"inputs": [entry(shape=[0, 2**63, 2**63], data=[])]}, b"", False)
@example({"inputs": [entry(shape=[0, 2**40, 2**40], data=[])]}, b"", False)
@example({"inputs": [entry(datatype="BYTES", data=["\ud800", ""])]}, b"", False)
@example({"inputs": [entry(shape=[10**400], data=[])]}, b"", False)
@example({"inputs": [entry(data=[float("nan"), 10**400])]}, b"", False)
def test_no_request_raises_anything_else(request: dict[str, Any], tail: bytes, told: bool) -> None:
    head = json.dumps(request).encode()
    survives(head + tail, str(len(head)) if told else None)


@given(st.binary(max_size=200), st.none() | st.text(max_size=20))
@example(b"{}", "²")
@example(b"{}", "9" * 5000)
@example(b"1" * 5000, None)
@example(b'{"inputs": [{"data": ' + b"[" * 900 + b"]" * 900 + b"}]}", None)
@example(text(entry(data=None)).replace(b"null", b"[" * 900 + b"]" * 900), None)
def test_no_bytes_raise_anything_else(body: bytes, length: str | None) -> None:
    survives(body, length)


@given(numbers, st.data())
def test_no_flipped_byte_raises_anything_else(array: ndarray, data: st.DataObject) -> None:
    parts, headers = write_message({}, [Tensor("x", array, True)], "inputs")
    body = bytearray(b"".join(parts))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    survives(bytes(body), headers[LENGTH])


@pytest.mark.parametrize("shape", [[2**40], [2**20, 2**19], [0, 2**40], [1] * 31 + [2**33]])
def test_claims_take_no_memory(shape: list[int]) -> None:
    tracemalloc.start()
    try:
        survives(text(entry(shape=shape, datatype="FP64", data=[])), None)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_long_string_among_numbers_takes_no_memory() -> None:
    data = [0] * 100_000 + ["a" * 100_000]  # as an array of strings: forty gigabytes
    with pytest.raises(LNTrustError, match="cannot be FP32") as error:
        read(text(entry(shape=[len(data)], data=data)))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "item", ["{}", "[]", "[0]", "0", "1.5", "999999", '"ab"', '{"a":0}', '{"name":[]}', '"ä"', '"😀"', " 0 "]
)
def test_json_takes_as_much_memory_as_it_may(item: str) -> None:
    """What is taken takes less than that, and what is refused is not even begun."""
    most, refused = 1 << 20, 0
    for count in (1 << power for power in range(10, 20)):
        body = b'{"inputs":[' + b",".join([item.encode()] * count) + b"]}"
        tracemalloc.start()
        try:
            split(body, {}, most)
        except LNTrustError as error:
            refused += "send fewer values at once, or numbers as binary data" in str(error)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert taken < (1 << 16 if refused else most), (item, count)
    assert refused
