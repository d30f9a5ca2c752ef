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
from pathlib import Path
from typing import IO, Any, Self

from jaxtyping import Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import Which
from lntrust.fleet.http.client import Client

LOG = "node.log"
_GRACE = 20.0  # seconds for a node to save, and end
_TAIL = 15  # lines of a log
# Systems give outgoing connections ports from 32768 on. A node that is down must not lose its own to one.
_PORTS = range(20_000, 32_000)


class FleetError(LNTrustError):
    """A process of the fleet did not do what it should."""


class _Process(subprocess.Popen[bytes]):
    """In a session, and so a process group, of its own: Ctrl-C on the terminal does not reach it."""

    told_to_end = False

    def __init__(self, command: list[str], log: IO[bytes]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        super().__init__(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def signal_group(self, number: signal.Signals) -> None:
        self.told_to_end |= number in (signal.SIGTERM, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Fleet:
    """Nodes by name, each with the folder in which its NODE.toml lies."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = folders
        self.ids: list[int] = []  # of all processes that were ever started
        self._processes: dict[str, _Process] = {}
        self._clients = {name: Client.of(folder) for name, folder in folders.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """At peace nodes may save; after an error, or Ctrl-C, nobody waits for that."""
        try:
            if kind is None:
                self.stop_all()
        finally:
            _kill(*self._processes.values())

    # -- processes --------------------------------------------------------------------------------

    def start(self, name: str) -> int:
        """Start a node; returns the process's id. Its log goes on in node.log."""
        folder = self._folder(name)
        if name in self.alive:
            raise LNTrustError(f"node {name}: runs already; stop it, or kill it first")
        # -P: libraries are not looked for in the folder where the user happens to be.
        command = [sys.executable, "-P", "-m", "lntrust.cli", "node", "run", str(folder), "--log", "json"]
        with (folder / LOG).open("ab") as log, _uninterrupted():
            self._processes[name] = process = _Process(command, log)
            self.ids.append(process.pid)
        return process.pid

    @property
    def alive(self) -> set[str]:
        """Whose process is there; a frozen one is, too."""
        return {name for name, process in self._processes.items() if process.poll() is None}

    def kill(self, name: str) -> None:
        """At once, as a power cut would."""
        _kill(self._process(name))

    def freeze(self, name: str) -> None:
        """It stands still: nothing is closed, nothing is answered."""
        self._process(name).signal_group(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._process(name).signal_group(signal.SIGCONT)

    def stop(self, name: str, seconds: float = _GRACE) -> int:
        """Ask it to end; returns the exit code, −9 if it had to be killed."""
        return _end({name: self._process(name)}, seconds)[name]

    def stop_all(self, seconds: float = _GRACE) -> dict[str, int]:
        """Ask all that are alive to end, side by side; their exit codes."""
        return _end({name: self._processes[name] for name in sorted(self.alive)}, seconds)

    def check(self) -> None:
        """An error with the end of the log, if a process has ended that nobody told to."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and not process.told_to_end:
                tail = self.log_tail(name) or "(its log is empty)"
                raise FleetError(f"node {name}: ended by itself with code {code}; its log ends with\n{tail}")

    def log_tail(self, name: str, lines: int = _TAIL) -> str:
        log = self._folder(name) / LOG
        text = log.read_text("utf-8", errors="replace") if log.is_file() else ""
        return "\n".join(text.splitlines()[-lines:])

    # -- questions --------------------------------------------------------------------------------

    def status(self, name: str) -> dict[str, Any]:
        """What it tells about itself; LNTrustError if it does not answer in time."""
        self._folder(name)
        return self._clients[name].status()

    def statuses(self) -> dict[str, dict[str, Any] | None]:
        """Of all that are alive; none: it does not answer (yet)."""
        alive = self.alive
        found: dict[str, dict[str, Any] | None] = {name: None for name in self.folders if name in alive}
        for name in found:
            with contextlib.suppress(LNTrustError):
                found[name] = self.status(name)
        return found

    def predict(self, name: str, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> dict[str, Any]:
        """The answer to a client, as `Client.predict` has it."""
        self._folder(name)
        return self._clients[name].predict(x, which)

    def _folder(self, name: str) -> Path:
        if name not in self.folders:
            raise LNTrustError(f"node {name}: is none of this fleet; there are {', '.join(self.folders)}")
        return self.folders[name]

    def _process(self, name: str) -> _Process:
        self._folder(name)
        if name not in self.alive:
            raise LNTrustError(f"node {name}: does not run; start it first")
        return self._processes[name]


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A signal that comes meanwhile is handled afterwards: else a process could start unknown to all."""
    came: list[int] = []
    here = threading.current_thread() is threading.main_thread()  # others hear no signals
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if here else ()
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in came:
        signal.raise_signal(late)


def _end(processes: Mapping[str, _Process], seconds: float) -> dict[str, int]:
    """Ask them to end. Those that have not in time are killed."""
    deadline = time.monotonic() + seconds
    for process in processes.values():
        process.signal_group(signal.SIGTERM)
        process.signal_group(signal.SIGCONT)  # a frozen one would not hear it
    for process in processes.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.01, deadline - time.monotonic()))
    _kill(*processes.values())
    return {name: process.wait() for name, process in processes.items()}


def _kill(*processes: _Process) -> None:
    """None that has been waited for: its id may be another's by now."""
    living = [process for process in processes if process.poll() is None]
    for process in living:
        process.signal_group(signal.SIGKILL)
    for process in living:
        process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            found.append(port)
    raise LNTrustError(f"ports: no {count} free ones between {_PORTS.start} and {_PORTS.stop}")
