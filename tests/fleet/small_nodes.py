"""Settings and data for nodes that live inside a test, and what their users may hand in."""

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from lntrust.fleet.settings import NodeSettings

CLASSES = ("ant", "bee", "cat")
SHAPE = (1, 4, 4)
TABLES: dict[str, Any] = {
    "name": "a",
    "input": {"shape": SHAPE, "classes": CLASSES},
    "model": {"kind": "linear"},
    "data": {"labelled": "small_nodes:labelled", "probe_with": "validation", "shard": "small_nodes:shard"},
    "training": {"stage1_rounds": 2, "stage2_rounds": 2, "lr": 0.1, "batch": 8},
}


def settings(**changes: Any) -> NodeSettings:
    """Of ours, with others over them, field by field."""
    made = dict(TABLES)
    for name, value in changes.items():
        made[name] = {**made.get(name, {}), **value} if isinstance(value, Mapping) else value
    return NodeSettings.model_validate(made)


def blobs(seed: int, size: int = 30) -> tuple[ndarray, ndarray]:
    """Three clouds of points, and which cloud each is of."""
    y = np.arange(size) % len(CLASSES)
    centres = np.random.default_rng(7).normal(size=(len(CLASSES), *SHAPE))
    x = centres[y] + np.random.default_rng(seed).normal(size=(size, *SHAPE))
    return x.astype(np.float32), y


# -- what a NODE.toml may name ------------------------------------------------------------------


def labelled() -> tuple[ndarray, ndarray]:
    return blobs(0)


def shard() -> ndarray:
    return blobs(1)[0]


def broken() -> ndarray:
    raise RuntimeError("the camera is off")


def nothing() -> tuple[ndarray, ndarray]:
    return blobs(0, 0)


def normalised(input_shape: tuple[int, ...], classes: int, width: int = 5) -> nn.Module:
    """Batch normalisation: its buffers change in training, and its answers with them."""
    inputs = prod(input_shape)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, classes)
    )


class Failing(nn.Module):
    """Trains for five passes, and then no more; or, after some failures, again."""

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, failures: int = 1_000_000,
        error: type[BaseException] = ArithmeticError,
    ) -> None:  # fmt: skip
        super().__init__()
        self.linear, self.left = nn.Linear(prod(input_shape), classes), 5
        self.failures, self.error = failures, error

    def forward(self, x: Tensor) -> Tensor:
        self.left -= self.training
        if self.training and self.left < 0 < self.failures:
            self.failures -= 1
            raise self.error("no more passes")
        out: Tensor = self.linear(x.flatten(1))
        return out


stumbling = partial(Failing, failures=2)
exiting = partial(Failing, failures=2, error=SystemExit)


def text(_input_shape: tuple[int, ...], _classes: int) -> str:
    return "not a model"


def logistic(_input_shape: tuple[int, ...], _classes: int, strength: float = 1.0) -> Any:
    return LogisticRegression(C=strength)


def twice(x: Tensor) -> Tensor:
    """A view with two features more than the input has."""
    flat = x.flatten(1)
    return torch.cat([flat, flat.mean(1, keepdim=True), flat.amax(1, keepdim=True)], 1)


def halved(x: Tensor) -> Tensor:
    """A view that loses inputs."""
    return x[: len(x) // 2]


def raising(_input_shape: tuple[int, ...], _classes: int) -> nn.Module:
    raise OSError("no such device")
