"""Node processes on this machine: started, watched, asked, frozen, killed, ended.

Each node is a process `lntrust node run DIR` in a session of its own, so that it is ended by its id and
nothing else is. Whoever leaves the `with` block leaves no process behind.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from jaxtyping import Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.http.client import Client
from lntrust.fleet.http.service import Which

LOG = "node.log"
_GRACE = 20.0  # seconds for a node to save, and end
_TAIL = 15  # lines of a log
# Systems give outgoing connections ports from 32768 on. A node that is down must not lose its own to one.
_PORTS = range(20_000, 32_000)


class FleetError(LNTrustError):
    """A process of the fleet did not do what it should."""


@dataclass
class _Running:
    """A process that was started, and whether it was told to end."""

    process: "subprocess.Popen[bytes]"
    told: bool = False


@dataclass
class Fleet:
    """Nodes by name, each with the folder in which its NODE.toml lies."""

    folders: Mapping[str, Path]
    ids: list[int] = field(default_factory=list)  # of all processes that were ever started
    _running: dict[str, _Running] = field(default_factory=dict)
    _clients: dict[str, Client] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clients = {name: Client.of(folder) for name, folder in self.folders.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """At peace nodes may save; after an error, or Ctrl-C, nobody waits for that."""
        try:
            if kind is None:
                self.stop_all()
        finally:
            _end(*self._running.values())

    # -- processes --------------------------------------------------------------------------------

    def start(self, name: str) -> int:
        """Start a node; returns the process's id. Its log goes on in node.log."""
        folder = self._folder(name)
        if name in self.alive:
            raise LNTrustError(f"node {name}: runs already; stop it, or kill it first")
        # -P: libraries are not looked for in the folder where the user happens to be.
        command = [sys.executable, "-P", "-m", "lntrust.cli", "node", "run", str(folder), "--log", "json"]
        with (folder / LOG).open("ab") as log, _uninterrupted():
            process = _spawned(command, log)
            self._running[name] = _Running(process)
            self.ids.append(process.pid)
        return process.pid

    @property
    def alive(self) -> set[str]:
        """Whose process is there; a frozen one is, too."""
        return {name for name, each in self._running.items() if each.process.poll() is None}

    def kill(self, name: str) -> None:
        """At once, as a power cut would."""
        _end(self._of(name))

    def freeze(self, name: str) -> None:
        """It stands still: nothing is closed, nothing is answered."""
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def stop(self, name: str, seconds: float = _GRACE) -> int:
        """Ask it to end; returns the exit code, −9 if it had to be killed."""
        each = self._of(name)
        _ask_to_end(each)
        return _ended(each, time.monotonic() + seconds)

    def stop_all(self, seconds: float = _GRACE) -> dict[str, int]:
        """Ask all that are alive to end, side by side; their exit codes."""
        living = {name: self._running[name] for name in sorted(self.alive)}
        for each in living.values():
            _ask_to_end(each)
        deadline = time.monotonic() + seconds
        return {name: _ended(each, deadline) for name, each in living.items()}

    def check(self) -> None:
        """An error with the end of the log, if a process has ended that nobody told to."""
        for name, each in self._running.items():
            code = each.process.poll()
            if code is not None and not each.told:
                tail = self.log_tail(name) or "(its log is empty)"
                raise FleetError(f"node {name}: ended by itself with code {code}; its log ends with\n{tail}")

    def log_tail(self, name: str, lines: int = _TAIL) -> str:
        try:
            text = (self._folder(name) / LOG).read_text("utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    # -- questions --------------------------------------------------------------------------------

    def status(self, name: str) -> dict[str, Any]:
        """What it tells about itself; LNTrustError if it does not answer in time."""
        return self._client(name).status()

    def statuses(self) -> dict[str, dict[str, Any] | None]:
        """Of all that are alive; none: it does not answer (yet)."""
        return {name: self._status_or_none(name) for name in self.folders if name in self.alive}

    def predict(self, name: str, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> dict[str, Any]:
        """The answer to a client, as `Client.predict` has it."""
        return self._client(name).predict(x, which)

    def _status_or_none(self, name: str) -> dict[str, Any] | None:
        try:
            return self.status(name)
        except LNTrustError:
            return None

    def _client(self, name: str) -> Client:
        self._folder(name)
        return self._clients[name]

    def _folder(self, name: str) -> Path:
        if name not in self.folders:
            raise LNTrustError(f"node {name}: is none of this fleet; there are {', '.join(self.folders)}")
        return self.folders[name]

    def _of(self, name: str) -> _Running:
        self._folder(name)
        if name not in self.alive:
            raise LNTrustError(f"node {name}: does not run; start it first")
        return self._running[name]

    def _signal(self, name: str, number: signal.Signals) -> None:
        os.killpg(self._of(name).process.pid, number)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A signal that comes meanwhile is handled afterwards: else a process could start unknown to all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in came:
        signal.raise_signal(late)


def _spawned(command: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """In a session, and so a process group, of its own: Ctrl-C on the terminal does not reach it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )


def _ask_to_end(each: _Running) -> None:
    each.told = True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(each.process.pid, signal.SIGTERM)
        os.killpg(each.process.pid, signal.SIGCONT)  # a frozen one would not hear it


def _ended(each: _Running, deadline: float) -> int:
    try:
        return each.process.wait(max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _end(each)
        return each.process.wait()


def _end(*those: _Running) -> None:
    """Kill them. None that has been waited for: its id may be another's by now."""
    living = [each for each in those if each.process.poll() is None]
    for each in living:
        each.told = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
    for each in living:
        each.process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    raise LNTrustError(f"ports: no {count} free ones between {_PORTS.start} and {_PORTS.stop}")
