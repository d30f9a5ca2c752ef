"""The door for clients, on a port of this machine: Triton's own client, and others with worse manners."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import urllib3
from http_service import CLASSES, INFER, LARGEST, POST, STATUS, Node, X, ask, connect, question

from lntrust import __version__
from lntrust.fleet.answers import Which
from lntrust.fleet.http.metrics import exposition

Opened = Callable[..., str]


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address, connection_timeout=60, network_timeout=60) as client:
        yield client


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
            "weight.a": 0.75, "weight.b": 0.25, "answered": "a,b", "silent.c": "no answer in 1 s",
        }  # fmt: skip


def test_triton_is_told_what_is_wrong(client: triton.InferenceServerClient) -> None:
    tensor = triton.InferInput("pixels", list(X.shape), "FP32")
    tensor.set_data_from_numpy(X + np.nan)
    with pytest.raises(triton.InferenceServerException, match="input 'pixels': row 0, column 0, 0 is nan"):
        client.infer("ensemble", [tensor])


# -- without --------------------------------------------------------------------------------------------


def test_one_output_alone(address: str, node: Node) -> None:
    """And numbers from JSON that fit into what is needed."""
    x = np.arange(8, dtype=np.int8).reshape(2, 2, 2)
    p = node.predict(x.astype(np.float32)).probabilities
    code, got = ask(address, "/v2/models/ensemble/infer", question(x, "INT8", outputs=[{"name": "label"}]))
    labels = [CLASSES[c] for c in p.argmax(-1)]
    assert got["outputs"] == [{"name": "label", "datatype": "BYTES", "shape": [2], "data": labels}]
    assert (code, "id" in got) == (200, False)


ZEROS = np.zeros((1, 2, 2))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\xff" * 50, "body: not JSON"),
        (question(name="image"), "inputs: ['image'] are not what is needed: exactly one, 'pixels'"),
        ({"inputs": question()["inputs"] * 2}, "exactly one, 'pixels'"),
        ({"inputs": []}, "exactly one, 'pixels'"),
        (question(ZEROS, "FP64"), "input 'pixels': datatype FP64 is not what is needed; send FP32"),
        (question(ZEROS[0]), "shape [2, 2] is not what is needed: [m, 2, 2], m at least 1"),
        (question(ZEROS[:0]), "shape [0, 2, 2] is not what is needed"),
        (question(ZEROS.reshape(1, 4)), "shape [1, 4] is not what is needed"),
        (question(ZEROS + np.nan), "input 'pixels': row 0, column 0, 0 is nan; all must be finite"),
        (json.dumps(question(ZEROS + 7)).replace("7.0", "1e999").encode(), "row 0, column 0, 0 is inf"),
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
        (INFER, 405, "method GET does not do here; POST would"),
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
    assert got.data == exposition(STATUS)


def test_packed_bodies_are_refused_by_name(address: str) -> None:
    for encoding in ("gzip", "identity, gzip", "Identity"):
        code, got = ask(address, INFER, question(), Content_Encoding=encoding)
        refused = f"header Content-Encoding: {encoding!r} is not known; send it plain"
        assert code == 200 if encoding == "Identity" else (code, got) == (415, {"error": refused})


def test_a_body_too_large_is_refused_before_it_is_sent(address: str) -> None:
    with connect(address) as raw:
        raw.sendall(POST + b"Content-Length: 1000000000000\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    code, got = ask(address, INFER, b" " * (LARGEST + 1))
    assert (code, f"larger than the {LARGEST} bytes of http.largest" in got["error"]) == (413, True)
    assert ask(address, INFER, b" " * LARGEST)[0] == 400


def test_chunks_without_an_end_are_refused_once_they_are_too_many(address: str) -> None:
    chunk, begun = b"2710\r\n" + b" " * 10_000 + b"\r\n", POST + b"Transfer-Encoding: chunked\r\n\r\n"
    with connect(address) as raw:
        raw.sendall(begun + chunk * 10)  # as many as may be
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(100)
        raw.settimeout(60)
        raw.sendall(chunk)  # one too many; and there is no last one
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


def test_no_more_examples_than_an_answer_may_hold(opened: Opened) -> None:
    address = opened(Node(), probabilities=14)  # of 3 classes
    assert ask(address, INFER, question(X[:4]))[0] == 200
    code, got = ask(address, INFER, question(X[:5]))
    assert (code, got) == (400, {"error": "input 'pixels': 5 examples are too many; send 4 at once"})


def test_a_client_that_leaves_and_one_that_dawdles(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    address, start = opened(Node(), slowest=1.0), POST + b"Content-Length: 100\r\n\r\n{"
    with connect(address) as raw:
        raw.sendall(start)
    with connect(address) as raw:
        raw.sendall(start)
        assert raw.recv(100).startswith(b"HTTP/1.1 408")
    assert ask(address, "/v2/health/live") == (200, {"live": True})
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
