"""An ONNX model reads its own file and its weights' file, and no other, wherever it names one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from lntrust.core.errors import LNTrustError
from lntrust.core.onnx_files import INSIDE, locations
from lntrust.learners.onnx import OnnxClassifier

SECRET = b"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEG\n"
SIZE = 8  # numbers of each tensor


def tensor(where: str = "node.key", dims: tuple[int, ...] = (1, SIZE)) -> TensorProto:
    """Numbers that lie in another file: the bytes of a key, as they are."""
    made = TensorProto(name="w", data_type=TensorProto.UINT8, dims=dims)
    made.data_location = TensorProto.EXTERNAL
    for key, value in (("location", where), ("offset", "0"), ("length", str(SIZE))):
        made.external_data.add(key=key, value=value)
    return made


GRAPH = """
g (float[b, 6] x) => (float[b, 8] y) <int64[1] axes = {1}, float[1] zero = {0}> {
    real = Cast <to = 1> (w)
    flat = Flatten (x)
    sum = ReduceSum <keepdims = 1> (flat, axes)
    nothing = Mul (sum, zero)
    y = Add (nothing, real)
}
"""


def saved(path: Path, node: Any = None, numbers: Any = None, sparse: Any = (), functions: Any = ()) -> Path:
    """A model of one input x and one output y, which begins with the numbers in w."""
    graph = onnx.parser.parse_graph(GRAPH)
    if node is not None:
        graph.node.insert(0, node)
    graph.initializer.extend([] if numbers is None else [numbers])
    graph.sparse_initializer.extend(sparse)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9), path)
    return path


def constant(output: str = "w", **attributes: Any) -> Any:
    return helper.make_node("Constant", [], [output], **attributes)


def in_initializer(path: Path) -> Path:
    return saved(path, numbers=tensor())


def in_constant(path: Path) -> Path:
    return saved(path, constant(value=tensor()))


def in_subgraph(path: Path) -> Path:
    output = [helper.make_tensor_value_info("inner", TensorProto.UINT8, [1, SIZE])]
    held = tensor()
    held.name = "inner"
    branch = helper.make_graph([], "branch", [], output, [held])
    node = helper.make_node("If", ["yes"], ["w"], then_branch=branch, else_branch=branch)
    return saved(path, node, numpy_helper.from_array(np.array(True), "yes"))


def in_function(path: Path) -> Path:
    inside, opsets = [constant("out", value=tensor())], [helper.make_opsetid("", 17)]
    body = helper.make_function("own", "Secret", [], ["out"], inside, opsets)
    return saved(path, helper.make_node("Secret", [], ["w"], domain="own"), functions=[body])


def in_sparse(path: Path) -> Path:
    indices = numpy_helper.from_array(np.arange(SIZE), "i")
    return saved(path, sparse=[helper.make_sparse_tensor(tensor(dims=(SIZE,)), indices, [1, SIZE])])


HIDDEN = [in_initializer, in_constant, in_subgraph, in_function, in_sparse]


@pytest.mark.parametrize("hide", HIDDEN)
def test_no_model_reads_the_key_beside_it(tmp_path: Path, hide: Callable[[Path], Path]) -> None:
    (tmp_path / "node.key").write_bytes(SECRET)
    with pytest.raises(LNTrustError, match=r"would read the file 'node\.key'; its weights may lie in itself"):
        OnnxClassifier(hide(tmp_path / "m.onnx"), (6,), SIZE, logits=False)


def moved(file: Path, to: str) -> Path:
    """The same model, its tensors in another file."""
    model = onnx.load(file, load_external_data=False)
    for held in model.graph.initializer:
        for entry in held.external_data:
            entry.value = to if entry.key == "location" else entry.value
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("name", ["m.onnx.data", "m.onnx_data", "m.data"])
def test_weights_beside_it_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(range(1, SIZE + 1)))
    file = moved(in_initializer(tmp_path / "m.onnx"), name)
    got = OnnxClassifier(file, (6,), SIZE, logits=False).predict_proba(np.ones((2, 6)))
    np.testing.assert_allclose(got[0], np.arange(1, SIZE + 1) / 36, atol=1e-6)


ELSEWHERE = ["../m.onnx.data", "./m.onnx.data", "/etc/hostname", "state/node.safetensors", "NODE.toml"]


def test_any_other_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx.data").write_bytes(SECRET)
    for name in (*ELSEWHERE, "m.onnx.data/", ""):
        with pytest.raises(LNTrustError, match="would read the file"):
            OnnxClassifier(moved(in_initializer(tmp_path / "m.onnx"), name), (6,), SIZE)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_place_of_its_weights_is_refused(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "node.key").write_bytes(SECRET)
    link(tmp_path / "m.onnx.data", tmp_path / "node.key")
    file = moved(in_initializer(tmp_path / "m.onnx"), "m.onnx.data")
    with pytest.raises(LNTrustError, match=r"its weights, .*m\.onnx\.data, must be a file, and no link"):
        OnnxClassifier(file, (6,), SIZE)


def test_every_place_where_a_tensor_can_stand_is_looked_at() -> None:
    """By ONNX's own description of its files."""
    ours = {
        "ModelProto": "model", "TrainingInfoProto": "training", "FunctionProto": "function",
        "GraphProto": "graph", "NodeProto": "node", "AttributeProto": "attribute",
        "SparseTensorProto": "sparse", "TensorProto": "tensor",
    }  # fmt: skip

    def inner(kind: Any) -> dict[int, Any]:
        return {f.number: f.message_type for f in kind.fields if f.message_type is not None}

    def holds(kind: Any, seen: frozenset[str] = frozenset()) -> bool:
        if kind.name == "TensorProto":
            return True
        return kind.name not in seen and any(holds(each, seen | {kind.name}) for each in inner(kind).values())

    left, done = [onnx.ModelProto.DESCRIPTOR], set[str]()
    while left:
        kind = left.pop()
        if kind.name == "TensorProto" or kind.name in done:
            continue
        done.add(kind.name)
        within = {number: each for number, each in inner(kind).items() if holds(each)}
        assert INSIDE[ours[kind.name]] == {number: ours[each.name] for number, each in within.items()}
        left += within.values()
    assert done | {"TensorProto"} == set(ours)
    assert INSIDE["tensor"] == {TensorProto.DESCRIPTOR.fields_by_name["external_data"].number: "entry"}


def test_a_name_is_found_however_its_field_is_written(tmp_path: Path) -> None:
    """Readers keep 32 bits of a field's number: one with a bit more is the same field."""
    plain = tensor().SerializeToString()
    tag = bytes([13 << 3 | 2])
    assert plain.count(tag + b"\x14") == 1  # the first entry: location, node.key
    overlong = plain.replace(tag + b"\x14", bytes([0xEA, 0x80, 0x80, 0x80, 0x10, 0x14]))
    model = onnx.ModelProto(ir_version=9)
    model.graph.initializer.add().ParseFromString(plain)
    assert list(locations(model.SerializeToString())) == ["node.key"]

    def wrapped(number: int, inner: bytes) -> bytes:
        return bytes([number << 3 | 2, len(inner)]) + inner

    assert list(locations(wrapped(7, wrapped(5, overlong)))) == ["node.key"]


@pytest.mark.parametrize("data", [b"\x3a", b"\x3a\x05ab", b"\x0b", b"\xff" * 11, b"\x0d\x00"])
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it is"):
        list(locations(data))
