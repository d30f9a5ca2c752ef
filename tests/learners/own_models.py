"""What users may hand in as `own_models:Name`: good modules, difficult ones and wrong ones."""

from math import prod
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn.functional import dropout

Shape = tuple[int, ...]


class Residual(nn.Module):
    """Two dropout layers of different p, a skip connection, a layer norm: stacks without trouble."""

    def __init__(self, input_shape: Shape, classes: int, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Linear(prod(input_shape), width)
        self.norm = nn.LayerNorm(width)
        self.block = nn.Sequential(nn.Dropout(0.3), nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.5))
        self.leave = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.enter(x.flatten(1)))
        out: Tensor = self.leave(h + self.block(h))
        return out


class OneLayer(nn.Module):
    """A linear map, and what others make of it."""

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(prod(input_shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.flatten(1))
        return out


class Branching(OneLayer):
    """Looks at a number while it runs, which torch.vmap cannot do."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if out.sum().item() > 0 else 2 * out


class InPlace(OneLayer):
    """Normalises its input in place."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(3.0).div_(2.0))


class Idle(OneLayer):
    """Owns a layer that it never uses."""

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__(input_shape, classes)
        self.idle = nn.Linear(3, 3)


class Gambler(OneLayer):
    """Draws random numbers that no stream has a name for."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(dropout(x, 0.5, self.training))


class Pair(OneLayer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return x, x


class TwiceDropped(nn.Module):
    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(prod(input_shape), 8), nn.Linear(8, classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.drop(self.first(self.drop(x.flatten(1)))))
        return out


class Scaled(nn.Sequential):
    """Looks like a linear head and is none."""

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Dropout(0.5), nn.Linear(prod(input_shape), classes))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x)
        return 3 * out


def squashed(input_shape: Shape, classes: int) -> nn.Module:
    """Looks like a linear head, with parameters of other names."""
    last = nn.Linear(prod(input_shape), classes)
    nn.utils.parametrize.register_parametrization(last, "weight", nn.Tanh())
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), last)


def normalised(input_shape: Shape, classes: int) -> nn.Module:
    """Batch normalisation: its buffers change in training."""
    inputs = prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(inputs), nn.Dropout(0.5), nn.Linear(inputs, classes))


def shared_dropout(input_shape: Shape, classes: int) -> nn.Module:
    """One nn.Dropout object in two places."""
    drop, inputs = nn.Dropout(0.5), prod(input_shape)
    return nn.Sequential(nn.Flatten(), drop, nn.Linear(inputs, 8), nn.ReLU(), drop, nn.Linear(8, classes))


def frozen(input_shape: Shape, classes: int) -> nn.Module:
    """A backbone that is not trained, and a head that is."""
    backbone = nn.Linear(prod(input_shape), 8).requires_grad_(False)
    return nn.Sequential(nn.Flatten(), backbone, nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes))


def finished(input_shape: Shape, classes: int) -> nn.Module:
    """A model that only answers."""
    return OneLayer(input_shape, classes).requires_grad_(False)


def too_narrow(input_shape: Shape, classes: int) -> nn.Module:
    return OneLayer(input_shape, classes - 1)


def wrong_input(_input_shape: Shape, classes: int) -> nn.Module:
    return OneLayer((1,), classes)


def nonsense(_input_shape: Shape, _classes: int) -> Any:
    return {"a": "dictionary"}


def pipeline(_input_shape: Shape, _classes: int) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression())


not_a_factory = 3.0
