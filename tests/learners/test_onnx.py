"""Finished models in ONNX files, of the kinds that exporters write."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from toy import CLASSES, DATASET, everything, learner, lists, population

from lntrust.core.errors import LNTrustError
from lntrust.learners.modules import build
from lntrust.learners.onnx import OnnxClassifier

RNG = np.random.default_rng(5)
WEIGHTS = RNG.normal(size=(6, CLASSES)).astype(np.float32)
BIAS = RNG.normal(size=CLASSES).astype(np.float32)
X = RNG.normal(size=(300, 6))  # more than a call takes
ELEMENT = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.uint8: TensorProto.UINT8}
Shape = tuple[int | str | None, ...]


def write(
    path: Path,
    *,
    shape: Shape = ("b", 6),
    dtype: Any = np.float32,
    weights: np.ndarray = WEIGHTS,
    bias: np.ndarray = BIAS,
    softmax: bool = False,
    label: bool = False,
) -> Path:
    """A linear classifier; with `label` the outputs are those of an exported scikit-learn model."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Gemm", ["real", "w", "c"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
    ]
    classes = weights.shape[1]
    output = "probabilities" if softmax else "logits"
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, [shape[0], classes])]
    if label:
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, [shape[0]]))
    inputs = [helper.make_tensor_value_info("x", ELEMENT[dtype], shape)]
    held = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "c")]
    graph = helper.make_graph(nodes, "linear", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def expected(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x @ WEIGHTS.astype(np.float64) + BIAS)
    return np.asarray(powers / powers.sum(1, keepdims=True))


# -- what it answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("shape", [("b", 6), (None, 6), (1, 6), (4, 6), ("b", "d")])
def test_it_gives_probabilities_whatever_the_export(tmp_path: Path, shape: Shape, softmax: bool) -> None:
    model = OnnxClassifier(write(tmp_path / "m.onnx", shape=shape, softmax=softmax), (6,), CLASSES)
    got = model.predict_proba(X)
    assert got.dtype == np.float64
    assert model.logits is not softmax
    np.testing.assert_allclose(got, expected(X), atol=1e-6)
    assert model.predict_proba(X[:0]).shape == (0, CLASSES)
    assert model.classes_.tolist() == list(range(CLASSES))


@pytest.mark.parametrize("given", [(2, 3), (6,), (1, 2, 3)])
@pytest.mark.parametrize("wanted", [("b", 2, 3), ("b", 6), (1, 1, 2, 3)])
def test_inputs_take_the_shape_the_model_wants(tmp_path: Path, wanted: Shape, given: tuple[int, ...]) -> None:
    model = OnnxClassifier(write(tmp_path / "m.onnx", shape=wanted), given, CLASSES)
    np.testing.assert_allclose(model.predict_proba(X), expected(X), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_inputs_take_the_dtype_the_model_wants(tmp_path: Path, dtype: Any) -> None:
    model = OnnxClassifier(write(tmp_path / "m.onnx", dtype=dtype), (6,), CLASSES)
    x = np.arange(12, dtype=np.float32).reshape(2, 6) % 5
    np.testing.assert_allclose(model.predict_proba(x + 1e-4), expected(x), atol=2e-3)


def test_of_labels_and_probabilities_the_probabilities_count(tmp_path: Path) -> None:
    file = write(tmp_path / "m.onnx", softmax=True, label=True)
    for output in (None, "probabilities"):
        got = OnnxClassifier(file, (6,), CLASSES, output=output).predict_proba(X)
        np.testing.assert_allclose(got, expected(X), atol=1e-6)


def test_one_can_say_what_the_output_is(tmp_path: Path) -> None:
    """Logits that happen to look like probabilities: all the same, whatever the input."""
    quarter = np.full(CLASSES, 1 / CLASSES, np.float32)
    quarter[:2] = 0.4, 0.1
    file = write(tmp_path / "m.onnx", weights=0 * WEIGHTS, bias=quarter)
    seen = OnnxClassifier(file, (6,), CLASSES).predict_proba(X[:1])
    told = OnnxClassifier(file, (6,), CLASSES, logits=True).predict_proba(X[:1])
    np.testing.assert_allclose(seen[0], quarter, atol=1e-6)
    np.testing.assert_allclose(told[0], np.exp(quarter) / np.exp(quarter).sum(), atol=1e-6)


def test_numbers_that_are_none_become_nan(tmp_path: Path) -> None:
    x = X[:11].copy()
    x[3, 2] = np.inf
    got = OnnxClassifier(write(tmp_path / "m.onnx"), (6,), CLASSES).predict_proba(x)
    assert np.isnan(got).any(1).tolist() == [i == 3 for i in range(len(x))]


# -- as a node --------------------------------------------------------------------------------------------


def test_a_node_has_it_and_learns_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "m.onnx")
    nodes = population(learner("onnx", file=str(file)), "forest", n=2)
    nodes.refit(lists(2))
    nodes.refit(lists(2, seed=1))  # other data, the same answers
    got = nodes.predict_all(everything())[0].numpy()
    np.testing.assert_allclose(got, expected(np.asarray(DATASET.view("flat"))), atol=1e-6)
    again = population(learner("onnx", file=str(file)), "forest", n=2)
    again.load(nodes.state())
    assert (again.predict_all(everything())[0].numpy() == got).all()


# -- what cannot be used ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "missing 1 required positional argument: 'file'"),
        ({"file": "none.onnx"}, "none.onnx': is not there"),
        ({"file": "m.onnx", "output": "y"}, "output = 'y': must name a tensor of real numbers among logits"),
        ({"file": "m.onnx", "colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"file": 3}, "kind = 'onnx' with options {'file': 3}"),
    ],
)
def test_wrong_options_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    write(tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LNTrustError, match=message):
        build(learner("onnx", **options), (6,), CLASSES)


@pytest.mark.parametrize(
    ("made", "given", "classes", "message"),
    [
        ({}, (6,), CLASSES + 1, r"shape \[4, 4\] for 4 examples of 5 classes; must be \[4, 5\]"),
        ({}, (7,), CLASSES, r"wants inputs of shape \['b', 6\].* have shape \[7\]"),
        ({"shape": ("b", 2, 3)}, (3, 2), CLASSES, r"wants inputs of shape \['b', 2, 3\]"),
        ({"shape": ("b", 1, 2, "w")}, (6,), CLASSES, r"wants inputs of shape"),
        ({"shape": ("b", "d")}, (5,), CLASSES, r"does not run on \[4, 5\]"),
    ],
)
def test_models_for_something_else_are_refused(
    tmp_path: Path, made: dict[str, Any], given: tuple[int, ...], classes: int, message: str
) -> None:
    file = write(tmp_path / "m.onnx", **made)
    with pytest.raises(LNTrustError, match=message):
        OnnxClassifier(file, given, classes)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "m.onnx")
    for content in (file.read_bytes()[:-40], b"no model"):
        file.write_bytes(content)
        with pytest.raises(LNTrustError, match=r"m.onnx': not a readable ONNX model"):
            OnnxClassifier(file, (6,), CLASSES)


def test_two_inputs_and_two_real_outputs_are_refused(tmp_path: Path) -> None:
    model = onnx.load(write(tmp_path / "m.onnx"))
    extra = helper.make_tensor_value_info("real", TensorProto.FLOAT, ["b", 6])
    model.graph.output.append(extra)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(LNTrustError, match=r"output = None: must name a tensor .* logits .*, real"):
        OnnxClassifier(tmp_path / "m.onnx", (6,), CLASSES)
    named = OnnxClassifier(tmp_path / "m.onnx", (6,), CLASSES, output="logits")
    np.testing.assert_allclose(named.predict_proba(X), expected(X), atol=1e-6)
    model.graph.input.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b"]))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(LNTrustError, match=r"has the inputs x \(tensor\(float\)\), y .*; must have one"):
        OnnxClassifier(tmp_path / "m.onnx", (6,), CLASSES)


def test_without_onnxruntime_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(LNTrustError, match=r"^onnx: file = .*onnxruntime: pip install 'lntrust\[fleet\]'"):
        OnnxClassifier(write(tmp_path / "m.onnx"), (6,), CLASSES)
