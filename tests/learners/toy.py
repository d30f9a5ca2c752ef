"""A small dataset with views of every shape, and populations on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lntrust.learners import Labelled, Population
from lntrust.learners.inference import Backend
from lntrust.learners.views import Views
from lntrust.study.settings import LearnerSettings, TrainingSettings
from lntrust.world import Dataset, Ragged

EXAMPLES, CLASSES = 120, 4
CPU = torch.device("cpu")

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
    **changes: Any,
) -> Population:
    """n nodes with these learners in turn, or as `kinds` says."""
    chosen = [learner(one) if isinstance(one, str) else one for one in learners]
    of_node = np.arange(n) % len(chosen) if kinds is None else np.array(kinds)
    views = Views(DATASET, CPU, dtype)
    return Population(chosen, of_node, views, LABELS, CLASSES, training(**changes), seed, backend)


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


def everything() -> torch.Tensor:
    return torch.arange(EXAMPLES)
