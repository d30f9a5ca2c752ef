"""A run that is stopped at any moment and resumed ends with the same bits as one that is not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from lntrust import LNTrustError, Study, load_study
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Method, Site, State
from lntrust.network import Questions


def results(folder: Path) -> dict[str, Any]:
    """All that a run leaves, bit for bit, but for how long it took."""
    (run,) = folder.rglob("summary.json")
    import pyarrow.parquet as pq

    summary = json.loads(run.read_text())
    summary.pop("seconds")
    tensors, metadata = read_tensors(run.parent / "checkpoint.safetensors")
    metadata.pop("seconds")
    return {
        "summary": summary,
        "rounds": pq.read_table(run.parent / "rounds.parquet").to_pylist(),
        "metadata": metadata,
        **{f"checkpoint/{n}": (t.dtype, t.shape, t.numpy().tobytes()) for n, t in tensors.items()},
        **{path.name: path.read_bytes() for path in (run.parent / "evaluations").glob("round-*")},
    }


def assert_same(first: Path, second: Path) -> None:
    one, other = results(first), results(second)
    assert set(one) == set(other)
    assert [name for name in one if one[name] != other[name]] == []


class Stopped(BaseException):
    pass


def stop_after(rounds: int) -> Any:
    def progress(done: int, *_: object) -> None:
        if done == rounds:
            raise Stopped

    return progress


class Remembers(Method):
    """Carries a running mean of what neighbours say, distils towards it, and charges for it."""

    def start(self, site: Site) -> State:
        n, C = site.population.n, site.population.classes
        shape = (n, site.world.study.partition.shard, C)
        return {"mean": torch.full(shape, 1 / C), "asked": torch.zeros((), dtype=torch.int64)}

    def round(self, site: Site, state: State, t: int) -> State:
        super().round(site, state, t)
        shard = torch.from_numpy(site.world.partition.shard.values).view(site.population.n, -1)
        replies = site.network.ask(Questions.of(shard, "shard"), "distil")
        asker = site.network.edges[replies.edge, 0]
        said = torch.zeros_like(state["mean"]).index_add_(0, asker, replies.regular())
        mean = 0.5 * state["mean"] + 0.5 * said / torch.bincount(asker)[:, None, None]

        def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return -(targets * logits.log_softmax(-1)).sum(-1).mean(-1)

        site.population.descend("distil", shard, loss, (mean,))
        return {"mean": mean, "asked": state["asked"] + 1}


METHODS = ["independent", "uniform", "centralized", f"{__name__}:Remembers"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("schedule", ["every_node", "random_node"])
def test_stopped_after_every_round(
    tiny: Any, views: Views, tmp_path: Path, method: str, schedule: str
) -> None:
    study: Study = tiny(
        f"training.schedule={schedule}", "network.query=handle", "partition.validation=fresh",
        "training.stage1_rounds=2", "training.stage2_rounds=4",
    )  # fmt: skip
    Run(study, method, 0, views, folder=tmp_path / "whole")()
    for stop in range(study.training.stage1_rounds + study.training.stage2_rounds + 1):
        one = Run(study, method, 0, views, folder=tmp_path / "stopped")
        with pytest.raises(Stopped):
            one(resume=True, progress=stop_after(stop))
        assert not list((tmp_path / "stopped").rglob("summary.json"))
    Run(study, method, 0, views, folder=tmp_path / "stopped")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_checkpoints_that_are_behind(tiny: Any, views: Views, tmp_path: Path) -> None:
    """Evaluations of rounds after the last checkpoint are made again."""
    study: Study = tiny("evaluation.checkpoint_every=3", "evaluation.every=1", "training.stage2_rounds=6")
    Run(study, "uniform", 0, views, folder=tmp_path / "whole")()
    with pytest.raises(Stopped):
        Run(study, "uniform", 0, views, folder=tmp_path / "stopped")(progress=stop_after(5))
    (checkpoint,) = tmp_path.glob("stopped/**/checkpoint.safetensors")
    assert read_tensors(checkpoint)[1]["round"] == "3"
    for path in checkpoint.parent.glob("evaluations/round-0000[45]*"):
        path.write_bytes(b"to be made again")
    Run(study, "uniform", 0, views, folder=tmp_path / "stopped")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_without_a_checkpoint_it_starts_over(tiny: Any, views: Views, tmp_path: Path) -> None:
    Run(tiny(), "uniform", 0, views, folder=tmp_path / "whole")()
    Run(tiny(), "uniform", 0, views, folder=tmp_path / "new")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "new")


def test_without_resume_nothing_of_an_earlier_run_is_used(tiny: Any, views: Views, tmp_path: Path) -> None:
    Run(tiny(), "uniform", 0, views, folder=tmp_path / "whole")()
    with pytest.raises(Stopped):
        Run(tiny(), "uniform", 0, views, folder=tmp_path / "new")(progress=stop_after(4))
    (checkpoint,) = tmp_path.glob("new/**/checkpoint.safetensors")
    checkpoint.write_bytes(b"nonsense")
    Run(tiny(), "uniform", 0, views, folder=tmp_path / "new")()
    assert_same(tmp_path / "whole", tmp_path / "new")


def test_a_finished_run_is_not_run_again(tiny: Any, views: Views, tmp_path: Path) -> None:
    first = Run(tiny(), "uniform", 0, views, folder=tmp_path)()
    again = Run(tiny(), "uniform", 0, views, folder=tmp_path)
    assert again(resume=True) == first
    assert again.done == 0


class TestRefusals:
    @pytest.fixture
    def stopped(self, tiny: Any, views: Views, tmp_path: Path) -> Path:
        with pytest.raises(Stopped):
            Run(tiny(), "uniform", 0, views, folder=tmp_path)(progress=stop_after(4))
        (path,) = tmp_path.rglob("checkpoint.safetensors")
        return path

    def resume(self, tiny: Any, views: Views, tmp_path: Path) -> None:
        Run(tiny(), "uniform", 0, views, folder=tmp_path)(resume=True)

    def test_another_runs_checkpoint(self, tiny: Any, views: Views, tmp_path: Path, stopped: Path) -> None:
        tensors, metadata = read_tensors(stopped)
        write_tensors(stopped, tensors, metadata | {"fingerprint": "0123456789"})
        with pytest.raises(
            LNTrustError, match=r"checkpoint.safetensors: belongs to another run \(0123456789"
        ):
            self.resume(tiny, views, tmp_path)

    @pytest.mark.parametrize("change", ["missing", "shape"])
    def test_a_checkpoint_of_another_version(
        self, tiny: Any, views: Views, tmp_path: Path, stopped: Path, change: str
    ) -> None:
        tensors, metadata = read_tensors(stopped)
        name = next(name for name in tensors if name.startswith("population/linear/param/"))
        if change == "missing":
            del tensors[name]
        else:
            tensors[name] = torch.zeros(1, 2, 3, 4)
        write_tensors(stopped, tensors, metadata)
        with pytest.raises(LNTrustError, match=r"checkpoint.safetensors: does not fit this run: .*remove it"):
            self.resume(tiny, views, tmp_path)

    def test_an_evaluation_that_is_gone(self, tiny: Any, views: Views, tmp_path: Path, stopped: Path) -> None:
        (stopped.parent / "evaluations" / "round-00002.safetensors").unlink()
        with pytest.raises(LNTrustError, match=r"round-00002\.safetensors"):
            self.resume(tiny, views, tmp_path)


KILLED = (
    "graph.nodes=5", "partition.labelled=250", "training.stage1_rounds=8", "training.stage2_rounds=32",
    "training.refresh=7", "evaluation.every=4", "evaluation.checkpoint_every=1",
    "population.learners.3.options.trees=5",
)  # fmt: skip


def _round(folder: Path) -> int:
    """The round of the checkpoint in a folder that a process is writing to; it is always whole."""
    for path in folder.rglob("checkpoint.safetensors"):
        with safe_open(path, framework="pt") as file:
            return int(file.metadata()["round"])
    return 0


def test_kill_9_at_three_moments(views: Views, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lntrust.cli", "run", "digits", "--method", "uniform"]
    command += ["--seed", "0"]
    command += ["--device", "cpu", "--out", str(tmp_path / "killed")]
    for field in KILLED:
        command += ["--set", field]
    reached = 0
    for least in (1, 10, 20):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            deadline = time.monotonic() + 120
            while _round(tmp_path / "killed") < max(least, reached + 1):
                assert child.poll() is None, child.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            time.sleep(random.uniform(0, 0.05))
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
        assert child.returncode == -signal.SIGKILL
        reached = _round(tmp_path / "killed")
        assert not list((tmp_path / "killed").rglob("summary.json")), f"it was done at round {reached}"
    study = load_study("digits", KILLED)
    Run(study, "uniform", 0, views, folder=tmp_path / "killed")(resume=True)
    Run(study, "uniform", 0, views, folder=tmp_path / "whole")()
    assert_same(tmp_path / "whole", tmp_path / "killed")
