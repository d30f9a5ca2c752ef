"""Small LNTrust runs on digits, shared by the tests of the method."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lntrust import Study, load_study
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Method

SMALL = [
    "graph.nodes=6", "partition.labelled=300", "training.stage1_rounds=2", "training.stage2_rounds=4",
    "training.refresh=2", "evaluation.every=2", "methods.lntrust.warmup=1", "methods.lntrust.budget=40",
    "methods.lntrust.sample=50",
]  # fmt: skip
LINEAR = '{name="linear",kind="linear",view="pixels",options={dropout=0.2}}'
MLP = '{name="mlp",kind="mlp",view="pixels",options={hidden=8,dropout=0.2}}'
FOREST = '{name="forest",kind="forest",view="pixels",options={trees=3}}'
MIXED = f"population.learners=[{LINEAR},{MLP},{FOREST}]"
TORCH = f"population.learners=[{LINEAR},{MLP}]"
FLOAT64 = "training.precision=float64"


def levers(**settings: object) -> list[str]:
    """Overrides for settings of LNTrust."""
    return [f"methods.lntrust.{name}={value}" for name, value in settings.items()]


# Everything that is off by default.
ALL_LEVERS = levers(
    query="handle", reply="uint8", recall=2, top_k=2, probe_others=2, refresh=1, answer_k=2,
    certainty=0.7, typical_margin="true", self_share=0.2, prior_wins=0.5,
    importance_power=0.5, training_gate="evidence", deployment_gate="evidence", evidence=0.3, look_back=0.6,
    final_rounds=1, prior="accuracy", prior_examples=5, calibrate="true",
)  # fmt: skip


def study(*overrides: str) -> Study:
    return load_study("digits", [*SMALL, *overrides])


def made(views: Views, *overrides: str, method: str = "lntrust", **options: Any) -> Run:
    """A run that has ended."""
    return ended(views, *overrides, method=method, **options)[0]


def ended(views: Views, *overrides: str, method: str, **options: Any) -> tuple[Run, dict[str, Any]]:
    """A run that has ended, and its summary."""
    one = Run(study(*overrides), method, 0, views, **options)
    return one, one()


_SHARED: dict[tuple[str, ...], Run] = {}


def shared(views: Views, *overrides: str, method: str = "lntrust") -> Run:
    """The same, made once for all tests that only look at it."""
    key = (*overrides, method, str(views.dtype))
    if key not in _SHARED:
        _SHARED[key] = made(views, *overrides, method=method)
    return _SHARED[key]


def told(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name != "seconds"}


def parameters(run: Run) -> dict[str, Tensor]:
    state = run.population.state()
    return {name: t for name, t in state.items() if not name.startswith("steps/")}


class Stopped(BaseException):
    """What ends a run in its midst."""


def assert_resumes(views: Views, folder: Path, *overrides: str) -> Run:
    """A run that is stopped after every round and goes on equals one that is not."""
    often = (*overrides, "evaluation.checkpoint_every=1")
    whole = Run(study(*often), "lntrust", 0, views, folder=folder / "whole")
    summary = whole()
    for stop in range(1, whole.rounds + 1):

        def progress(done: int, *_: object, stop: int = stop) -> None:
            if done == stop:
                raise Stopped

        with pytest.raises(Stopped):
            Run(study(*often), "lntrust", 0, views, folder=folder / "stopped")(resume=True, progress=progress)
    resumed = Run(study(*often), "lntrust", 0, views, folder=folder / "stopped")
    assert told(resumed(resume=True)) == told(summary)
    assert set(resumed.state) == set(whole.state)
    for name, tensor in whole.state.items():
        assert torch.equal(tensor, resumed.state[name]), name
    for name, tensor in whole.population.state().items():
        assert torch.equal(tensor, resumed.population.state()[name]), name
    return whole


class TrainOnly(Method):
    """Stage 2 without neighbours, on train only: what LNTrust is when nobody can teach."""

    uses_validation = True


TRAIN_ONLY = f"{__name__}:TrainOnly"
