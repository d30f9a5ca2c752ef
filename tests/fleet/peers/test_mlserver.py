"""A real MLServer with a scikit-learn model, which knows nothing of fleets, as a neighbour.

Its environment is made once, in `.venv-mlserver` at the repository's root: MLServer needs versions of
packages that are not ours. Remove the folder to have it made anew.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import urllib3
from fleets import deployed, free_port, until, wait_until
from small_servers import Street

from lntrust.fleet.node import Node
from lntrust.fleet.peers.transport import RefusedError
from lntrust.fleet.settings import InputSettings, NodeSettings

HOME = Path(__file__).parents[3] / ".venv-mlserver"
NEEDS = ["mlserver==1.7.1", "mlserver-sklearn==1.7.1"]
THEIRS = ("setosa", "versicolor", "virginica")
OURS = ("virginica", "setosa", "versicolor")
FILES = {"labelled": "data", "probe_with": "probe", "shard": "shard"}

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
# The variables of this process, but those that lead to its own packages.
ENVIRONMENT = {name: each for name, each in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


class Served(NamedTuple):
    """The model's address, and what it has to answer to which inputs."""

    url: str
    x: np.ndarray  # [150, 4] float32
    p: np.ndarray  # [150, 3]


def run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}"


def environment() -> Path:
    """The environment's folder of programs. One process makes it, others wait for it."""
    HOME.mkdir(exist_ok=True)
    made, programs = HOME / "made-of", HOME / "bin"
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or the process dies
        if not made.is_file() or made.read_text("utf-8") != "\n".join(NEEDS):
            (HOME / ".gitignore").write_text("*\n", "utf-8")
            run(sys.executable, "-m", "venv", HOME)
            run(programs / "python", "-m", "pip", "install", "--quiet", *NEEDS)
            made.write_text("\n".join(NEEDS), "utf-8")
    return programs


@pytest.fixture(scope="module")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The model `iris`, on loopback."""
    programs, folder = environment(), tmp_path_factory.mktemp("mlserver")
    (folder / "model.py").write_text(MODEL, "utf-8")
    run(programs / "python", "model.py", cwd=folder)
    ports = {f"{name}_port": free_port() for name in ("http", "grpc", "metrics")}
    server = {"host": "127.0.0.1", **ports, "parallel_workers": 0}
    model = {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./model.joblib"}}
    for name, table in {"settings": server, "model-settings": {"name": "iris", **model}}.items():
        (folder / f"{name}.json").write_text(json.dumps(table), "utf-8")
    url, log = f"http://127.0.0.1:{ports['http_port']}/v2/models/iris", folder / "log"
    with log.open("wb") as out, np.load(folder / "known.npz") as known:
        command = [programs / "mlserver", "start", "."]
        process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=out, stderr=out)

        def ready() -> bool:
            assert process.poll() is None, "MLServer has ended"
            try:
                return urllib3.request("GET", f"{url}/ready", timeout=5, retries=False).status == 200
            except urllib3.exceptions.HTTPError:
                return False

        try:
            wait_until(ready, 180, lambda: log.read_text("utf-8")[-2000:])
            yield Served(url, known["x"], known["p"])
        finally:
            process.kill()
            process.wait(20)


@pytest.mark.parametrize(
    ("path", "width", "output", "message"),
    [
        ("", 3, "predict_proba", r"^HTTP 500: .*X has 3 features.* expecting 4 features"),
        ("x", 4, "predict_proba", r"^HTTP 404: .*not found"),
        ("", 4, "no output", "HTTP"),
    ],
)
def test_what_it_refuses_comes_with_its_reason(
    iris: Served, street: Street, path: str, width: int, output: str, message: str
) -> None:
    ours = InputSettings(shape=(width,), classes=OURS)
    with pytest.raises(RefusedError, match=message):
        street.neighbour(iris.url + path, ours, output=output).ask(iris.x[:, :width], timeout=60)


def test_a_node_asks_it_and_learns_to_trust_it(iris: Served, tmp_path: Path) -> None:
    """The node has hardly any data, and knows somebody who has seen more."""
    truth = np.array([OURS.index(name) for name in THEIRS]).repeat(50)
    order = np.random.default_rng(0).permutation(len(iris.x))
    for name, rows in zip(FILES.values(), np.split(order, [6, 46, 96]), strict=False):
        np.savez(tmp_path / f"{name}.npz", x=iris.x[rows], y=truth[rows])
    there = {"input": "predict", "output": "predict_proba", "classes": THEIRS}
    settings = {
        "name": "here",
        "input": {"shape": [4], "classes": OURS},
        "model": {"kind": "linear", "options": {"dropout": 0.0}},
        "data": {name: f"{tmp_path}/{file}.npz" for name, file in FILES.items()},
        "neighbours": [{"name": "there", "url": iris.url, **there}],
        "http": {"listen": "off"},
        "life": {"state": tmp_path / "state", "refresh_every": 1.0, "wait": 20.0},
        "training": {"stage1_rounds": 2, "stage2_rounds": 10, "lr": 0.001, "refresh": 5},
        "trust": {"budget": 20, "sample": 20, "warmup": 2},
    }
    with Node(NodeSettings.model_validate(settings)).start() as node:
        status = until(node, deployed)
        assert status["together"]
        assert status["trust"]["there"] > 0.5
        assert status["validation"]["ensemble"] > status["validation"]["self"] + 0.2
        answer = node.predict(iris.x)
        assert set(answer.weights) == {"here", "there"}
        assert (answer.probabilities.argmax(1) == truth).mean() > 0.9
        # The server's own columns, brought into our order, and mixed by the weights that are told.
        by_self = node.predict(iris.x, "self").probabilities
        theirs = iris.p[:, [THEIRS.index(name) for name in OURS]]
        mixed = answer.weights["here"] * by_self + answer.weights["there"] * theirs
        np.testing.assert_allclose(answer.probabilities, mixed, atol=1e-4)
        assert min(status["bytes"]["out"]["query"], status["bytes"]["in"]["reply"]) > 0
