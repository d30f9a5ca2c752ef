"""Makes src/lntrust/fleet/assets/digits.onnx: the demonstration's model that cannot train.

A logistic regression on the rows of scikit-learn's digits that no node of the demonstration has, written as
Gemm and Softmax. Needs the package onnx:

    python benchmarks/demo_onnx.py
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

import lntrust.fleet
from lntrust.fleet.operations.demo_data import ONNX_FILE, digits, rows


def make() -> bytes:
    """The file's content. It takes inputs [m, 64] from 0 to 1."""
    x, y = digits()
    _, mine = rows()
    model = LogisticRegression(max_iter=2000).fit(x[mine].reshape(-1, 64) / 16, y[mine])
    weights = [("W", model.coef_.T), ("b", model.intercept_)]
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["input", "W", "b"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        ],
        "digits",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["m", 64])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["m", 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


if __name__ == "__main__":
    path = Path(lntrust.fleet.__file__).parent / "operations" / "assets" / ONNX_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(make())
    print(f"wrote {path}: {path.stat().st_size} bytes")
