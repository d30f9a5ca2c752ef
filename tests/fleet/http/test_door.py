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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import urllib3
from fleets import wait_until
from http_service import INFER, Node, X, ask, question

from lntrust import LNTrustError
from lntrust.fleet.http.app import HttpDoor

Opened = Callable[..., str]


def test_who_has_no_token_sees_no_more_than_health(tmp_path: Path, opened: Opened) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret-Token\n")
    address = opened(Node(token=file))
    assert ask(address, "/v2/health/live") == (200, {"live": True})
    assert ask(address, "/v2/health/ready") == (200, {"ready": True})
    wrong = (
        "", "Bearer", "Bearer ", "Bearer wrong", "Bearer s3cret-Toke", "Basic s3cret-Token", "s3cret-Token",
        "Bearer s3cret-Token x", "Bearer ÿ",
    )  # fmt: skip
    for path in ("/v2", "/v2/models/self/ready", "/status", "/metrics", "/nowhere", "//v2/health/live"):
        for shown in wrong:
            code, got = ask(address, path, **({"Authorization": shown} if shown else {}))
            assert (code, "Bearer TOKEN" in got["error"]) == (401, True)
    with urllib3.PoolManager(timeout=10, retries=False) as pool:
        refusal = pool.request("GET", f"http://{address}/status")
    assert refusal.headers["WWW-Authenticate"].startswith("Bearer")
    assert ask(address, INFER, question())[0] == 401
    assert ask(address, INFER, question(), Authorization="bearer s3cret-Token")[0] == 200
    assert ask(address, "/status", Authorization="Bearer s3cret-Token")[0] == 200


@pytest.mark.parametrize(
    ("text", "message"), [(None, "cannot be read"), ("", "one word"), ("a b", "one word")]
)
def test_a_token_that_cannot_be_used(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LNTrustError, match=f"http.token = .*{message}"):
        HttpDoor(Node(token=file))


def test_while_training_fails_the_node_is_not_ready_but_its_models_are(opened: Opened) -> None:
    node = Node()
    node.failing = True
    address = opened(node)
    code, got = ask(address, "/v2/health/ready")
    assert (code, "training fails, and is tried again" in got["error"]) == (503, True)
    for path, body in (("health/live", None), ("models/self/ready", None), ("models/self/infer", question())):
        assert ask(address, f"/v2/{path}", body)[0] == 200, "it answers all the same"


def test_what_goes_wrong_inside_is_for_the_log(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """A line each, however often, and no traceback."""

    class Broken(Node):
        def status(self) -> dict[str, Any]:
            raise KeyError("round")

    def fail() -> None:
        raise error

    error: Exception
    node = Broken()
    node.before, error = fail, ValueError("hidden detail")
    address = opened(node)
    for path, body in (("/status", None), ("/metrics", None), (INFER, question()), ("/status", None)):
        assert ask(address, path, body) == (500, {"error": "internal error; the node's log says more"})
    logged = [record.__dict__["fields"] for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged == [
        {"path": "/status", "error": "KeyError: 'round'"},
        {"error": "ValueError: hidden detail", "model": "self"},
    ]
    assert "Traceback" not in caplog.text
    error = LNTrustError("input: NaN")
    assert ask(address, INFER, question()) == (400, {"error": "input: NaN"})


def test_a_slow_answer_delays_nobody_else(opened: Opened) -> None:
    node, computing, go = Node(), threading.Semaphore(0), threading.Event()

    def wait() -> None:
        computing.release()
        assert go.wait(60)

    node.before = wait
    address = opened(node, at_once=2)
    with ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(ask, address, INFER, question()) for _ in range(2)]
        assert all(computing.acquire(timeout=60) for _ in range(2))
        assert ask(address, "/v2/health/live")[0] == 200
        assert ask(address, "/status")[0] == 200
        code, got = ask(address, INFER, question())
        assert (code, "busy" in got["error"]) == (503, True)
        go.set()
        assert [each.result(60)[0] for each in under_way] == [200, 200]
    assert ask(address, INFER, question())[0] == 200, "there is room again"


def test_many_at_once_get_each_their_own_answer(address: str, node: Node) -> None:
    def one(n: int) -> bool:
        code, got = ask(address, "/v2/models/ensemble/infer", question(X * n, id=str(n)))
        flat = np.array(got["outputs"][0]["data"], np.float32).reshape(5, 3)
        return (code, got["id"]) == (200, str(n)) and np.array_equal(flat, node.predict(X * n).probabilities)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(64), timeout=60))


def test_an_answer_comes_at_once(address: str) -> None:
    def is_quick() -> bool:
        begun = time.monotonic()
        connection.request("POST", INFER, json.dumps(question()))
        connection.getresponse().read()
        return time.monotonic() - begun < 0.03

    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        wait_until(is_quick, why=lambda: "each would take 40 ms, if packets waited for each other")


@pytest.mark.parametrize("busy", [False, True])
def test_it_closes_in_time_whoever_is_there(busy: bool, caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    node, computing, go = Node(), threading.Event(), threading.Event()

    def wait() -> None:
        computing.set()
        go.wait(60)

    node.before = wait
    door = HttpDoor(node)
    host, port = door.address.split(":")
    idle = socket.create_connection((host, int(port)), timeout=5)
    asker = http.client.HTTPConnection(door.address, timeout=10)
    if busy:
        asker.request("POST", INFER, json.dumps(question()))
        assert computing.wait(60)
    begun = time.monotonic()
    door.close()
    assert time.monotonic() - begun < 30, "the node computes for a minute"
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


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("127.0.0.1:99999", "cannot listen on 127.0.0.1:99999"),
        ("no.such.host.invalid:80", "cannot listen on no.such.host.invalid:80"),
        ("203.0.113.1:80", "cannot listen on 203.0.113.1:80"),
        ("off", "off has no door"),
        ("", "in use"),
    ],
)
def test_an_address_that_cannot_be_had(address: str, listen: str, message: str) -> None:
    with pytest.raises(LNTrustError, match=f"http.listen: .*{re.escape(message)}"):
        HttpDoor(Node(listen=listen or address))


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6(opened: Opened) -> None:
    try:
        address = opened(Node(listen="[::1]:0"))
    except LNTrustError:
        pytest.skip("this machine has no ::1")
    assert address.startswith("[::1]:")
    assert ask(address, "/v2/health/live")[0] == 200


def test_logging_is_left_alone() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    with closing(HttpDoor(Node())):
        pass
    assert (list(root.handlers), root.level) == before
    assert not logging.getLogger("uvicorn").handlers


def test_without_the_extra_it_says_what_to_install() -> None:
    """Whatever of a node is begun with; its first settings need nothing of it."""
    code = (
        "import importlib, sys\n"
        "sys.modules.update(dict.fromkeys(['cryptography', 'starlette', 'urllib3', 'uvicorn', 'zenoh']))\n"
        "from lntrust.core.errors import LNTrustError\n"
        "import lntrust.fleet.operations.init\n"
        "for name in ('http.app', 'http.client', 'node', 'peers.transport'):\n"
        "    try: importlib.import_module(f'lntrust.fleet.{name}')\n"
        "    except LNTrustError as error: print(error)"
    )
    got = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert got.stdout == 4 * "live nodes need the extra fleet: pip install 'lntrust[fleet]'\n"
