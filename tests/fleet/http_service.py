"""A node for the door for clients, small but honest, and questions to it."""

import json
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import urllib3
from numpy import ndarray

from lntrust.fleet.answers import Prediction, Which
from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.http.bounds import Bounds
from lntrust.fleet.settings import NodeSettings

CLASSES = ("cat", "dog", "Vögel")
LARGEST = 100_000
W = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)  # of `self`, its friend, and another
X = np.random.default_rng(1).normal(size=(5, 2, 2)).astype(np.float32)
INFER = "/v2/models/self/infer"
POST = f"POST {INFER} HTTP/1.1\r\nHost: here\r\n".encode()
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

SILENT: dict[str, Any] = {
    "present": False, "state": "open", "trust": 0.0, "probed": False, "version": None, "age": None,
    "round_trip": None, "refused": "another order of classes", "instances": 0,
}  # fmt: skip
HEARD: dict[str, Any] = {
    "present": True, "state": "closed", "trust": 0.25, "probed": True, "version": 6, "age": 1.5,
    "round_trip": 0.004, "refused": None, "instances": 2,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "name": "a", "lntrust": "0.1.0", "model_version": 7, "phase": "stage 2", "round": 5, "rounds": 40,
    "error": None, "training_failures": 2,
    "uptime": 12.5, "strength": 0.5, "together": True, "validation": {"self": 0.75, "ensemble": 0.875},
    "trust": {"a": 0.75, "b": 0.25, "c": 0.0},
    "neighbours": {"b": HEARD, "c": SILENT, "d": {**SILENT, "state": "half open"}},
    "queries": {"in": {"b": 3}, "out": {"b": 4, "c": 2}},
    "bytes": {"in": {"probe": 100, "framing": 10}, "out": {"shard": 200}},
    "retries": {"c": 1}, "refusals": {"busy": 2}, "failures": {"no answer": 3},
    "clients": {"ensemble": 9, "self": 1},
    "certificate": {"expires": "2030-01-01T00:00:00+00:00", "seconds_left": 1000.0},
    "saved": {"round": 4, "at": "2029-01-01T00:00:00Z", "failures": 1, "torn": None},
}  # fmt: skip


def softmax(logits: ndarray) -> ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class Node:
    """A node of linear models: small, but it computes what it says."""

    def __init__(self, **changes: Any) -> None:
        self.settings, self.version, self.failing = settings(**changes), 7, False
        self.before: Callable[[], None] = lambda: None  # what a test wants to happen while it computes
        self.silent = {"c": "no answer in 1 s"}
        self.seen: list[ndarray] = []

    def predict(self, x: ndarray, which: Which = "ensemble") -> Prediction:
        self.before()
        self.seen.append(x)
        flat = x.reshape(len(x), -1).astype(np.float32)
        if which == "self":
            return Prediction(softmax(flat @ W[0]), {"a": 1.0}, {"a": self.version}, {})
        p = 0.75 * softmax(flat @ W[0]) + 0.25 * softmax(flat @ W[1])
        return Prediction(p, {"a": 0.75, "b": 0.25}, {"a": self.version, "b": 3}, self.silent)

    def status(self) -> dict[str, Any]:
        return STATUS


class Ten(Node):
    """As good as any model of ten classes, here."""

    def predict(self, x: ndarray, which: Which = "ensemble") -> Prediction:
        z = np.sin(np.arange(1, 11, dtype=np.float32) * x.astype(np.float32)) + 2
        return Prediction(z / z.sum(1, keepdims=True), {"a": 1.0}, {"a": self.version}, {})


def settings(**changes: Any) -> NodeSettings:
    table: dict[str, Any] = {
        "name": "a",
        "input": {"name": "pixels", "shape": [2, 2], "classes": CLASSES, **changes.pop("input", {})},
        "model": {"kind": "linear"},
        "data": {"labelled": "x.npz", "probe_with": "validation", "shard": "none"},
        "http": {"listen": "127.0.0.1:0", "largest": LARGEST, **changes},
    }
    return NodeSettings.model_validate(table)


def connect(address: str, seconds: float = 60) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=seconds)


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


def serve(address: str) -> None:
    """One small number as input and ten classes: small questions have large answers."""
    given = {"shape": [1], "dtype": "uint8", "classes": [f"class {number}" for number in range(10)]}
    with closing(HttpDoor(Ten(largest=16 << 20, listen=address, input=given), Bounds(grace=2.0))):
        signal.pause()
