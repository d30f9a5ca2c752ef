"""A node for the door for clients, small but honest, and questions to it."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import urllib3
from numpy import ndarray
from test_metrics import STATUS

from lntrust.fleet.http.service import Prediction, Which
from lntrust.fleet.settings import NodeSettings

CLASSES = ("cat", "dog", "Vögel")
LARGEST = 100_000
W = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)  # of `self`, its friend, and another
X = np.random.default_rng(1).normal(size=(5, 2, 2)).astype(np.float32)


def softmax(logits: ndarray) -> ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class Node:
    """A node of linear models: small, but it computes what it says."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings, self.version, self.ready, self.failing = settings, 7, True, False
        self.before: Callable[[], None] = lambda: None  # what a test wants to happen while it computes

    def predict(self, x: ndarray, which: Which = "ensemble") -> Prediction:
        self.before()
        flat = x.reshape(len(x), -1).astype(np.float32)
        if which == "self":
            return Prediction(softmax(flat @ W[0]), {"a": 1.0}, {"a": self.version}, {})
        p = 0.75 * softmax(flat @ W[0]) + 0.25 * softmax(flat @ W[1])
        return Prediction(p, {"a": 0.75, "b": 0.25}, {"a": self.version, "b": 3}, {"c": "no answer in 1 s"})

    def status(self) -> dict[str, Any]:
        return dict(STATUS)


def settings(**changes: Any) -> NodeSettings:
    table: dict[str, Any] = {
        "name": "a",
        "input": {"name": "pixels", "shape": [2, 2], "classes": CLASSES, **changes.pop("input", {})},
        "model": {"kind": "linear"},
        "data": {"labelled": "x.npz", "probe_with": "validation", "shard": "none"},
        "http": {"listen": "127.0.0.1:0", "largest": LARGEST, **changes},
    }
    return NodeSettings.model_validate(table)


def ask(address: str, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, Any]:
    """The status of a response, and its JSON."""
    with urllib3.PoolManager(timeout=60, retries=False) as pool:
        sent = json.dumps(body).encode() if isinstance(body, dict) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        method = method or ("GET" if body is None else "POST")
        got = pool.request(method, f"http://{address}{path}", body=sent, headers=named)
        assert got.headers["Content-Type"] == "application/json"
        return got.status, got.json()


def question(x: ndarray = X, datatype: str = "FP32", name: str = "pixels", **more: Any) -> dict[str, Any]:
    entry = {"name": name, "datatype": datatype, "shape": list(x.shape), "data": x.tolist()}
    return {"inputs": [entry], **more}
