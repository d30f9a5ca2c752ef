"""How fast live nodes are, on loopback: predictions a second against a bare echo, and one answer's latency.

All links have mutual TLS and access control, and no shared memory. The model is a linear head on 1280
features. Ratios are measured in one run, echo and node in turns, since machines are noisy.
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from examples.fleet_demo.supervisor import Fleet, free_ports
from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.operations.init import write_node
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.peers.transport import Door
from lntrust.fleet.peers.zenoh_config import Place
from lntrust.fleet.settings import NodeSettings, load_node
from lntrust.network.codec import encode

FEATURES, CLASSES, BATCH = 1280, 10, 256
_ASKER, _ECHO = "asker", "echo"

_TABLES: dict[str, dict[str, Any]] = {
    "input": {"shape": [FEATURES], "classes": [str(c) for c in range(CLASSES)]},
    "model": {"kind": "linear"},
    "data": {"labelled": "data.npz", "probe_with": "validation", "shard": "shard.npz"},
    "limits": {"rate": 1e9, "burst": 1e9, "workers": 2, "waiting": 64},
    "life": {"refresh_every": 3600, "save_every": 3600},
    "trust": {"budget": 200, "sample": 100, "deployment_gate": "off", "weighting": "uniform"},
}


def make_nodes(
    folder: Path, names: Sequence[str], more: Sequence[str] = (), rounds: int = 2
) -> dict[str, Path]:
    """Nodes that all know each other, with random data; `more` are names that only ask."""
    authority = Authority.open(folder / "authority")
    free = free_ports(2 * len(names))
    ports = dict(zip(names, free[::2], strict=True))
    doors = dict(zip(names, free[1::2], strict=True))
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)
    for name in (*names, *more):
        authority.issue(name, ["127.0.0.1"], days=1)
    for name in names:
        place = folder / name
        place.mkdir(parents=True)
        y = np.arange(20 * CLASSES) % CLASSES
        x = centres[y] + rng.standard_normal((len(y), FEATURES), dtype=np.float32) * 4
        np.savez(place / "data.npz", x=x, y=y)
        np.savez(place / "shard.npz", x=x)
        known = [{"name": n, "address": f"127.0.0.1:{ports[n]}"} for n in names if n != name]
        settings = {
            **_TABLES,
            "name": name,
            "network": {"listen": f"127.0.0.1:{ports[name]}", "certificates": folder / "authority" / name},
            "neighbours": [*known, *({"name": n} for n in more)],
            "http": {"listen": f"127.0.0.1:{doors[name]}"},
            "training": {"stage1_rounds": 2, "stage2_rounds": rounds},
        }
        write_node(place, settings)
    return {name: folder / name for name in names}


def throughput(folder: Path, seconds: float, turns: int, in_flight: int) -> dict[str, Any]:
    """Predictions a second of one node that nobody trains, and of a bare echo of the same sizes."""
    folders = make_nodes(folder, ["node"], [_ASKER, _ECHO])
    settings = load_node(folders["node"])
    asking = NodeSettings.model_validate(
        {"name": _ASKER, "input": settings.input, "model": settings.model, "data": settings.data,
         "limits": settings.limits, "neighbours": [{"name": "node", "address": settings.network.listen}]}
    )  # fmt: skip
    authority, (own, echo_port) = folder / "authority", free_ports(2)
    x = np.random.default_rng(1).standard_normal((BATCH, FEATURES), dtype=np.float32)
    question = encode(wire.question(x, -1))
    answer = len(encode(wire.reply(np.zeros((BATCH, CLASSES), np.float32), -1, 1)))
    with Fleet(folders) as fleet, _echo(authority / _ECHO, echo_port, answer):
        fleet.start("node")
        peers = {"node": settings.network.listen, _ECHO: f"127.0.0.1:{echo_port}"}
        door = Door(Place(_ASKER, f"127.0.0.1:{own}", authority / _ASKER, peers), lambda *_: b"")
        facts = wire.facts(asking.input, 1, 0)
        neighbours = Neighbours(asking, TrafficCounters(["node"]), door, lambda: facts)
        try:
            _wait(lambda: door.present == {"node", _ECHO}, "node and echo", fleet)
            _deployed(fleet, ["node"])

            def ask_node() -> None:
                replies, failed = neighbours.ask(["node"], x, "deploy", timeout=10)
                if not replies:
                    raise LNTrustError(f"bench fleet: the node did not answer: {failed['node'].text}")

            def ask_echo() -> None:
                door.ask(_ECHO, question, 10)

            rates: dict[str, list[float]] = {"node": [], _ECHO: []}
            for turn in range(turns + 1):
                for name, ask in ((_ECHO, ask_echo), ("node", ask_node)):
                    rate = BATCH * _per_second(ask, seconds, in_flight)
                    if turn:  # the first turn warms up
                        rates[name].append(rate)
        finally:
            neighbours.close()
            door.close()
    ratios = [a / b for a, b in zip(rates["node"], rates[_ECHO], strict=True)]
    return {
        "batch": BATCH, "features": FEATURES, "classes": CLASSES, "in_flight": in_flight,
        "question_bytes": len(question), "reply_bytes": answer,
        "node_per_second": median(rates["node"]), "echo_per_second": median(rates[_ECHO]),
        "ratio": median(ratios), "turns": rates,
    }  # fmt: skip


def latency(folder: Path, questions: int, training: bool, neighbours: int = 5) -> dict[str, Any]:
    """One example through the HTTP door, answered with five neighbours: milliseconds."""
    names = ["front", *(f"node-{i + 1}" for i in range(neighbours))]
    folders = make_nodes(folder, names, rounds=1_000_000 if training else 2)
    with Fleet(folders) as fleet:
        for name in names:
            fleet.start(name)
        if training:
            _wait(lambda: _trusts_all(fleet, names, "stage 2"), "everybody in stage 2", fleet)
        else:
            _deployed(fleet, names)
            _wait(lambda: _trusts_all(fleet, names, "deployed"), "everybody probed", fleet)
        rounds = {name: fleet.status(name)["round"] for name in names}
        took, members = _ask_http(load_node(folders["front"]).http.listen, questions)
        after = {name: fleet.status(name)["round"] for name in names}
    ms = 1000 * np.array(took)
    return {
        "neighbours": neighbours, "questions": questions, "training": training,
        "p50_ms": float(np.percentile(ms, 50)), "p99_ms": float(np.percentile(ms, 99)),
        "worst_ms": float(ms.max()), "mean_members": float(np.mean(members)),
        "rounds_meanwhile": sum(after.values()) - sum(rounds.values()),
    }  # fmt: skip


def _ask_http(address: str, questions: int) -> tuple[list[float], list[int]]:
    """Single examples over one connection, in the binary form; seconds each, and how many answered."""
    host, _, port = address.rpartition(":")
    rows: Float[ndarray, "r d"] = np.random.default_rng(2).standard_normal((64, FEATURES), dtype=np.float32)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    took, members = [], []
    try:
        for k in range(questions + 50):
            head = {
                "inputs": [
                    {"name": "input", "shape": [1, FEATURES], "datatype": "FP32",
                     "parameters": {"binary_data_size": 4 * FEATURES}}
                ],
                "outputs": [{"name": "probabilities"}],
            }  # fmt: skip
            text = json.dumps(head).encode()
            headers = {"Inference-Header-Content-Length": str(len(text))}
            since = time.perf_counter()
            connection.request("POST", "/v2/models/ensemble/infer", text + rows[k % 64].tobytes(), headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            if answer.status != 200:
                raise LNTrustError(f"bench fleet: {answer.status}: {body.get('error')}")
            if k >= 50:  # the first ones warm up
                took.append(time.perf_counter() - since)
                members.append(len(body["parameters"]["answered"].split(",")))
    finally:
        connection.close()
    return took, members


def _per_second(ask: Callable[[], None], seconds: float, in_flight: int) -> float:
    """Calls a second, so many of them side by side."""
    end = time.perf_counter() + seconds

    def work() -> int:
        count = 0
        while time.perf_counter() < end:
            ask()
            count += 1
        return count

    since = time.perf_counter()
    with ThreadPoolExecutor(in_flight) as pool:
        done = sum(future.result() for future in [pool.submit(work) for _ in range(in_flight)])
    return done / (time.perf_counter() - since)


@contextmanager
def _echo(certificates: Path, port: int, answer: int) -> Iterator[None]:
    arguments = [_ECHO, str(port), str(certificates.resolve()), _ASKER, str(answer)]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.speed.echo", *arguments],
        cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise LNTrustError("bench fleet: the echo did not start")
            yield
        finally:
            process.kill()


def _trusts_all(fleet: Fleet, names: Sequence[str], phase: str) -> bool:
    statuses = fleet.statuses()
    known = [statuses.get(name) for name in names]
    return all(
        s is not None and s["phase"] == phase and all(n["probed"] for n in s["neighbours"].values())
        for s in known
    )


def _deployed(fleet: Fleet, names: Sequence[str]) -> None:
    def all_are() -> bool:
        statuses = fleet.statuses()
        return all((statuses.get(name) or {}).get("phase") == "deployed" for name in names)

    _wait(all_are, "nodes deployed", fleet)


def _wait(what: Callable[[], bool], text: str, fleet: Fleet, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        fleet.check()
        if time.monotonic() > deadline:
            raise LNTrustError(f"bench fleet: waited {seconds:g} s for {text} in vain")
        time.sleep(0.1)
