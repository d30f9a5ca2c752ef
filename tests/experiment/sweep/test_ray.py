"""Sweeps on Ray: what crosses, and a real cluster that loses a machine."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stopped_runs import folder_of, list_attempts, read_summary

from lntrust.experiment import Run
from lntrust.experiment.sweep.ray import packed, unpacked
from lntrust.learners.views import Views
from lntrust.study.loading import load_study
from lntrust.world.data.datasets import Coded, Dataset

HERE = Path(__file__).parents[1]
ALONE = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
LIMIT = 120  # seconds

STUDY = """
inherits = "digits"
graph.nodes = 5
partition.labelled = 250
training = { stage1_rounds = 2, stage2_rounds = 15 }
evaluation = { every = 5, checkpoint_every = 1 }
population.learners = [{ name = "linear", kind = "linear", view = "pixels" }]
"""


def test_a_dataset_crosses_as_json_and_arrays_and_is_not_copied() -> None:
    codes, where = np.arange(6, dtype=np.uint8).reshape(3, 2), np.arange(3.0)
    coded, pixels = Coded(codes, np.float32([1, 2]), np.float32([0, 1])), np.zeros((3, 4))
    dataset = Dataset(
        "eurosat", np.arange(3), ("a", "b", "c"), (64, 64, 3), "uint8",
        {"coded": lambda: coded, "pixels": lambda: pixels}, latitude=where, longitude=where + 1,
    )  # fmt: skip
    header, arrays = packed(dataset, ["coded", "pixels"])
    assert isinstance(json.loads(header), dict)
    there = unpacked(header, arrays)
    view = there.view("coded")
    assert isinstance(view, Coded)
    assert all(getattr(view, part) is getattr(coded, part) for part in ("codes", "step", "offset"))
    assert there.view("pixels") is pixels
    assert there.latitude is where
    assert there.subject is None
    assert there.labels is dataset.labels
    for name in ("name", "classes", "input_shape", "input_dtype"):
        assert getattr(there, name) == getattr(dataset, name)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: Ray puts sockets there, and their paths are limited."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def alone(*command: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command with loopback only and processes of its own, all of which end with it."""
    up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    own = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "default"}
    return subprocess.run(
        [*ALONE, *up, *command], capture_output=True, text=True, timeout=LIMIT, cwd=folder,
        env={**os.environ, **own},
    )  # fmt: skip


@pytest.fixture
def _namespaces(short: Path) -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("unshare and ip (util-linux, iproute2) are needed to keep a Ray cluster on loopback")
    if alone("true", folder=short).returncode != 0:
        pytest.skip("namespaces are not permitted here, and a Ray cluster would listen on a real network")


@pytest.mark.usefixtures("_namespaces")
def test_a_cluster_loses_a_machine_and_no_run_is_lost_or_done_twice(
    short: Path, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(HERE / "troubled.py", short)
    (short / "shaky.toml").write_text(STUDY)
    monkeypatch.setenv("MOMENT", "0.2")  # three seconds a run: a worker may outlive its node by one
    sweep = ["shaky.toml", "--method", "troubled:Looks", "--seed", "0-2", "--device", "cpu", "--out"]
    got = alone(sys.executable, HERE / "ray_loses_a_node.py", *sweep, short / "runs", folder=short)
    assert got.returncode == 0, got.stdout + got.stderr
    told = json.loads((short / "told.json").read_text())
    assert told["code"] == 0, got.stdout + got.stderr
    memory = [path.read_text() for path in short.glob("memory-*")]
    assert len(memory) == 2
    assert all("plasma" in line for line in memory), f"inputs are not read in the object store: {memory}"
    folders = {path.name: path for path in (short / "runs").glob("shaky/*/seed-*")}
    assert len(folders) == 3
    numbers = {name: [a["number"] for a in list_attempts(folder)] for name, folder in folders.items()}
    assert numbers.pop(told["lost"]) == [1, 2]
    assert list(numbers.values()) == [[1], [1]]
    assert list_attempts(folders[told["lost"]])[1]["resumed"] > 0
    monkeypatch.chdir(short)
    monkeypatch.syspath_prepend(short)
    monkeypatch.setenv("MOMENT", "0")
    sys.modules.pop("troubled", None)
    for seed in range(3):
        one = Run(load_study("shaky.toml"), "troubled:Looks", seed, views, folder=short / "whole")
        whole = folder_of(one)
        assert read_summary(folders[whole.name]) == read_summary(whole)


LISTENERS = """
from pathlib import Path
from lntrust.experiment.sweep.ray import connected

with connected(None):
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A":
                print("listens", local.rpartition(":")[0])
"""


@pytest.mark.usefixtures("_namespaces")
def test_a_cluster_that_is_started_for_one_sweep_listens_on_loopback_alone(short: Path) -> None:
    """Ray runs whatever it is sent. There is another network here, which it must not be found on."""
    network = "ip link add v0 type veth peer name v1 && ip addr add 10.9.9.9/24 dev v0 && ip link set v0 up"
    more = f'{network} && ip link set v1 up && ip route add default dev v0 && exec "$@"'
    got = alone("sh", "-c", more, "sh", sys.executable, "-c", LISTENERS, folder=short)
    assert got.returncode == 0, got.stderr
    # 127.0.0.1 as /proc/net writes it, and as an IPv6 address.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert {line.split()[1] for line in got.stdout.splitlines() if line.startswith("listens")} <= loopback
    assert got.stdout.count("listens") >= 3
