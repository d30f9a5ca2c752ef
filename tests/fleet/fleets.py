"""Fleets of real nodes for tests: folders with certificates, processes, and ways to wait for what they do.

Each node is a process of its own that is ended by its number. Where no test is about how a node is started,
it does what `lntrust node run DIR` does, as a fork of a process that has imported all of it: imports take
seconds. Nodes train for ever, slowly, on few examples. Neighbours that answered a probe weigh the same, so
that a test sees at once who counts; nodes that learn whom to trust have the tables `LEARNED`.
"""

import ctypes
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from lntrust.core.errors import LNTrustError
from lntrust.fleet.http.client import Client
from lntrust.fleet.node import Node, place_of
from lntrust.fleet.operations.certificates import NODE_FILES, Authority
from lntrust.fleet.operations.init import EXAMPLE_CLASSES, example_part, write_node
from lntrust.fleet.operations.process import run_node
from lntrust.fleet.peers.zenoh_config import Place
from lntrust.fleet.settings import NodeSettings, load_node

Table = Mapping[str, Any]
Status = dict[str, Any]
DEADLINE = 1.0  # seconds that a node has for a client
PORTS = range(10_000, 20_000)  # below those of outgoing connections, and of `free_ports`
SLACK = 20.0  # seconds more that a busy machine may take: those who keep others waiting do so for ever
LNTRUST = (sys.executable, "-m", "lntrust.cli")
_LABELLED = 60
_NETWORK = 0x40000000  # CLONE_NEWNET
digits = cache(example_part)
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["lntrust.fleet.operations.process", "sklearn.ensemble", "sklearn.linear_model", "zenoh"]
)

TABLES: dict[str, dict[str, Any]] = {
    "input": {"shape": [8, 8], "dtype": "uint8", "classes": list(EXAMPLE_CLASSES)},
    "model": {"kind": "linear", "scale": 0.0625},
    "data": {"labelled": "data.npz", "probe_with": "validation", "shard": "shard.npz", "val_fraction": 0.4},
    "network": {"certificates": "."},
    "limits": {"deadline": DEADLINE, "patience": 1.0, "pause": 0.2, "retries": 0},
    "http": {},
    "life": {"state": "state", "save_every": 0.4, "refresh_every": 1.0, "rest": 0.2, "wait": 0.0},
    "training": {"stage1_rounds": 3, "stage2_rounds": 5000, "refresh": 4, "lr": 0.05, "batch": 16},
    "trust": {"budget": 20, "sample": 20, "warmup": 1, "deployment_gate": "off", "weighting": "uniform"},
}
LEARNED: Table = {"trust": {"weighting": "trust"}}  # a node that learns whom to trust
DEPLOYED: Table = {"training": {"stage2_rounds": 4}}  # a node whose training is soon over


def free_port() -> int:
    """A port that no other test is given, also while nobody listens there, and no connection takes by itself.

    All processes of all test runs on this machine count on in one file.
    """
    with (Path(tempfile.gettempdir()) / "lntrust-test-ports").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0)
        while True:
            number += 1
            port = PORTS[number % len(PORTS)]
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                break
        file.truncate(0)
        file.write(str(number))
        return port


def wait_until(
    what: Callable[[], bool],
    seconds: float = 60.0,
    why: Callable[[], str] = lambda: "not so",
    every: float = 0.01,
) -> None:
    """For what sends no event: look again and again until it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds:g} s: {why()}")
        time.sleep(every)


def stands_still(pid: int) -> bool:
    """Whether a stopped process has stopped: on a busy machine it runs on for a while after the signal."""
    return all("State:\tT" in each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/status"))


def gone(pid: int) -> bool:
    """Whether there is no process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process that is stopped for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: stands_still(pid), every=0.002)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Forked(_FORKS.Process):  # type: ignore[name-defined,misc]
    """A process that does this, to be waited for and told things as one of `subprocess`."""

    def __init__(self, what: Callable[..., None], *arguments: Any, log: Path) -> None:
        super().__init__(target=_logged, args=(what, arguments, log), daemon=True)
        self.start()

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, seconds: float) -> None:
        self.join(seconds)
        assert self.exitcode is not None

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def enter(network: Path) -> None:
    """This thread is in this network namespace from now on, and all that it starts."""
    with network.open("rb") as place:
        assert ctypes.CDLL(None).setns(place.fileno(), _NETWORK) == 0


def _run(folder: Path, network: Path | None) -> None:
    if network:
        enter(network)
    run_node(folder)


def _logged(what: Callable[..., None], arguments: tuple[Any, ...], log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    what(*arguments)


@dataclass
class Member:
    """A node of the fleet: where its files lie, and its process, if it runs."""

    name: str
    folder: Path
    settings: NodeSettings
    process: "subprocess.Popen[bytes] | Forked | None" = None

    def __post_init__(self) -> None:
        self.log, self.state = self.folder / "log.jsonl", self.folder / "state" / "node.safetensors"


class Answer(NamedTuple):
    """What a client got, and after how many seconds."""

    weights: dict[str, float]
    silent: str
    took: float


@dataclass
class Fleet:
    """Nodes by name. Close it in the end: then no process of it is left."""

    root: Path
    members: dict[str, Member] = field(default_factory=dict)
    x: np.ndarray = field(default_factory=lambda: digits(2)[2]["x"][:3])  # what clients ask about

    @classmethod
    def of(
        cls, root: Path, names: Sequence[str], overrides: Mapping[str, Table] | None = None,
        hosts: Mapping[str, str] | None = None, everybody: Table | None = None,
    ) -> Self:  # fmt: skip
        """All of these know each other. Tables of `everybody`, and of `overrides` by name, go over ours."""
        fleet = cls(root)
        authority = Authority.open(root / "certificates")
        where = hosts or {}
        listen = {name: f"{where.get(name, '127.0.0.1')}:{free_port()}" for name in names}
        for number, name in enumerate(names):
            authority.issue(name, [where.get(name, "127.0.0.1")])
            folder = root / name
            shutil.copytree(root / "certificates" / name, folder)
            _write_data(folder, number)
            own = {"network": {"listen": listen[name]}, "http": {"listen": f"127.0.0.1:{free_port()}"}}
            tables = _over(_over(TABLES, own), everybody or {})
            tables = _over(tables, (overrides or {}).get(name, {}))
            others = [{"name": other, "address": listen[other]} for other in names if other != name]
            write_node(folder, {"name": name, **tables, "neighbours": others})
            fleet.members[name] = Member(name, folder, load_node(folder))
        return fleet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        print(self.logs())
        for member in self.members.values():
            if member.process is not None:
                self.end(member.name, signal.SIGKILL)

    def place(self, name: str) -> Place:
        """Where this node stands, for somebody who takes its place."""
        return place_of(self.members[name].settings)

    # -- certificates -----------------------------------------------------------------------------

    def renew(self, name: str, days: float = 90, files: Sequence[str] = NODE_FILES) -> None:
        """Renew a node's certificate, for so many days; only these files reach the device."""
        Authority(self.root / "certificates").renew(name, days)
        for file in files:
            shutil.copy(self.root / "certificates" / name / file, self.members[name].folder / file)

    def recertify(self, name: str, begins: datetime, ends: datetime, subject: bool = True) -> None:
        """A certificate that the authority would not make: for other dates, or for nobody."""
        path = self.members[name].folder / "node.pem"
        signer: Any = load_pem_private_key((self.root / "certificates" / "ca.key").read_bytes(), None)
        old = x509.load_pem_x509_certificate(path.read_bytes())
        whose = old.subject if subject else x509.Name([])
        made = x509.CertificateBuilder(
            old.issuer, whose, old.public_key(), 7, begins, ends, list(old.extensions)
        )
        path.write_bytes(made.sign(signer, SHA256()).public_bytes(Encoding.PEM))

    # -- processes --------------------------------------------------------------------------------

    def start(self, *names: str, program: Sequence[str] = (), network: Path | None = None) -> None:
        """Run these nodes, if need be by a program, or in a network namespace. Returns when each of them
        answers its clients."""
        for name in names:
            member = self.members[name]
            assert member.process is None
            if not program:
                member.process = Forked(_run, member.folder, network, log=member.log)
                continue
            with member.log.open("ab") as log:
                command = [*program, "node", "run", str(member.folder)]
                member.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for name in names:
            self.until(name, lambda status: True, 240)

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> int | None:
        """By its number, and wait until it is gone; its exit code."""
        process, self.members[name].process = self.members[name].process, None
        assert process is not None
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        process.wait(60)
        return process.poll()

    def kill(self, *names: str) -> None:
        """All at once, without a word."""
        for name in names:
            os.kill(self.pid(name), signal.SIGKILL)
        for name in names:
            self.end(name)

    def pid(self, name: str) -> int:
        process = self.members[name].process
        assert process is not None
        return int(process.pid)

    # -- clients ----------------------------------------------------------------------------------

    def status(self, name: str) -> Status:
        return dict(self.visit(name, lambda client: client.status()))

    def visit(self, name: str, what: Callable[[Client], Any]) -> Any:
        """Be its client."""
        return what(Client(self.members[name].settings))

    def ask(self, name: str) -> Answer:
        """The node's answer to a client, which must be sound and in time, whatever goes on around it."""
        began = time.monotonic()
        said = self.visit(name, lambda client: client.predict(self.x))
        took = time.monotonic() - began
        p = np.array(said["probabilities"])
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-3)
        assert sum(said["weights"].values()) == pytest.approx(1, abs=1e-4)
        assert took < DEADLINE + SLACK, f"{name} took {took:.2f} s; {said['weights']}, {said['silent']}"
        return Answer(said["weights"], ", ".join(said["silent"]), took)

    def weight(self, name: str, of: str) -> float:
        """What a neighbour weighs in an answer now."""
        return self.ask(name).weights.get(of, 0.0)

    def until(self, name: str, what: Callable[[Status], bool], seconds: float = 90.0) -> Status:
        """The node's status, once it is such."""

        def look() -> Status:
            process = self.members[name].process
            code = None if process is None else process.poll()
            assert code is None, f"{name} has ended with {code}\n{self.logs()}"
            with suppress(LNTrustError):  # it may be about to start
                return self.status(name)
            return {}

        return _status_when(look, what, seconds, self.logs)

    def wait(self, what: Callable[[], bool], seconds: float = 90.0) -> None:
        """Until this is so. If it does not come, the failure has the nodes' logs in it."""
        wait_until(what, seconds, self.logs, every=0.05)

    def trains(self, name: str, rounds: int = 2) -> None:
        """Its training goes on: wait for so many rounds more."""
        first = self.until(name, lambda status: True)["round"]
        status = self.until(name, lambda status: status["round"] >= first + rounds)
        assert status["error"] is None, status["error"]

    def logs(self, lines: int = 25) -> str:
        """The end of them."""
        logs = [member.log for member in self.members.values() if member.log.exists()]
        ends = [[f"-- {log}", *log.read_text("utf-8", "replace").splitlines()[-lines:]] for log in logs]
        return "\n".join(line for end in ends for line in end)


class Clients:
    """A client that asks again and again beside what a test does; its answers are checked in the end."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet, self._name, self._over = fleet, name, threading.Event()
        self.answers: list[Answer] = []

    def _run(self) -> None:
        while not self._over.wait(0.1):
            self.answers.append(self._fleet.ask(self._name))

    def wait_for_more(self) -> None:
        """An answer to a question that is asked from now on."""
        seen = len(self.answers)
        wait_until(lambda: len(self.answers) > seen + 1 or self._asking.done(), 2 * (DEADLINE + SLACK))

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1)
        self._asking = self._pool.submit(self._run)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        if kind is None:
            self._asking.result()  # raises what was wrong with an answer
            assert self.answers


def probed(*names: str) -> Callable[[Status], bool]:
    """That all of these answered the last probe."""
    return lambda status: all(status["neighbours"][name]["probed"] for name in names)


def without(*names: str) -> Callable[[Status], bool]:
    """That the last probe was without these, and they weigh nothing."""
    return lambda status: all(
        not status["neighbours"][n]["probed"] and status["neighbours"][n]["trust"] == 0 for n in names
    )


# -- nodes in this process ------------------------------------------------------------------------

# Short lives: over in seconds, and nothing happens afterwards by itself. Who has neighbours waits for them,
# or its life would be over before they are there.
SOON: dict[str, dict[str, Any]] = {
    "http": {"listen": "off"},
    "life": {"rest": 0.0, "refresh_every": 600.0, "save_every": 600.0, "wait": 20.0},
    "training": {"stage1_rounds": 2, "stage2_rounds": 4, "refresh": 2},
    "limits": {"patience": 5.0, "deadline": 5.0, "retries": 1},
}


def until(node: Node, what: Callable[[Status], bool], seconds: float = 90.0) -> Status:
    """The node's status, once it is such."""
    return _status_when(node.status, what, seconds, every=0.02)


def _status_when(
    look: Callable[[], Status], what: Callable[[Status], bool], seconds: float,
    why: Callable[[], str] = str, every: float = 0.05,
) -> Status:  # fmt: skip
    status: Status = {}

    def seen() -> bool:
        nonlocal status
        status = look()
        return bool(status) and what(status)

    wait_until(seen, seconds, lambda: f"{json.dumps(status)}\n{why()}", every)
    return status


def deployed(status: Status) -> bool:
    return bool(status["phase"] == "deployed")


def all_probed(status: Status) -> bool:
    return deployed(status) and all(each["probed"] for each in status["neighbours"].values())


def _over(tables: Mapping[str, Table], more: Table) -> dict[str, dict[str, Any]]:
    return {name: {**table, **more.get(name, {})} for name, table in tables.items()}


def _write_data(folder: Path, number: int) -> None:
    labelled, shard, _ = digits(number)
    every = len(labelled["y"]) // _LABELLED  # the favoured classes lie first
    np.savez(folder / "data.npz", allow_pickle=False, **{k: v[::every] for k, v in labelled.items()})
    np.savez(folder / "shard.npz", allow_pickle=False, x=shard["x"][:100])
