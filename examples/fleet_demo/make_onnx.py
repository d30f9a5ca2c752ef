"""Makes digits.onnx: the demonstration's model that cannot train.

A logistic regression on the rows of scikit-learn's digits that no node of the demonstration has, written as
Gemm and Softmax. Needs the package onnx:

    python -m examples.fleet_demo.make_onnx
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

from examples.fleet_demo.nodes import ONNX_FILE, digits, rows


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
    return bytes(made.SerializeToString())


if __name__ == "__main__":
    ONNX_FILE.write_bytes(make())
    print(f"wrote {ONNX_FILE}: {ONNX_FILE.stat().st_size} bytes")
