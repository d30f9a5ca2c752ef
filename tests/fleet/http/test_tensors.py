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
from lntrust.fleet.http.tensors import (
    DATATYPES,
    DTYPES,
    Tensor,
    cast,
    read_request,
    read_tensors,
    split,
    write_message,
)

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
numbers = st.sampled_from(list(DTYPES.values())).flatmap(lambda dtype: hnp.arrays(dtype, shapes))
words = hnp.arrays(object, shapes, elements=st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
arrays = numbers | words


def read(body: bytes, length: int | None, field: str = "inputs") -> list[Tensor]:
    head, tail = split(body, None if length is None else str(length))
    return read_tensors(head, tail, field)


def same(one: ndarray, other: ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@given(st.lists(st.tuples(arrays, st.booleans()), min_size=1, max_size=3))
def test_there_and_back(given_: list[tuple[ndarray, bool]]) -> None:
    sent = [
        Tensor(f"t{n}", a, binary or (a.dtype.kind == "f" and not bool(np.isfinite(a).all())))
        for n, (a, binary) in enumerate(given_)
    ]
    body, length = write_message({"id": "7"}, sent, "inputs")
    assert (length is None) == (not any(tensor.binary for tensor in sent))
    got = read(body, length)
    assert [(t.name, t.binary) for t in got] == [(t.name, t.binary) for t in sent]
    assert all(same(one.array, other.array) for one, other in zip(got, sent, strict=True))
    assert all(tensor.array.flags.writeable for tensor in got)
    assert read_request(body, None if length is None else str(length), ["p"]).id == "7"


@given(arrays.filter(lambda a: a.ndim > 0 and (a.dtype.kind != "f" or bool(np.isfinite(a).all()))))
def test_nested_data_is_the_same_as_flat(array: ndarray) -> None:
    kind = "BYTES" if array.dtype == object else DATATYPES[array.dtype]
    entry = {"name": "x", "datatype": kind, "shape": list(array.shape), "data": array.tolist()}
    [tensor] = read(json.dumps({"inputs": [entry]}).encode(), None)
    assert same(tensor.array, array)


def test_bytes_are_those_of_the_protocol() -> None:
    text = np.array(["ab", "ü"], object)
    body, length = write_message({}, [Tensor("l", text, True), Tensor("x", np.float32([1]), True)], "outputs")
    assert body[length:] == b"\2\0\0\0ab" + b"\2\0\0\0\xc3\xbc" + struct.pack("<f", 1)
    outputs = json.loads(body[:length])["outputs"]
    assert [entry["parameters"]["binary_data_size"] for entry in outputs] == [12, 4]
    body, length = write_message({}, [Tensor("x", np.array([1, 2], ">i4"), True)], "inputs")
    assert read(body, length)[0].array.tolist() == [1, 2], "big-endian arrays travel as all do"


# -- what does not fit ----------------------------------------------------------------------------------


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]} | changes


BAD_ENTRIES = {
    "inputs[0].name: None": entry(name=None),
    "inputs[0].datatype: 'FP31' is not known; there are BOOL": entry(datatype="FP31"),
    "inputs[0].datatype: ['FP32']": entry(datatype=["FP32"]),
    "inputs[0].shape: None": entry(shape=None),
    "inputs[0].shape: [-1, 2]": entry(shape=[-1, 2]),
    "inputs[0].shape: [True, 2]": entry(shape=[True, 2]),
    "inputs[0].shape: [1000000000000, 1000000000000] is too large": entry(shape=[10**12, 10**12]),
    "at most 32 sizes": entry(shape=[1] * 33),
    "2 values do not fill shape [1, 3] of FP32; send 3": entry(shape=[1, 3]),
    "inputs[0].data: None is not a list": entry(data=None),
    "inputs[0].data: number 0: '1' cannot be FP32; each has to be float or int": entry(data=["1", 2]),
    "inputs[0].data: number 0: None cannot be FP32": entry(data=[None, 2]),
    "inputs[0].data: number 0: True cannot be FP32": entry(data=[True, 2]),
    "inputs[0].data: number 1: 1.5 cannot be INT8; each has to be int": entry(datatype="INT8", data=[1, 1.5]),
    "inputs[0].data: 128 is beyond the range of INT8": entry(datatype="INT8", data=[1, 128]),
    "inputs[0].data: -1 is beyond the range of UINT64": entry(datatype="UINT64", data=[1, -1]),
    "inputs[0].data: number 1: 1 cannot be BOOL": entry(datatype="BOOL", data=[True, 1]),
    "inputs[0].data: 1e+39 is beyond the range of FP32": entry(data=[1, 1e39]),
    "a number is beyond the range of FP64": entry(datatype="FP64", data=[1, 10**400]),
    "is not nested as shape [1, 2], in lists of 2": entry(data=[[1], [2]]),
    "is not nested as shape [2, 2]": entry(shape=[2, 2], data=[[1, 2], 3]),
    "inputs[0].data: number 0: [1, 2] cannot be FP32": entry(shape=[2], data=[[1, 2]]),
    "inputs[0].parameters: 3 is not a JSON object": entry(parameters=3),
    "inputs[0].parameters.binary_data_size: 8": entry(parameters={"binary_data_size": 8}),
    "inputs[0].parameters.binary_data_size: True": entry(parameters={"binary_data_size": True}),
    "has data and parameters.binary_data_size": entry(parameters={"binary_data_size": 0}),
}


BAD_BODIES: dict[str, tuple[bytes, str | None]] = {
    **{message: (json.dumps({"inputs": [bad]}).encode(), None) for message, bad in BAD_ENTRIES.items()},
    "body: not JSON": (b"{", None),
    "body: not JSON: nested too deep": (b"[" * 100_000, None),
    "body: [] is not a JSON object": (b"[]", None),
    "inputs: None is not a list of tensors": (b"{}", None),
    "inputs: [3] is not a list of tensors": (b'{"inputs": [3]}', None),
    "id: 3 is not a string": (b'{"id": 3, "inputs": []}', None),
    "outputs: {'a': 1} is not a list": (b'{"outputs": {"a": 1}, "inputs": []}', None),
    "outputs[0].name: None": (b'{"outputs": [{}], "inputs": []}', None),
    "outputs[0].parameters.classification": (
        b'{"outputs": [{"name": "y", "parameters": {"classification": 3}}]}', None,
    ),
    "outputs[0].parameters.binary_data: 1 is not true or false": (
        b'{"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}', None,
    ),
    "parameters.binary_data_output: 'yes'": (b'{"parameters": {"binary_data_output": "yes"}}', None),
    "Inference-Header-Content-Length: '-3'": (b"{}", "-3"),
    "Inference-Header-Content-Length: '3'": (b"{}", "3"),
    "body: 2 bytes after the JSON belong to no tensor": (b'{"inputs": []}ab', "14"),
}  # fmt: skip


def with_bytes(kind: str, shape: list[int], raw: bytes) -> tuple[bytes, str | None]:
    item = {"name": "x", "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [item]}).encode()
    return head + raw, str(len(head))


BAD_BODIES |= {
    "3 is no multiple of 4": with_bytes("FP32", [1], b"abc"),
    "1 values do not fill shape [2]": with_bytes("FP32", [2], b"abcd"),
    "a BOOL of 2": with_bytes("BOOL", [2], b"\1\2"),
    "that end within a string": with_bytes("BYTES", [1], b"\3\0\0\0ab"),
    "end within a string": with_bytes("BYTES", [1], b"\3\0"),
    "within a string": with_bytes("BYTES", [1], b"\xff\xff\xff\xffab"),
    "not UTF-8": with_bytes("BYTES", [1], b"\1\0\0\0\xff"),
}


@pytest.mark.parametrize("message", BAD_BODIES)
def test_messages_name_field_and_value(message: str) -> None:
    with pytest.raises(LNTrustError, match=re.escape(message)):
        read_request(*BAD_BODIES[message], available=["y"])


def test_what_is_not_json_is_not_written_as_json() -> None:
    with pytest.raises(LNTrustError, match="ask for binary data"):
        write_message({}, [Tensor("p", np.float32([np.nan]))], "outputs")
    with pytest.raises(LNTrustError, match="has no such type"):
        write_message({}, [Tensor("p", np.complex64([1]))], "outputs")
    with pytest.raises(LNTrustError, match="not UTF-8"):
        write_message({}, [Tensor("p", np.array(["\ud800"], object), True)], "outputs")


def test_outputs_as_asked_for() -> None:
    def wanted(**request: Any) -> dict[str, bool]:
        return read_request(json.dumps({"inputs": [], **request}).encode(), None, ("p", "label")).outputs

    binary = {"binary_data_output": True}
    assert wanted() == wanted(outputs=[]) == {"p": False, "label": False}
    assert wanted(parameters=binary) == {"p": True, "label": True}
    assert wanted(outputs=[{"name": "label"}]) == {"label": False}
    assert wanted(outputs=[{"name": "label"}], parameters=binary) == {"label": True}
    not_binary = [{"name": "p", "parameters": {"binary_data": False}}]
    assert wanted(outputs=not_binary, parameters=binary) == {"p": False}
    with pytest.raises(LNTrustError, match=r"outputs: 'q' is not there; there are p, label"):
        wanted(outputs=[{"name": "q"}])


@given(st.sampled_from(list(DTYPES.values())), st.sampled_from(list(DTYPES.values())), st.booleans())
def test_a_cast_loses_nothing_or_is_refused(given_: Any, needed: Any, binary: bool) -> None:
    if given_.kind == "b":
        array = np.array([False, True])
    else:
        bounds = np.finfo(given_) if given_.kind == "f" else np.iinfo(given_)
        array = np.array([bounds.min, bounds.max], given_)
    tensor, refused = Tensor("x", array, binary), False
    try:
        got = cast(tensor, needed)
    except LNTrustError:
        refused = True
    if given_ == needed:
        assert not refused
    if not refused:
        assert got.dtype == needed
        assert [int(value) for value in got] == [int(value) for value in array]
        assert given_ == needed or not binary


def test_a_cast_that_fits_is_done_for_json_alone() -> None:
    for kind, needed in (("uint8", "float32"), ("float16", "float32"), ("int8", "int64")):
        array = np.array([1, 2], kind)
        assert cast(Tensor("x", array), np.dtype(needed)).dtype == needed
        with pytest.raises(
            LNTrustError, match=f"input 'x': datatype {DATATYPES[array.dtype]} is not what is"
        ):
            cast(Tensor("x", array, binary=True), np.dtype(needed))
    with pytest.raises(LNTrustError, match="BYTES is not what is needed; send FP32"):
        cast(Tensor("x", np.array(["1"], object)), np.dtype(np.float32))


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
        read_request(body, length, ["p"])
    except LNTrustError as error:
        message = str(error)
    assert len(message) < 1000


@given(requests, st.binary(max_size=40), st.booleans())
@example({"inputs": [entry(shape=[0, 2**63, 2**63], data=[])]}, b"", False)
@example({"inputs": [entry(datatype="BYTES", data=["\ud800", ""])]}, b"", False)
@example({"inputs": [entry(shape=[10**400], data=[])]}, b"", False)
def test_no_request_raises_anything_else(request: dict[str, Any], tail: bytes, told: bool) -> None:
    head = json.dumps(request).encode()
    survives(head + tail, str(len(head)) if told else None)


@given(st.binary(max_size=200), st.none() | st.text(max_size=20))
@example(b"{}", "²")
@example(b"{}", "9" * 5000)
@example(b"1" * 5000, None)
@example(b'{"inputs": [{"data": ' + b"[" * 900 + b"]" * 900 + b"}]}", None)
def test_no_bytes_raise_anything_else(body: bytes, length: str | None) -> None:
    survives(body, length)


@given(numbers, st.data())
def test_no_flipped_byte_raises_anything_else(array: ndarray, data: st.DataObject) -> None:
    body, length = write_message({}, [Tensor("x", array, True)], "inputs")
    at = data.draw(st.integers(0, len(body) - 1))
    flipped = body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :]
    survives(flipped, str(length))


@pytest.mark.parametrize("shape", [[2**40], [2**20, 2**19], [0, 2**40], [1] * 31 + [2**33]])
@pytest.mark.parametrize("kind", ["FP64", "BYTES"])
def test_claims_take_no_memory(shape: list[int], kind: str) -> None:
    body = json.dumps({"inputs": [entry(shape=shape, datatype=kind, data=[])]}).encode()
    tracemalloc.start()
    try:
        survives(body, None)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_long_string_among_numbers_takes_no_memory() -> None:
    data = [0] * 100_000 + ["a" * 100_000]  # as an array of strings: forty gigabytes
    with pytest.raises(LNTrustError, match="cannot be FP32") as error:
        read(json.dumps({"inputs": [entry(shape=[len(data)], data=data)]}).encode(), None)
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
            split(body, None, most)
        except LNTrustError as error:
            refused += "send fewer values at once, or numbers as binary data" in str(error)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert taken < (1 << 16 if refused else most), (item, count)
    assert refused


def test_a_long_message_is_written_as_a_short_one() -> None:
    """In pieces, and still JSON."""
    x = np.arange(200_001, dtype=np.float32) / 7
    body, length = write_message({"id": "7"}, [Tensor("x", x), Tensor("y", x[:0])], "outputs")
    entries = [
        {"name": name, "datatype": "FP32", "shape": [len(a)], "data": a.tolist()}
        for name, a in (("x", x), ("y", x[:0]))
    ]
    whole = json.dumps({"id": "7", "outputs": entries}, separators=(",", ":")).encode()
    assert (body == whole, length) == (True, None)
