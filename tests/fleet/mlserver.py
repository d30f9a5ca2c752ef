"""A real MLServer with a scikit-learn model, in an environment and a process of its own.

The environment is made once, in `.venv-mlserver` at the repository's root: MLServer needs versions of
packages that are not ours. Remove the folder to have it made anew.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import urllib3
from fleets import free_port, wait_until

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
    ports = {f"{name}_port": free_port() for name in ("http", "grpc", "metrics")}
    server = {"host": "127.0.0.1", **ports, "parallel_workers": 0}
    model = {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./model.joblib"}}
    for name, table in {"settings": server, "model-settings": {"name": "iris", **model}}.items():
        (folder / f"{name}.json").write_text(json.dumps(table), "utf-8")
    url, log = f"http://127.0.0.1:{ports['http_port']}/v2/models/iris", folder / "log"
    with log.open("wb") as out:
        command = [programs / "mlserver", "start", "."]
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=out, stderr=out)
        try:
            wait_until(lambda: _is_ready(url, process), 180, lambda: log.read_text("utf-8")[-2000:])
            with np.load(folder / "known.npz") as known:
                yield Served(url, known["x"], known["p"])
        finally:
            process.kill()
            process.wait(20)


def _is_ready(url: str, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "MLServer has ended"
    try:
        return urllib3.request("GET", f"{url}/ready", timeout=5, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}"


def _environment() -> dict[str, str]:
    """The variables of this process, but those that lead to its own packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
