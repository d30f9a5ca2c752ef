"""What users may hand in as `own_models:factory`: good modules, difficult ones and wrong ones."""

from math import prod
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor, nn
from torch.nn.functional import dropout

Shape = tuple[int, ...]


class Residual(nn.Module):
    """Two dropout layers of different p, a skip connection, a layer norm: stacks without trouble."""

    def __init__(self, inputs: int, classes: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.block = nn.Sequential(nn.Dropout(0.3), nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.5))
        self.leave = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.enter(x.flatten(1)))
        out: Tensor = self.leave(h + self.block(h))
        return out


def residual(input_shape: Shape, classes: int, width: int = 8) -> nn.Module:
    return Residual(prod(input_shape), classes, width)


def normalised(input_shape: Shape, classes: int) -> nn.Module:
    """Batch normalisation: its buffers change in training."""
    inputs = prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(inputs), nn.Dropout(0.5), nn.Linear(inputs, classes))


class Branching(nn.Module):
    """Looks at a number while it runs, which torch.vmap cannot do."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.flatten(1))
        return out if out.sum().item() > 0 else 2 * out


def branching(input_shape: Shape, classes: int) -> nn.Module:
    return Branching(prod(input_shape), classes)


class InPlace(nn.Module):
    """Normalises its input in place."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.sub_(3.0).div_(2.0).flatten(1))
        return out


def in_place(input_shape: Shape, classes: int) -> nn.Module:
    return InPlace(prod(input_shape), classes)


def frozen(input_shape: Shape, classes: int) -> nn.Module:
    """A backbone that is not trained, and a head that is."""
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(prod(input_shape), 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes)
    )
    model[1].requires_grad_(False)
    return model


def finished(input_shape: Shape, classes: int) -> nn.Module:
    """A model that only answers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes)).requires_grad_(False)


class Idle(nn.Module):
    """Owns a layer that it never uses."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.used = nn.Linear(inputs, classes)
        self.idle = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x.flatten(1))
        return out


def idle(input_shape: Shape, classes: int) -> nn.Module:
    return Idle(prod(input_shape), classes)


def shared_dropout(input_shape: Shape, classes: int) -> nn.Module:
    """One nn.Dropout object in two places."""
    drop = nn.Dropout(0.5)
    inputs = prod(input_shape)
    return nn.Sequential(nn.Flatten(), drop, nn.Linear(inputs, 8), nn.ReLU(), drop, nn.Linear(8, classes))


class TwiceDropped(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, 8), nn.Linear(8, classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.drop(self.first(self.drop(x.flatten(1)))))
        return out


def twice_dropped(input_shape: Shape, classes: int) -> nn.Module:
    return TwiceDropped(prod(input_shape), classes)


class Scaled(nn.Sequential):
    """Looks like a linear head and is none."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x)
        return 3 * out


def scaled(input_shape: Shape, classes: int) -> nn.Module:
    return Scaled(nn.Flatten(), nn.Dropout(0.5), nn.Linear(prod(input_shape), classes))


def squashed(input_shape: Shape, classes: int) -> nn.Module:
    """Looks like a linear head, with parameters of other names."""
    last = nn.Linear(prod(input_shape), classes)
    nn.utils.parametrize.register_parametrization(last, "weight", nn.Tanh())
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), last)


class Gambler(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(dropout(x.flatten(1), 0.5, self.training))
        return out


def gambler(input_shape: Shape, classes: int) -> nn.Module:
    """Draws random numbers that no stream has a name for."""
    return Gambler(prod(input_shape), classes)


def too_narrow(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes - 1))


def pair(_input_shape: Shape, _classes: int) -> nn.Module:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    return Pair()


def wrong_input(_input_shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(1, classes))


def nonsense(_input_shape: Shape, _classes: int) -> Any:
    return {"a": "dictionary"}


def neighbours(_input_shape: Shape, _classes: int) -> Any:
    return KNeighborsClassifier(1)


def bayes(_input_shape: Shape, _classes: int) -> Any:
    return GaussianNB()


def logistic(_input_shape: Shape, _classes: int) -> Any:
    return LogisticRegression()


def pipeline(_input_shape: Shape, _classes: int) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression())


def undecided(_input_shape: Shape, _classes: int) -> Any:
    return SVC()


not_a_factory = 3.0
