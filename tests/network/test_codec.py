"""Messages: exact sizes, faithful round trips, and nothing but clear errors for strangers' bytes."""

import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save

from lntrust.core.errors import LNTrustError
from lntrust.network import Message, decode, encode, size
from lntrust.network.codec import KINDS

DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32",
          "float64", "int64", "uint64"]  # fmt: skip
# Plain names, and any text at all that can be written as UTF-8.
NAMES = st.one_of(
    st.text("abcXYZ019_./-", min_size=1, max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
).filter(lambda name: name not in ("envelope", "__metadata__"))
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=12)


def arrays() -> st.SearchStrategy[np.ndarray]:
    def make(dtype: str, shape: tuple[int, ...], value: int) -> np.ndarray:
        return np.full(shape, np.uint8(value)).astype(dtype)

    return st.builds(make, st.sampled_from(DTYPES), SHAPES, st.integers(0, 255))


MESSAGES = st.builds(
    Message,
    kind=st.sampled_from(KINDS),
    tensors=st.dictionaries(NAMES, arrays(), max_size=6),
    round=st.integers(0, 2**63 - 1),
    version=st.integers(-(2**63), 2**63 - 1),
)


def specs(message: Message) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (t.shape, t.dtype.name) for name, t in message.tensors.items()}


def assert_same(a: Message, b: Message) -> None:
    assert (a.kind, a.round, a.version) == (b.kind, b.round, b.version)
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in a.tensors.items():
        assert tensor.dtype == b.tensors[name].dtype
        assert tensor.shape == b.tensors[name].shape
        assert np.array_equal(tensor, b.tensors[name])


@settings(max_examples=400)
@given(MESSAGES)
def test_a_message_survives_the_wire_and_its_size_is_known_without_encoding(message: Message) -> None:
    data, got = encode(message), size(specs(message))
    assert_same(decode(data), message)
    assert got.total == len(data)
    assert got.payload == sum(t.nbytes for t in message.tensors.values())


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 99, 1000, 123_457])
def test_sizes_are_exact_however_many_digits_the_offsets_have(count: int) -> None:
    message = Message(
        "query",
        {"inputs": np.zeros((count, 3), np.uint8), "z": np.zeros(count, np.uint64), "a": np.ones(7, bool)},
    )
    assert size(specs(message)).total == len(encode(message))


def test_memory_layout_does_not_matter() -> None:
    """Transposed, strided and big-endian arrays travel as the values they stand for."""
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    for array in (values.T, values[::2, ::-1], np.asfortranarray(values), values.astype(">i4"), special):
        (received,) = decode(encode(Message("anchors", {"x": array}))).tensors.values()
        np.testing.assert_array_equal(received, array)


def decode_or_refuse(data: bytes) -> Message | None:
    """Any other exception than LNTrustError fails the test."""
    with suppress(LNTrustError):
        return decode(data)
    return None


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    assert decode_or_refuse(data) is None


@settings(max_examples=400)
@given(MESSAGES, st.data())
def test_damaged_messages_are_read_or_refused(message: Message, data: st.DataObject) -> None:
    whole = bytearray(encode(message))
    how = data.draw(st.sampled_from(["flip", "cut", "insert", "grow"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    if how == "flip":
        whole[at] = data.draw(st.integers(0, 255))
    elif how == "cut":
        del whole[at:]
    elif how == "insert":
        whole[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    else:
        whole += data.draw(st.binary(min_size=1, max_size=16))
    read = decode_or_refuse(bytes(whole))
    assert how != "cut" or read is None
    if read is not None:
        assert_library_agrees(bytes(whole), read)


def assert_library_agrees(data: bytes, read: Message) -> None:
    """What we have read, the format's own library reads as well, and the same."""
    theirs = load(data)
    del theirs["envelope"]
    assert set(theirs) == set(read.tensors)
    for name, tensor in theirs.items():
        assert tensor.dtype == read.tensors[name].dtype
        np.testing.assert_array_equal(tensor, read.tensors[name])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**65) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=700)
@given(st.data())
def test_any_header_is_read_as_by_the_library_or_refused(data: st.DataObject) -> None:
    entry = {
        "dtype": data.draw(st.sampled_from(["F32", "U8", "I64", *HEADER_DTYPES]) | JSON),
        "shape": data.draw(st.lists(st.integers(0, 4), max_size=3) | st.lists(LARGE, max_size=70) | JSON),
        "data_offsets": data.draw(st.lists(st.integers(28, 64), min_size=2, max_size=2) | JSON),
    }
    for missing in data.draw(st.sets(st.sampled_from(sorted(entry)), max_size=1)):
        del entry[missing]
    header = {"envelope": ENVELOPE, "x": data.draw(st.just(entry) | JSON)}
    whole = raw(header, NUMBERS + bytes(data.draw(st.integers(0, 40))))
    read = decode_or_refuse(whole)
    if read is not None:
        assert_library_agrees(whole, read)


def raw(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


ENVELOPE = {"dtype": "I64", "shape": [4], "data_offsets": [0, 32]}
NUMBERS = np.array([1, 0, 0, 0]).tobytes()
HEADER_DTYPES = ["BOOL", "F4", "F6_E2M3", "F8_E4M3", "F8_E5M2", "F8_E8M0", "BF16", "F16", "C64", "U64", "X"]
LARGE = st.sampled_from([0, 1, 2, 8, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -1])


OTHER_HEADERS: list[Any] = [[], 3, "text", None, {"__metadata__": 3}, {"x": {}}, {"x": [1, 2]}]
ENVELOPES = [np.zeros(4, np.int32), np.zeros(3, np.int64), np.zeros((2, 2), np.int64)]
REFUSED = [
    *((raw(header), "not safetensors") for header in OTHER_HEADERS),
    *((struct.pack("<Q", claimed) + b"{}", "not safetensors") for claimed in (9, 2**32, 2**64 - 1)),
    (save({"x": np.zeros(4)}), r"needs a tensor 'envelope', int64\[4\]"),
    *((save({"envelope": wrong}), r"needs a tensor 'envelope', int64\[4\]") for wrong in ENVELOPES),
    (save({"envelope": np.array([2, 0, 0, 0])}), "speaks protocol 2; this node speaks 1"),
    *(
        (save({"envelope": np.array([1, kind, 0, 0])}), f"kind {kind} is unknown; known are 0…3")
        for kind in (-1, len(KINDS), 2**40)
    ),
]


@pytest.mark.parametrize(("data", "says"), REFUSED)
def test_what_is_no_message_of_ours_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(LNTrustError, match=says):
        decode(data)


def test_nobody_forges_the_envelope() -> None:
    with pytest.raises(LNTrustError, match="the name is taken"):
        encode(Message("query", {"envelope": np.zeros(4, np.int64)}))
