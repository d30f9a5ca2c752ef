"""A small dataset with views of every shape, and populations on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lntrust.learners import Batch, Labelled, Population
from lntrust.learners.inference import Backend
from lntrust.learners.modules import Build, build
from lntrust.learners.training import Stack
from lntrust.learners.views import Views
from lntrust.study.settings import LearnerSettings, TrainingSettings
from lntrust.world import Dataset, Ragged

EXAMPLES, CLASSES = 120, 4
CPU = torch.device("cpu")
BACKENDS = pytest.mark.parametrize("backend", ["batched", "loop"])
KINDS = ["linear", "mlp", "cnn1d", "cnn2d"]
MIXED = ["mlp", "forest", "linear", "own_models:normalised", "cnn2d"]

# A view that suits each kind.
VIEW = {"cnn1d": "series", "cnn2d": "image"}
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 7}, "cnn1d": {"width": 3}, "cnn2d": {"width": 2}, "forest": {"trees": 5},
}  # fmt: skip


def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(EXAMPLES) % CLASSES)

    def view(*shape: int) -> np.ndarray:
        centres = rng.normal(size=(CLASSES, *shape))
        return (centres[labels] + rng.normal(size=(EXAMPLES, *shape))).astype(np.float32)

    views = {"flat": view(6), "series": view(2, 16), "image": view(1, 6, 6)}
    names = tuple(f"c{c}" for c in range(CLASSES))
    return Dataset("toy", labels, names, (6,), "uint8", {n: lambda v=v: v for n, v in views.items()})  # type: ignore[misc]


DATASET = dataset()
LABELS = torch.from_numpy(DATASET.labels)


def learner(kind: str, name: str | None = None, view: str | None = None, **options: Any) -> LearnerSettings:
    return LearnerSettings(
        name=name or kind,
        kind=kind,
        view=view or VIEW.get(kind, "flat"),
        options=SMALL.get(kind, {}) | options,
    )


def training(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{"batch": 8, "lr": 0.05, **changes})


def population(
    *learners: LearnerSettings | str,
    n: int = 5,
    kinds: Sequence[int] | None = None,
    backend: Backend = "batched",
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    common_start: bool = False,
    build: Build = build,
    **changes: Any,
) -> Population:
    """n nodes with these learners in turn, or as `kinds` says."""
    chosen = [learner(one) if isinstance(one, str) else one for one in learners]
    of_node = np.arange(n) % len(chosen) if kinds is None else np.array(kinds)
    views = Views(DATASET, CPU, dtype)
    made_of = (chosen, of_node, views, LABELS, CLASSES, training(**changes))
    return Population(*made_of, seed, backend, common_start, build)


def lists(n: int, seed: int = 0) -> Ragged:
    """Lists of different lengths that share no example."""
    order = np.random.default_rng(seed).permutation(EXAMPLES)
    lengths = np.arange(n) % 7 + 5
    ends = np.cumsum(lengths)
    return Ragged.of([order[end - length : end] for end, length in zip(ends, lengths, strict=True)])


def labelled(nodes: Population, stage: int = 1) -> Labelled:
    return Labelled(lists(nodes.n), LABELS, nodes.training, seed=0, stage=stage, device=CPU)


def train(nodes: Population, rounds: int = 5) -> Population:
    """Stage 1 in small."""
    batches = labelled(nodes)
    nodes.refit(batches.lists)
    for t in range(rounds):
        for batch in batches.round(t):
            nodes.step(batch)
    return nodes


def everything() -> Tensor:
    return torch.arange(EXAMPLES)


# -- what tests of several files do with them -----------------------------------------------------


class Watched:
    """Cross entropy on the batch, keeping what it was given: the logits node by node, the rest by call."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.extras: list[tuple[Tensor | None, ...]] = []

    def __call__(self, logits: Tensor, labels: Tensor, *more: Tensor | None) -> Tensor:
        self.logits += list(logits.detach().clone())
        self.extras.append(tuple(t if t is None else t.detach().clone() for t in more))
        return mean_loss(logits[:, : labels.shape[1]], labels)


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)


def close(a: Tensor, b: Tensor, atol: float = 1e-12, msg: str | None = None) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=atol, equal_nan=True, msg=msg)


def module_of(stack: Stack, i: int) -> nn.Module:
    """The i-th node of a stack as an ordinary module that answers."""
    module: nn.Module = build(stack.learner, tuple(stack.view.shape[1:]), CLASSES).double()
    module.load_state_dict({name: t[i] for name, t in {**stack.params, **stack.buffers}.items()})
    return module.eval()


def only_stack(nodes: Population) -> Stack:
    (stack,) = nodes.torch_stacks
    return stack


def ids_for(nodes: Population, count: int = 8) -> Tensor:
    """Other examples for every node."""
    return (torch.arange(count) + 7 * torch.arange(nodes.n)[:, None]) % EXAMPLES


def batch_of(nodes: Population, active: Tensor | None = None) -> Batch:
    ids = ids_for(nodes)
    return Batch(ids, LABELS[ids], active)


def snapshot(nodes: Population) -> dict[str, Tensor]:
    """Parameters, buffers and momentum, but not how often which step was taken."""
    return {name: t.clone() for name, t in nodes.state().items() if not name.startswith("steps/")}


def changed(nodes: Population, before: dict[str, Tensor]) -> set[str]:
    return {name for name, t in snapshot(nodes).items() if not torch.equal(t, before[name])}
