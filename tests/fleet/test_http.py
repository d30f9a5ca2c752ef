"""The door for clients, on a port of this machine: Triton's own client, and others with worse manners."""

import http.client
import json
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import urllib3
from numpy import ndarray
from prometheus_client.parser import text_string_to_metric_families
from test_metrics import STATUS

from lntrust import LNTrustError, __version__
from lntrust.fleet import http as door_module
from lntrust.fleet.http import HttpDoor
from lntrust.fleet.service import Prediction, Which
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
        self.settings, self.version, self.ready = settings, 7, True
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


@pytest.fixture(scope="module")
def node() -> Node:
    return Node(settings())


@pytest.fixture(scope="module")
def address(node: Node) -> Iterator[str]:
    door = HttpDoor(node)
    yield door.address
    door.close()


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address, connection_timeout=5, network_timeout=5) as client:
        yield client


def ask(address: str, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, Any]:
    """The status of a response, and its JSON."""
    with urllib3.PoolManager(timeout=10, retries=False) as pool:
        sent = json.dumps(body).encode() if isinstance(body, dict) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        method = method or ("GET" if body is None else "POST")
        got = pool.request(method, f"http://{address}{path}", body=sent, headers=named)
        assert got.headers["Content-Type"] == "application/json"
        return got.status, got.json()


def question(x: ndarray = X, datatype: str = "FP32", name: str = "pixels", **more: Any) -> dict[str, Any]:
    entry = {"name": name, "datatype": datatype, "shape": list(x.shape), "data": x.tolist()}
    return {"inputs": [entry], **more}


# -- with Triton's client ---------------------------------------------------------------------------------


def test_triton_finds_the_server_and_its_models(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata() == {
        "name": "lntrust", "version": __version__, "extensions": ["binary_tensor_data"],
    }  # fmt: skip
    for model in ("ensemble", "self"):
        assert client.is_model_ready(model)
        assert client.is_model_ready(model, "7")
        assert not client.is_model_ready(model, "8")
        assert client.get_model_metadata(model) == client.get_model_metadata(model, "7") == {
            "name": model, "versions": ["7"], "platform": "lntrust",
            "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 2, 2]}],
            "outputs": [
                {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3]},
                {"name": "label", "datatype": "BYTES", "shape": [-1]},
            ],
        }  # fmt: skip
    assert not client.is_model_ready("other")


@pytest.mark.parametrize("model", ["ensemble", "self"])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("version", ["", "7"])
def test_triton_gets_the_node_s_answers(
    client: triton.InferenceServerClient, node: Node, model: Which, binary_in: bool, binary_out: bool | None,
    version: str,
) -> None:  # fmt: skip
    tensor = triton.InferInput("pixels", list(X.shape), "FP32")
    tensor.set_data_from_numpy(X, binary_data=binary_in)
    outputs = binary_out is not None and [
        triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("probabilities", "label")
    ]
    got = client.infer(model, [tensor], model_version=version, outputs=outputs or None, request_id="42")
    expected = node.predict(X, model)
    np.testing.assert_array_equal(got.as_numpy("probabilities"), expected.probabilities)
    assert got.as_numpy("probabilities").dtype == np.float32
    labels = [word.decode() if isinstance(word, bytes) else word for word in got.as_numpy("label")]
    assert labels == [CLASSES[c] for c in expected.probabilities.argmax(-1)]
    response = got.get_response()
    assert (response["model_name"], response["model_version"], response["id"]) == (model, "7", "42")
    if model == "self":
        assert response["parameters"] == {"weight.a": 1.0, "answered": "a"}
    else:
        assert response["parameters"] == {
            "weight.a": 0.75, "weight.b": 0.25, "answered": "a,b", "silent": "c: no answer in 1 s",
        }  # fmt: skip


def test_triton_is_told_what_is_wrong(client: triton.InferenceServerClient) -> None:
    tensor = triton.InferInput("pixels", [1, 4], "FP64")
    tensor.set_data_from_numpy(np.zeros((1, 4)))
    with pytest.raises(
        triton.InferenceServerException, match="datatype FP64 is not what is needed; send FP32"
    ):
        client.infer("ensemble", [tensor])
    with pytest.raises(
        triton.InferenceServerException, match="'other': is not here; there are ensemble, self"
    ):
        client.infer("other", [tensor])


# -- without --------------------------------------------------------------------------------------------


def test_one_output_alone_and_one_of_each_kind(address: str, node: Node) -> None:
    expected = node.predict(X).probabilities
    code, got = ask(address, "/v2/models/ensemble/infer", question(outputs=[{"name": "label"}]))
    assert code == 200
    labels = [CLASSES[c] for c in expected.argmax(-1)]
    assert got["outputs"] == [{"name": "label", "datatype": "BYTES", "shape": [5], "data": labels}]
    assert "id" not in got
    connection = http.client.HTTPConnection(address, timeout=10)
    asked = [{"name": "probabilities", "parameters": {"binary_data": True}}, {"name": "label"}]
    connection.request("POST", "/v2/models/ensemble/infer", json.dumps(question(outputs=asked)))
    response = connection.getresponse()
    body, length = response.read(), int(response.headers["Inference-Header-Content-Length"])
    assert body[length:] == expected.astype("<f4").tobytes()
    assert json.loads(body[:length])["outputs"][1]["data"] == labels
    connection.close()


def test_numbers_from_json_that_fit_are_taken(address: str, node: Node) -> None:
    x = np.arange(8, dtype=np.int8).reshape(2, 2, 2)
    code, got = ask(address, "/v2/models/self/infer", question(x, "INT8"))
    assert code == 200
    flat = np.array(got["outputs"][0]["data"], np.float32).reshape(2, 3)
    np.testing.assert_array_equal(flat, node.predict(x.astype(np.float32), "self").probabilities)


ZEROS = np.zeros((1, 2, 2))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body: not JSON"),
        (b"\xff" * 50, "body: not JSON"),
        (b"[" * 50_000, "nested too deep"),
        (question(name="image"), "inputs: ['image'] are not what is needed: exactly one, 'pixels'"),
        ({"inputs": question()["inputs"] * 2}, "exactly one, 'pixels'"),
        ({"inputs": []}, "exactly one, 'pixels'"),
        (question(ZEROS, "FP64"), "input 'pixels': datatype FP64 is not what is needed; send FP32"),
        (question(ZEROS.astype(int), "INT64"), "datatype INT64 is not what is needed; send FP32"),
        (question(ZEROS[0]), "shape [2, 2] is not what is needed: [m, 2, 2], m at least 1"),
        (question(ZEROS[:0]), "shape [0, 2, 2] is not what is needed"),
        (question(ZEROS.reshape(1, 4)), "shape [1, 4] is not what is needed"),
        (
            {"inputs": [{**question(ZEROS[0, 0, :1])["inputs"][0], "shape": []}]},
            "shape [] is not what is needed",
        ),
        (question(outputs=[{"name": "logits"}]), "'logits' is not there; there are probabilities, label"),
        (question(id=3), "id: 3 is not a string"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(address: str, body: Any, message: str) -> None:
    code, got = ask(address, "/v2/models/ensemble/infer", body)
    assert (code, list(got)) == (400, ["error"])
    assert message in got["error"]


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/v2/models/other", 404, "model 'other': is not here; there are ensemble, self"),
        ("/v2/models/other/ready", 404, "there are ensemble, self"),
        ("/v2/models/self/versions/6", 404, "version '6' of self: is not here; there is 7"),
        ("/v2/models/self/versions/06/ready", 404, "there is 7"),
        ("/docs", 404, "path '/docs': is not here"),
        ("/openapi.json", 404, "is not here"),
        ("/v2/", 404, "is not here"),
        ("/v2/models/self/infer", 405, "method GET does not do here; POST would"),
    ],
)
def test_what_is_not_there(address: str, path: str, code: int, message: str) -> None:
    got, error = ask(address, path)
    assert got == code
    assert message in error["error"]


def test_status_and_metrics(address: str) -> None:
    assert ask(address, "/status") == (200, STATUS)
    with urllib3.PoolManager(timeout=10, retries=False) as pool:
        got = pool.request("GET", f"http://{address}/metrics")
        assert got.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = list(text_string_to_metric_families(got.data.decode()))
    assert "lntrust_trust" in {family.name for family in families}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip"])
def test_packed_bodies_are_refused_by_name(address: str, encoding: str) -> None:
    code, got = ask(address, "/v2/models/self/infer", question(), Content_Encoding=encoding)
    assert (code, f"Content-Encoding: '{encoding}' is not known" in got["error"]) == (415, True)
    assert ask(address, "/v2/models/self/infer", question(), Content_Encoding="identity")[0] == 200


def test_a_body_too_large_is_refused_before_it_is_sent(address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(
            b"POST /v2/models/self/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n"
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    code, got = ask(address, "/v2/models/self/infer", b" " * (LARGEST + 1))
    assert (code, f"larger than the {LARGEST} bytes of http.largest" in got["error"]) == (413, True)
    assert ask(address, "/v2/models/self/infer", b" " * LARGEST)[0] == 400


def test_chunks_without_an_end_are_refused_once_they_are_too_many(address: str) -> None:
    host, port = address.split(":")
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(b"POST /v2/models/self/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        raw.sendall(chunk * 10)  # as many as may be
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(100)
        raw.settimeout(5)
        raw.sendall(chunk)  # one too many; and there is no last one
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


def test_chunked_bodies_are_read(address: str) -> None:
    text = json.dumps(question()).encode()
    connection = http.client.HTTPConnection(address, timeout=10)
    parts = iter([text[:10], text[10:50], text[50:]])
    connection.request("POST", "/v2/models/self/infer", parts, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 200
    assert len(json.loads(response.read())["outputs"]) == 2
    connection.close()


def test_a_client_that_leaves_and_one_that_dawdles(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door_module, "SLOWEST", 0.3)
    host, port = address.split(":")
    start = b"POST /v2/models/self/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(start)
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(start)
        assert raw.recv(100).startswith(b"HTTP/1.1 408")
    assert ask(address, "/v2/health/live") == (200, {"live": True})
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# -- a door of its own ----------------------------------------------------------------------------------


@pytest.fixture
def opened() -> Iterator[Callable[[Node], str]]:
    doors = []

    def open_(node: Node) -> str:
        doors.append(HttpDoor(node))
        return doors[-1].address

    yield open_
    for door in doors:
        door.close()


def test_who_has_no_token_sees_no_more_than_health(tmp_path: Path, opened: Callable[[Node], str]) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret-Token\n")
    address = opened(Node(settings(token=file)))
    assert ask(address, "/v2/health/live") == (200, {"live": True})
    assert ask(address, "/v2/health/ready") == (200, {"ready": True})
    paths = (
        "/v2",
        "/v2/models/self",
        "/v2/models/self/ready",
        "/status",
        "/metrics",
        "/nowhere",
        "//v2/health/live",
    )
    wrong = (
        "", "Bearer", "Bearer ", "Bearer wrong", "Bearer s3cret-Toke", "Basic s3cret-Token", "s3cret-Token",
        "Bearer s3cret-Token x", "Bearer ÿ",
    )  # fmt: skip
    with urllib3.PoolManager(timeout=10, retries=False) as pool:
        for path in paths:
            for shown in wrong:
                headers = {"Authorization": shown} if shown else {}
                got = pool.request("GET", f"http://{address}{path}", headers=headers)
                assert got.status == 401
                assert got.headers["WWW-Authenticate"].startswith("Bearer")
                assert "Bearer TOKEN" in got.json()["error"]
    assert ask(address, "/v2/models/self/infer", question())[0] == 401
    assert ask(address, "/v2/models/self/infer", question(), Authorization="bearer s3cret-Token")[0] == 200
    assert ask(address, "/status", Authorization="Bearer s3cret-Token")[0] == 200
    with triton.InferenceServerClient(address, network_timeout=5) as client:
        headers = {"Authorization": "Bearer s3cret-Token"}
        assert client.get_model_metadata("self", headers=headers)["name"] == "self"


@pytest.mark.parametrize(
    ("text", "message"), [(None, "cannot be read"), ("", "one word"), ("a b", "one word")]
)
def test_a_token_that_cannot_be_used(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LNTrustError, match=f"http.token: .*{message}"):
        HttpDoor(Node(settings(token=file)))


def test_before_there_is_a_model(opened: Callable[[Node], str]) -> None:
    node = Node(settings())
    node.ready = False
    address = opened(node)
    for path in ("/v2/health/ready", "/v2/models/self/ready"):
        code, got = ask(address, path)
        assert (code, "not ready" in got["error"]) == (503, True)
    assert ask(address, "/v2/models/self/infer", question())[0] == 503
    assert ask(address, "/v2/health/live")[0] == ask(address, "/v2/models/self")[0] == 200
    node.ready = True
    assert ask(address, "/v2/models/self/infer", question())[0] == 200


def test_what_goes_wrong_inside_is_for_the_log(
    opened: Callable[[Node], str], caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(settings())
    address = opened(node)

    def fail(error: Exception) -> Callable[[], None]:
        def raise_() -> None:
            raise error

        return raise_

    node.before = fail(ValueError("hidden detail"))
    code, got = ask(address, "/v2/models/self/infer", question())
    assert (code, got) == (500, {"error": "internal error; the node's log says more"})
    for _ in range(500):  # it is written once the client has its answer
        if "hidden detail" in caplog.text:
            break
        time.sleep(0.01)
    assert "hidden detail" in caplog.text
    node.before = fail(LNTrustError("input: NaN"))
    assert ask(address, "/v2/models/self/infer", question()) == (400, {"error": "input: NaN"})


def test_a_slow_answer_delays_nobody_else(
    opened: Callable[[Node], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "AT_ONCE", 2)
    node, computing, go = Node(settings()), threading.Semaphore(0), threading.Event()

    def wait() -> None:
        computing.release()
        assert go.wait(10)

    node.before = wait
    address = opened(node)
    with ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(ask, address, "/v2/models/self/infer", question()) for _ in range(2)]
        assert all(computing.acquire(timeout=10) for _ in range(2))
        begun = time.monotonic()
        assert ask(address, "/v2/health/live")[0] == 200
        assert ask(address, "/status")[0] == 200
        code, got = ask(address, "/v2/models/self/infer", question())
        assert (code, "busy" in got["error"]) == (503, True)
        assert time.monotonic() - begun < 5
        go.set()
        assert [each.result(10)[0] for each in under_way] == [200, 200]
    assert ask(address, "/v2/models/self/infer", question())[0] == 200, "there is room again"


def test_many_at_once_get_each_their_own_answer(address: str, node: Node) -> None:
    def one(n: int) -> bool:
        code, got = ask(address, "/v2/models/ensemble/infer", question(X * n, id=str(n)))
        flat = np.array(got["outputs"][0]["data"], np.float32).reshape(5, 3)
        return (code, got["id"]) == (200, str(n)) and np.array_equal(flat, node.predict(X * n).probabilities)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(64), timeout=60))


def test_an_answer_comes_at_once(address: str) -> None:
    connection, times = http.client.HTTPConnection(address, timeout=10), []
    for _ in range(30):
        begun = time.monotonic()
        connection.request("POST", "/v2/models/self/infer", json.dumps(question()))
        connection.getresponse().read()
        times.append(time.monotonic() - begun)
    connection.close()
    assert np.median(times) < 0.02, "as it would be if packets waited for each other"


@pytest.mark.parametrize("busy", [False, True])
def test_it_closes_in_time_whoever_is_there(busy: bool, caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    node, computing, go = Node(settings()), threading.Event(), threading.Event()

    def wait() -> None:
        computing.set()
        go.wait(10)

    node.before = wait
    door = HttpDoor(node)
    host, port = door.address.split(":")
    idle = socket.create_connection((host, int(port)), timeout=5)
    asker = http.client.HTTPConnection(door.address, timeout=10)
    if busy:
        asker.request("POST", "/v2/models/self/infer", json.dumps(question()))
        assert computing.wait(10)
    begun = time.monotonic()
    door.close()
    assert time.monotonic() - begun < 2
    assert "http" not in {thread.name for thread in set(threading.enumerate()) - before}
    assert "Traceback" not in caplog.text
    if busy:
        response = asker.getresponse()
        assert (response.status, "stopping" in json.loads(response.read())["error"]) == (503, True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
    door.close()  # again: nothing to do
    go.set()
    idle.close()
    asker.close()


def test_a_port_in_use_is_told_at_once(address: str) -> None:
    with pytest.raises(LNTrustError, match=f"http.listen: cannot listen on {address}.*in use"):
        HttpDoor(Node(settings(listen=address)))


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "no.such.host.invalid:80", "203.0.113.1:80"])
def test_an_address_that_is_not_ours(listen: str) -> None:
    with pytest.raises(LNTrustError, match=re.escape(f"http.listen: cannot listen on {listen}")):
        HttpDoor(Node(settings(listen=listen)))


def test_off_has_no_door() -> None:
    with pytest.raises(LNTrustError, match="off has no door"):
        HttpDoor(Node(settings(listen="off")))


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6(opened: Callable[[Node], str]) -> None:
    try:
        address = opened(Node(settings(listen="[::1]:0")))
    except LNTrustError:
        pytest.skip("this machine has no ::1")
    assert address.startswith("[::1]:")
    assert ask(address, "/v2/health/live")[0] == 200


def test_logging_is_left_alone() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    door = HttpDoor(Node(settings()))
    door.close()
    assert (list(root.handlers), root.level) == before
    assert not logging.getLogger("uvicorn").handlers


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from lntrust.errors import LNTrustError\n"
        "from lntrust.fleet.http import make_app\n"
        "try: make_app(None)\n"
        "except LNTrustError as error: print(error)"
    )
    got = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert got.stdout == "live nodes need the extra fleet: pip install 'lntrust[fleet]'\n"
