"""Small runs on digits, shared by the tests of the methods."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stopped_runs import stop, timeless
from torch import Tensor

from lntrust import Study, load_study
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Method, list_methods

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
ONLY_LINEAR = f"population.learners=[{LINEAR}]"
FORESTS = f"population.learners=[{LINEAR},{FOREST}]"
FLOAT64 = "training.precision=float64"
ALONE = ("graph.nodes=1", "partition.labelled=60")
UNEQUAL = ("partition.sizes=dirichlet", "partition.minimum=20")
QUICK = (
    "methods.desa.condense_steps=5", "methods.centralized.epochs=3", "methods.fedmd.budget=40",
    "methods.feddf.batch=20", "methods.fens.steps=20",
    "methods.idkd={budget=40, threshold=0.3, every=2}",
)  # fmt: skip
ROUNDS, STEPS = 4, 5  # of Stage 2
SHORT = ("training.stage1_rounds=1", "training.stage2_rounds=2")
CHEAP = "methods.lntrust.weighting=fedfomo"  # learns weights, and in no time
PLAIN = "methods.lntrust.weighting=uniform"  # learns none
BASELINES = [name for name in list_methods() if name != "lntrust"]
SHARING = ["d_psgd", "dfedavg", "gossip_fedavg", "decdiff_vt", "fedfomo", "ditto"]


def levers(**settings: object) -> list[str]:
    """Overrides for settings of LNTrust."""
    return [f"methods.lntrust.{name}={value}" for name, value in settings.items()]


# Everything that is off by default.
ALL_LEVERS = levers(
    query="handle", reply="uint8", recall=2, top_k=2, refresh=1, certainty=0.7, typical_margin="true",
    self_share=0.2, prior_wins=0.5, deployment_gate="evidence", evidence=0.3, final_rounds=1,
    prior="accuracy", prior_examples=5, split_validation="true",
)  # fmt: skip


def study(*overrides: str) -> Study:
    return load_study("digits", [*SMALL, *overrides])


def made(views: Views, *overrides: str, method: str = "lntrust", **options: Any) -> Run:
    """A run that has ended."""
    return ended(views, *overrides, method=method, **options)[0]


def begun(views: Views, *overrides: str, method: str, **options: Any) -> Run:
    """A run that has not taken a step, in the precision of its views."""
    precision = [FLOAT64] * (views.dtype == torch.float64)
    return Run(study(*overrides, *precision), method, 0, views, **options)


def ended(views: Views, *overrides: str, method: str, **options: Any) -> tuple[Run, dict[str, Any]]:
    """A run that has ended, and its summary."""
    one = begun(views, *overrides, method=method, **options)
    return one, one()


_SHARED: dict[tuple[str, ...], tuple[Run, dict[str, Any]]] = {}


def shared(views: Views, *overrides: str, method: str = "lntrust") -> Run:
    """The same, made once for all tests that only look at it."""
    return shared_end(views, *overrides, method=method)[0]


def shared_end(views: Views, *overrides: str, method: str) -> tuple[Run, dict[str, Any]]:
    """The same, with its summary."""
    key = (*overrides, method, str(views.dtype))
    if key not in _SHARED:
        _SHARED[key] = ended(views, *overrides, method=method)
    return _SHARED[key]


def parameters(run: Run) -> dict[str, Tensor]:
    state = run.population.state()
    return {name: t for name, t in state.items() if not name.startswith("steps/")}


def tensors_of(run: Run) -> dict[str, Tensor]:
    """All that the population and the method carry on."""
    return run.population.state() | run.method.pack(run.state)


def assert_same(one: Run, other: Run, atol: float = 0.0) -> None:
    """Both have learned the same."""
    assert parameters(one).keys() == parameters(other).keys()
    for name, tensor in parameters(one).items():
        torch.testing.assert_close(tensor, parameters(other)[name], rtol=0, atol=atol, msg=name)


def assert_differ(one: Run, other: Run) -> None:
    """No learner has learned the same in both."""
    assert all(not torch.allclose(t, parameters(other)[name]) for name, t in parameters(one).items())


def all_tested(run: Run) -> Tensor:
    """What every node's answers are evaluated on: all test examples."""
    return torch.from_numpy(np.unique(run.world.partition.test.values))


def scatter(run: Run, stack: Any, scale: float = 1.0) -> Tensor:
    """Parameters that no two nodes of a stack share, this far apart; the same for every backend."""
    shape = run.population.parameters(stack).shape
    theta = scale * torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    theta = theta.to(run.population.dtype)
    run.population.set_parameters(stack, theta)
    return theta


def record(thing: object, verb: str, look: Callable[..., Any] | None = None) -> list[Any]:
    """What each call of this verb from now on is given, or what `look` makes of that."""
    seen: list[Any] = []
    real = getattr(thing, verb)

    def recorded(*given: Any, **named: Any) -> Any:
        seen.append(look(*given, **named) if look else given)
        return real(*given, **named)

    setattr(thing, verb, recorded)
    return seen


def assert_resumes(views: Views, folder: Path, *overrides: str, method: str = "lntrust") -> Run:
    """A run that is stopped after every round and goes on equals one that is not."""

    def make(name: str) -> Run:
        often = study(*overrides, "evaluation.checkpoint_every=1")
        return Run(often, method, 0, views, folder=folder / name)

    whole = make("whole")
    summary = whole()
    for number in range(1, whole.rounds + 1):
        stop(make("stopped"), number, resume=True)
    resumed = make("stopped")
    assert timeless(resumed(resume=True)) == timeless(summary)
    assert tensors_of(resumed).keys() == tensors_of(whole).keys()
    for name, tensor in tensors_of(whole).items():
        assert torch.equal(tensor, tensors_of(resumed)[name]), name
    return whole


class TrainOnly(Method):
    """Stage 2 without neighbours, on train only: what LNTrust is when nobody can teach."""

    uses_validation = True


TRAIN_ONLY = f"{__name__}:TrainOnly"


def without_neighbours(method: str) -> str:
    """The method that trains as this one's nodes do when nobody else is there, on the same examples."""
    return TRAIN_ONLY if list_methods()[method].uses_validation else "independent"


def assert_same_trust(one: Run, other: Run) -> None:
    """Both trust alike, up to rounding, in float64."""
    own, theirs = one.method.pack(one.state), other.method.pack(other.state)
    assert own.keys() == theirs.keys()
    for name, tensor in own.items():
        # The last bias shifts all scores alike: α has no gradient there, so it only collects rounding.
        # Of the rest of ψ Adam makes more of rounding than of anything else; not so of α.
        if name != "memory/bias 2":
            atol = 1e-7 if name.startswith("memory/") else 1e-8
            torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=atol, msg=name)
