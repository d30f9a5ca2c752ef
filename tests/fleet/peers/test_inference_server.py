"""Servers of the Open Inference Protocol as neighbours: small ones that misbehave, and some that do not."""

import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st
from small_servers import BYTES, JSON, OK, OURS, Act, Request, Street, drips, good, hang, model, output, says
from small_servers import sends as sends_bytes

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.peers.inference_server import InferenceServer
from lntrust.fleet.peers.transport import NoAnswerError, RefusedError
from lntrust.fleet.settings import NeighbourSettings

X = np.random.default_rng(1).random((4, 2, 3)).astype(np.float32)
LONG = 60.0  # seconds, for what comes soon even on a busy machine


# -- what is asked, and how -------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [JSON, BYTES])
def test_questions_in_json_and_in_bytes(street: Street, metadata: Any) -> None:
    """Columns come in our order."""
    server = street.server(good, metadata)
    neighbour = street.neighbour(server, classes=("c", "a", "b"))
    for _ in range(3):
        reply = neighbour.ask(X, timeout=LONG)
        np.testing.assert_allclose(reply.probabilities, model(X)[:, [1, 2, 0]], atol=1e-6)
    assert [path for path, _, _ in server.seen] == ["/v2", *["/v2/models/m/infer"] * 3]
    assert ("Inference-Header-Content-Length" in server.seen[-1][1]) == (metadata is BYTES)
    assert reply.sent == len(server.seen[-1][2])
    assert reply.received >= (12 * 8 if metadata is BYTES else 12 * 10)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("dtype", "metadata", "sent"),
    [
        ("uint8", JSON, "UINT8"), ("uint8", BYTES, "UINT8"), ("float64", JSON, "FP64"),
        ("bool", JSON, "BOOL"), ("float16", BYTES, "FP16"), ("float16", JSON, "FP32"),
    ],
)  # fmt: skip
def test_inputs_travel_as_our_dtype(street: Street, dtype: str, metadata: Any, sent: str) -> None:
    server = street.server(good, metadata)
    x = (4 * X).astype(dtype)
    neighbour = street.neighbour(server, OURS.model_copy(update={"dtype": dtype}), input="image")
    np.testing.assert_allclose(neighbour.ask(x, timeout=LONG).probabilities, model(x), atol=1e-3)
    assert f'"datatype":"{sent}"'.encode() in server.seen[-1][2]
    assert b'"name":"image"' in server.seen[-1][2]


def starting(times: int) -> Act:
    """So often it cannot say yet."""
    says = iter([({"error": "starting"}, 503)] * times)
    return lambda request: request.answer(*next(says, (BYTES, 200)))


@pytest.mark.parametrize(
    ("metadata", "looks"),
    [
        *((junk, 1) for junk in (b"no JSON", {}, [], {"extensions": 3}, b"[" * 60_000, b"x" * 200_000)),
        (starting(1), 2), (starting(9), 3), (hang, 3),
    ],
)  # fmt: skip
def test_who_says_nothing_useful_about_itself_is_asked_all_the_same(
    street: Street, metadata: Any, looks: int
) -> None:
    """In JSON; who cannot say now is asked again, and there is time left for the question."""
    server = street.server(good, metadata)
    neighbour = street.neighbour(server)
    for _ in range(3):
        p = neighbour.ask(X, timeout=4 if metadata is hang else LONG).probabilities
        np.testing.assert_allclose(p, model(X), atol=1e-6)
    assert [path for path, _, _ in server.seen].count("/v2") == looks


def test_numbers_that_json_does_not_have(street: Street) -> None:
    x = X.copy()
    x[0, 0, 0] = np.nan
    with pytest.raises(RefusedError, match=r"cannot be asked: .* no NaN"):
        street.neighbour(street.server(good)).ask(x, timeout=LONG)
    assert np.isnan(street.neighbour(street.server(good, BYTES)).ask(x, timeout=LONG).probabilities[0]).all()


def test_a_closed_connection_is_opened_again(street: Street) -> None:
    def once(request: Request) -> None:
        good(request)
        request.close_connection = True

    server = street.server(once)
    neighbour = street.neighbour(server)
    for number in range(1, 4):
        neighbour.ask(X, timeout=LONG)
        wait_until(lambda number=number: server.closed == number)  # type: ignore[misc]
    assert server.connections == 3


# -- whose classes, which token, which certificate --------------------------------------------------------


NO_MODEL = "must look like http://host:port/v2/models/MODEL"


@pytest.mark.parametrize(
    ("path", "classes", "message"),
    [
        ("/v2/models/m", ("a", "b"), r"ours, in any order; missing are \['c'\], and too many \[\]$"),
        ("/v2/models/m", ("a", "b", "d"), r"missing are \['c'\], and too many \['d'\]$"),
        ("/v2/models/m", ("a", "b", "c", "c"), r"missing are \[\], and too many \['c'\]$"),
        *((path, None, NO_MODEL) for path in ("", "/v2", "/v1/models/m", "/v2/models/")),
        *((f"/v2/models/m{more}", None, NO_MODEL) for more in ("?a=b", "#a")),
    ],
)
def test_other_classes_and_urls_without_a_model_are_refused(path: str, classes: Any, message: str) -> None:
    with pytest.raises(LNTrustError, match=f"neighbour them: .*{message}"):
        InferenceServer(NeighbourSettings(name="them", url=f"http://h{path}", classes=classes), OURS)


def test_the_token_is_shown(street: Street, tmp_path: Path) -> None:
    server, file = street.server(good), tmp_path / "token"
    for text in ("", "two words"):
        file.write_text(text)
        with pytest.raises(LNTrustError, match=r"neighbour them: token = .*token: has to hold one word"):
            street.neighbour(server, token=file)
    file.write_text("open-sesame\n")
    street.neighbour(server, token=file).ask(X, timeout=LONG)
    assert [headers.get("Authorization") for _, headers, _ in server.seen] == ["Bearer open-sesame"] * 2
    street.neighbour(server).ask(X, timeout=LONG)
    assert "Authorization" not in server.seen[-1][1]


def test_https_is_checked(street: Street, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the system's authorities, which OpenSSL takes from a file that the environment may name."""
    authority = Authority.open(tmp_path / "ca")
    authority.issue("server", ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = authority.folder / "server"
    tls.load_cert_chain(folder / "node.pem", folder / "node.key")
    server = street.server(good, BYTES, tls)
    with pytest.raises(NoAnswerError, match=r"no answer: .*certificate verify failed"):
        street.neighbour(server).ask(X, timeout=LONG)
    assert server.seen == []
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    got = street.neighbour(server).ask(X, timeout=LONG).probabilities
    np.testing.assert_allclose(got, model(X), atol=1e-6)
    with pytest.raises(NoAnswerError, match=r"doesn't match|match 'localhost'|mismatch"):
        street.neighbour(server.url.replace("127.0.0.1", "localhost")).ask(X, timeout=LONG)


# -- answers that cannot be used --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("infer", "message"),
    [
        (says([output(shape=(4, 2), data=[0.5] * 8)]), r"float32 of shape \[4, 2\].* shape \[4, 3\]"),
        (says([output(shape=(12,))]), r"of shape \[12\]"),
        (says([output(data=[1 / 3] * 11)]), "11 values do not fill shape"),
        (says([output(datatype="INT64", data=[0] * 12)]), "int64 of shape"),
        (says([output(datatype="BYTES", data=["0.3"] * 12)]), "object of shape"),
        (says([output(data=["0.3"] * 12)]), "cannot be FP32"),
        (says([output(data=[None] * 12)]), "cannot be FP32"),
        (says([output(name="label")]), r"output 'probabilities' is not among \['label'\]"),
        (says([]), "is not among"),
        (says({"a": 1}), "valid list"),
        (says([output(parameters={"binary_data_size": 48})]), "binary_data_size"),
        (lambda request: request.answer(b"garbage"), "not JSON"),
        (lambda request: request.answer(b"\xff\x00"), "not JSON"),
        (lambda request: request.answer(b"[" * 60_000), "not JSON|JSON object"),
        (lambda request: request.answer(b""), "not JSON"),
        (lambda request: request.answer([1]), "not a JSON object"),
        (lambda r: r.answer({}, Inference_Header_Content_Length="99"), "Inference-Header-Content-Length"),
        (lambda request: request.answer(b"{" + b" " * 70_000), r"more than 66304 bytes"),
        (lambda request: request.answer({"error": "no such\nmodel"}, 404), "HTTP 404: no such model$"),
        (lambda request: request.answer({"error": "x" * 9999}, 400), "HTTP 400: x{300}…$"),
        (lambda request: request.answer(b"Trace\nValueError: bad", 500), "HTTP 500: Trace ValueError: bad$"),
        (lambda request: request.answer(b"", 500), "HTTP 500: no reason given$"),
        (lambda request: request.answer({"error": 3}, 400), "HTTP 400: 3$"),
        (lambda request: request.answer(output(), 202), "HTTP 202"),
    ],
)
def test_refusals_have_a_reason(street: Street, infer: Act, message: str) -> None:
    neighbour = street.neighbour(street.server(infer))
    for _ in range(2):
        with pytest.raises(RefusedError, match=message) as error:
            neighbour.ask(X, timeout=LONG)
        assert len(str(error.value)) < 400


def test_redirections_are_not_followed(street: Street) -> None:
    other = street.server(good)
    server = street.server(lambda request: request.answer({}, 307, Location=other.url + "/infer"))
    with pytest.raises(RefusedError, match="HTTP 307"):
        street.neighbour(server).ask(X, timeout=LONG)
    assert other.seen == []


def test_numbers_of_the_output_asked_for_pass_as_they_are(street: Street) -> None:
    """Whether they are probabilities is the caller's question."""
    values = [float("nan"), float("inf"), 1e300, -1.0, *[0.5] * 8]
    label = output(name="label", shape=(4,), datatype="INT64", data=[0] * 4)
    neighbour = street.neighbour(street.server(says([label, output(datatype="FP64", data=values)])))
    got = neighbour.ask(X, timeout=LONG).probabilities.ravel().tolist()
    assert np.isnan(got[0])
    assert got[1:5] == [np.inf, np.inf, -1.0, 0.5]


# -- no answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        OK + b"Content-Length: 100\r\n\r\n{",
        b"\x00\x01garbage\r\n\r\n",
        OK + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\n{  ",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    ],
    ids=["cut", "noise", "two lengths", "bad chunks"],
)
def test_what_is_no_http_is_no_answer(street: Street, data: bytes) -> None:
    with pytest.raises(NoAnswerError, match="no answer: "):
        street.neighbour(street.server(sends_bytes(lambda: data))).ask(X, timeout=LONG)


@pytest.mark.parametrize(
    "infer",
    [
        hang,
        drips(OK + b"Content-Length: 60000\r\n\r\n", b" "),
        drips(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        drips(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        drips(OK + b"Connection: close\r\n\r\n", b" "),
        drips(OK, b"X"),
        drips(b"HTTP/1.1", b" "),
        drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_answer_comes_in_time_or_not_at_all(street: Street, infer: Act) -> None:
    neighbour = street.neighbour(street.server(infer))
    begin = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"no answer:? (not )?in time"):
        neighbour.ask(X, timeout=0.5)
    assert 0.4 < time.monotonic() - begin < 30, "the server goes on for a minute"


def test_who_does_not_take_the_question_costs_no_more(street: Street) -> None:
    """A server that never reads: the question fills the buffers, and stops there. Then nobody is there."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        ours = OURS.model_copy(update={"shape": (1000, 1000)})
        neighbour = street.neighbour(f"http://127.0.0.1:{deaf.getsockname()[1]}/v2/models/m", ours)
        with pytest.raises(NoAnswerError):
            neighbour.ask(np.ones((2, 1000, 1000), np.float32), timeout=1)
    with pytest.raises(NoAnswerError, match=r"no answer: .*refused"):
        neighbour.ask(np.ones((0, 1000, 1000), np.float32), timeout=LONG)
    neighbour.close()
    with pytest.raises(NoAnswerError, match="closed"):
        neighbour.ask(np.ones((0, 1000, 1000), np.float32), timeout=LONG)


pieces = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b'"outputs":', b'"data":', b'"shape":[4,3]', b'"name":"probabilities"',
     b'"datatype":"FP32"', b"0.1", b"NaN", b"1e999", b"null", b"\xff", b'"parameters":{"binary_data_size":9}']
)  # fmt: skip
heads = st.sampled_from(
    ["Content-Length: 9", "Content-Length: -1", "Content-Length: x", "Transfer-Encoding: chunked", ": ",
     "Inference-Header-Content-Length: 3", "Content-Encoding: gzip", "Connection: close", "HTTP/1.1 200 OK"]
)  # fmt: skip


def test_whatever_comes_back_is_an_answer_or_one_of_two_errors(street: Street) -> None:
    reply = b""
    server = street.neighbour(street.server(sends_bytes(lambda: reply)))

    @settings(max_examples=150)
    @given(st.lists(heads, max_size=3), st.lists(pieces | st.binary(max_size=9), max_size=20))
    def check(lines: list[str], body: list[bytes]) -> None:
        nonlocal reply
        reply = OK + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + b"".join(body)
        with suppress(NoAnswerError, RefusedError):
            assert server.ask(X, timeout=LONG).probabilities.shape == (4, 3)

    check()
