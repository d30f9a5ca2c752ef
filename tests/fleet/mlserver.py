"""A real MLServer with a scikit-learn model, in an environment and a process of its own.

The environment is made once, in `.venv-mlserver` at the repository's root: MLServer needs versions of
packages that are not ours. Remove the folder to have it made anew.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from fleets import free_port

HOME = Path(__file__).parents[2] / ".venv-mlserver"
NEEDS = ["mlserver==1.7.1", "mlserver-sklearn==1.7.1"]
CLASSES = ("setosa", "versicolor", "virginica")

# What MLServer loads is a joblib file, and it is that environment's own scikit-learn that writes it.
MODEL = """
import joblib, numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

x, y = load_iris(return_X_y=True)
model = LogisticRegression(max_iter=1000).fit(x, y)
joblib.dump(model, "model.joblib")
np.savez("known.npz", x=x.astype(np.float32), p=model.predict_proba(x.astype(np.float32)))
"""


@dataclass(frozen=True)
class Served:
    """The model's address, and what it has to answer to which inputs."""

    url: str
    x: np.ndarray  # [150, 4] float32
    p: np.ndarray  # [150, 3]


def environment() -> Path:
    """The environment's folder of programs. One process makes it, others wait for it."""
    HOME.mkdir(exist_ok=True)
    made, programs = HOME / "made-of", HOME / "bin"
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or the process dies
        if not made.is_file() or made.read_text("utf-8") != "\n".join(NEEDS):
            (HOME / ".gitignore").write_text("*\n", "utf-8")
            _run(sys.executable, "-m", "venv", HOME)
            _run(programs / "python", "-m", "pip", "install", "--quiet", *NEEDS)
            made.write_text("\n".join(NEEDS), "utf-8")
    return programs


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """The model `iris`, on loopback, until the block ends."""
    programs = environment()
    (folder / "model.py").write_text(MODEL, "utf-8")
    _run(programs / "python", "model.py", cwd=folder)
    http, grpc, metrics = (free_port() for _ in range(3))
    ports = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    _write(folder / "settings.json", {"host": "127.0.0.1", **ports, "parallel_workers": 0})
    model = {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./model.joblib"}}
    _write(folder / "model-settings.json", {"name": "iris", **model})
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "mlserver", "start", "."], cwd=folder, env=_plain(), stdout=log, stderr=log
        )
        try:
            _until_ready(server, http, folder / "log")
            with np.load(folder / "known.npz") as known:
                yield Served(f"http://127.0.0.1:{http}/v2/models/iris", known["x"], known["p"])
        finally:
            _end(server)


def _until_ready(server: "subprocess.Popen[bytes]", port: int, log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not _is_ready(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"MLServer did not come up:\n{log.read_text('utf-8', 'replace')[-2000:]}")
        time.sleep(0.05)


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v2/models/iris/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _end(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(20)


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=_plain(), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def _plain() -> dict[str, str]:
    """The variables of this process, but those that lead to its own packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def _write(path: Path, table: dict[str, object]) -> None:
    path.write_text(json.dumps(table), "utf-8")
