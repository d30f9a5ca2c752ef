"""The door itself: who may enter, what goes wrong inside, and how it opens and closes."""

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
from http_service import Node, X, ask, question, settings

from lntrust import LNTrustError
from lntrust.fleet.http import app as door_module
from lntrust.fleet.http.app import HttpDoor


@pytest.fixture(scope="module")
def node() -> Node:
    return Node(settings())


@pytest.fixture(scope="module")
def address(node: Node) -> Iterator[str]:
    door = HttpDoor(node)
    yield door.address
    door.close()


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


def test_what_nobody_foresaw_has_a_line_in_the_log(
    opened: Callable[[Node], str], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Node):
        def status(self) -> dict[str, Any]:
            raise KeyError("round")

    address = opened(Broken(settings()))
    for path in ("/status", "/metrics", "/status"):
        assert ask(address, path) == (500, {"error": "internal error; the node's log says more"})
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.__dict__["fields"] == {"path": "/status", "error": "KeyError: 'round'"}


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
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]  # one line, no traceback
    assert record.__dict__["fields"] == {"error": "ValueError: hidden detail", "model": "self"}
    assert "Traceback" not in caplog.text
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
        "from lntrust.core.errors import LNTrustError\n"
        "from lntrust.fleet.http.app import make_app\n"
        "try: make_app(None)\n"
        "except LNTrustError as error: print(error)"
    )
    got = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert got.stdout == "live nodes need the extra fleet: pip install 'lntrust[fleet]'\n"
