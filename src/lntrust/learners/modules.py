"""The kinds of models that come with lntrust, and the door for others.

A factory is called with the shape of one input, the number of classes and the learner's options, and
returns a torch module that maps [B, *input] to logits [B, C], or a scikit-learn classifier with
`predict_proba`. A scikit-learn class is a factory, too, and is called with the options alone. Modules take
PyTorch's default initialisation.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import load_object, users_fault
from lntrust.core.randomness import Seeds
from lntrust.study.settings import LearnerSettings

# Makes a fresh model: of which learner, for inputs of which shape, for how many classes.
Build = Callable[[LearnerSettings, tuple[int, ...], int], Any]


class Dropout(nn.Module):
    """Dropout whose mask is handed in, so that it comes from a named stream.

    The stack that owns the module passes `mask` as a buffer at every training step.
    """

    mask: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.unit_shape: tuple[int, ...] | None = None  # none: no pass has come by
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if self.mask.ndim == 0:  # the trial pass: nobody has handed in a mask yet
            if self.unit_shape is not None:
                raise ValueError("one dropout layer is used twice in a pass: give each place its own")
            self.unit_shape = tuple(x.shape[1:])
            return x
        return x * self.mask


def _head(inputs: int, classes: int, dropout: float) -> tuple[nn.Module, nn.Module, nn.Module]:
    return nn.Flatten(), nn.Dropout(dropout), nn.Linear(inputs, classes)


def linear(input_shape: tuple[int, ...], classes: int, dropout: float = 0.5) -> nn.Module:
    """Dropout, then one linear map: the paper's head."""
    return nn.Sequential(*_head(prod(input_shape), classes, dropout))


def mlp(input_shape: tuple[int, ...], classes: int, hidden: int = 256, dropout: float = 0.5) -> nn.Module:
    """Dropout, one hidden layer of ReLU units."""
    hidden_layer = _head(prod(input_shape), hidden, dropout)
    return nn.Sequential(*hidden_layer, nn.ReLU(), nn.Linear(hidden, classes))


def cnn1d(input_shape: tuple[int, ...], classes: int, width: int = 32, dropout: float = 0.5) -> nn.Module:
    """Two strided convolutions over time, averaged; input [channels, time]."""
    first = nn.Conv1d(input_shape[0], width, 9, stride=2, padding=4)
    second = nn.Conv1d(width, 2 * width, 9, stride=2, padding=4)
    features = (first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool1d(4))
    return nn.Sequential(*features, *_head(8 * width, classes, dropout))


def cnn2d(input_shape: tuple[int, ...], classes: int, width: int = 16, dropout: float = 0.5) -> nn.Module:
    """Two convolutions over an image [channels, height, width], the second strided."""
    first = nn.Conv2d(input_shape[0], width, 3, padding=1)
    second = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
    features = (first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    return nn.Sequential(*features, *_head(32 * width, classes, dropout))


def forest(_input_shape: tuple[int, ...], _classes: int, trees: int = 100, **options: Any) -> Any:
    """A random forest: not differentiable, and a full member all the same."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=trees, **options)


def onnx(input_shape: tuple[int, ...], classes: int, file: str, **options: Any) -> Any:
    """A finished model in an ONNX file: it answers, and does not learn."""
    from lntrust.learners.onnx import OnnxClassifier

    return OnnxClassifier(file, input_shape, classes, **options)


KINDS: dict[str, Callable[..., Any]] = {
    "linear": linear, "mlp": mlp, "cnn1d": cnn1d, "cnn2d": cnn2d, "forest": forest, "onnx": onnx,
}  # fmt: skip


def build(learner: LearnerSettings, input_shape: tuple[int, ...], classes: int) -> Any:
    """A fresh model of the learner's kind: an nn.Module or an estimator."""
    field = f"learner {learner.name}: kind"
    if ":" in learner.kind:
        factory = load_object(learner.kind, field)
    elif learner.kind in KINDS:
        factory = KINDS[learner.kind]
    else:
        raise LNTrustError(
            f"{field} = {learner.kind!r}: must be one of {', '.join(KINDS)}, or package.module:factory"
        )
    try:
        if isinstance(factory, type) and hasattr(factory, "get_params") and hasattr(factory, "set_params"):
            _check_options(factory, learner.options)
            model = factory(**learner.options)
        else:
            model = factory(input_shape, classes, **learner.options)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise LNTrustError(
            f"{field} = {learner.kind!r} with options {learner.options} on inputs of shape "
            f"{list(input_shape)}: {users_fault(error) or error}"
        ) from None
    if not isinstance(model, nn.Module) and not hasattr(model, "predict_proba"):
        raise LNTrustError(
            f"{field} = {learner.kind!r} made a {type(model).__name__}: must be a torch nn.Module or "
            "an estimator with predict_proba (which SGDClassifier, say, has with loss = log_loss only)"
        )
    return model


def _check_options(estimator: type, options: dict[str, Any]) -> None:
    """Scikit-learn's own message does not say which options there are."""
    known = inspect.signature(estimator).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    unknown = [] if takes_any else [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: unknown options; known are {', '.join(known) or 'none'}")


@dataclass(eq=False, repr=False)
class Members:
    """k nodes with the same kind of learner and the same view, of one world or of several."""

    learner: LearnerSettings
    nodes: Int[Tensor, "k"]
    view: Float[Tensor, "N *s"]
    classes: int
    seeds: Seeds
    build: Build = build

    def fresh(self) -> Any:
        """A model that has learned nothing yet."""
        return self.build(self.learner, tuple(self.view.shape[1:]), self.classes)


def with_named_dropout(module: nn.Module) -> nn.Module:
    """The same module with each nn.Dropout replaced by ours; parameters are untouched."""
    # One layer object may stand in several places: each gets a layer, and so masks, of its own.
    for path, child in list(module.named_modules(remove_duplicate=False)):
        if isinstance(child, nn.Dropout):
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, Dropout(child.p) if child.p > 0 else nn.Identity())
    return module
