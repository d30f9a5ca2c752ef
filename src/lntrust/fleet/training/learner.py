"""A live node's own model: a population of one that learns, and snapshots of it that answer.

Learning happens in one thread. Questions come in others, and are answered by snapshots: a snapshot never
changes, so nobody hears a model that is half a step further.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy import ndarray
from torch import Tensor, nn

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors
from lntrust.core.losses import softmax
from lntrust.core.plugins import load_object
from lntrust.fleet.logs import why
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.world import OneNode, node_number
from lntrust.learners import Population, modules
from lntrust.learners import linear as heads
from lntrust.learners.estimators import Estimators
from lntrust.learners.modules import Build
from lntrust.learners.population import PseudoLabels
from lntrust.learners.training import Stack
from lntrust.learners.views import Views
from lntrust.study.settings import LearnerSettings
from lntrust.world import Ragged

See = Callable[[Shaped[ndarray, "m *s"]], Float[ndarray, "m *v"]]
Answer = Callable[[Float[ndarray, "m *v"]], Float[ndarray, "m C"]]
_AT_ONCE = 1024  # inputs that a model sees at a time


@dataclass(frozen=True)
class Snapshot:
    """A model as it stood at one moment."""

    version: int
    see: See
    answer: Answer

    def predict(self, x: Shaped[ndarray, "m *s"]) -> Float[ndarray, "m C"]:
        """p(x), for inputs as they travel."""
        with np.errstate(over="ignore", invalid="ignore"):  # who asks looks whether they are probabilities
            # A network takes a hundred times the memory of its inputs, and anybody may ask about many.
            starts = range(0, max(1, len(x)), _AT_ONCE)
            return np.concatenate([self.answer(self.see(x[i : i + _AT_ONCE])) for i in starts])


class OwnView(Views):
    """How the node's own examples look to its model: the one view there is, by any name."""

    def __init__(self, view: Float[Tensor, "N *v"]) -> None:
        self.device, self.dtype, self._view = view.device, view.dtype, view

    def __getitem__(self, name: str) -> Float[Tensor, "N *v"]:
        return self._view


class LiveLearner:
    """The node's model, in training."""

    def __init__(self, settings: NodeSettings, data: NodeData) -> None:
        self._settings, self._data = settings, data
        view = settings.model.view
        self._function = None if view is None else load_object(view, "model.view")
        self._view = OwnView(torch.from_numpy(np.array(self._see(data.inputs))))
        self._make(settings.learner, self._as_in_settings, f"model.kind = {settings.model.kind!r}")

    def replaced(self, model: Any) -> Self:
        """With another model: a module with its parameters, or an estimator, which is fitted."""
        if not isinstance(model, nn.Module) and not hasattr(model, "predict_proba"):
            wanted = "is neither a torch nn.Module nor has it predict_proba"
            raise LNTrustError(f"replace: {type(model).__name__} {wanted}")
        other, given = copy.copy(self), LearnerSettings(name="own", kind="model", view="own")
        other._make(given, lambda *_: self._copied(model), "replace: the model")
        return other

    def _make(self, learner: LearnerSettings, build: Build, blamed: str) -> None:
        """A population of one model; an error names the owner's words."""
        s, labels = self._settings, torch.from_numpy(self._data.labels)
        C, seeds = len(s.input.classes), OneNode((s.seed,), 1, node_number(s))
        made_of = ([learner], np.zeros(1, dtype=np.int64), self._view, labels, C, s.training, seeds)
        try:
            self.population = Population(*made_of, "loop", build=build)
        except LNTrustError as error:
            field = f"learner {learner.name}: kind = {learner.kind!r}"
            raise LNTrustError(str(error).replace(field, blamed)) from None
        (stack,) = self.population.stacks
        self._fixed = False  # whether it is an estimator that answers as it is
        if isinstance(stack, Estimators):
            model = build(learner, tuple(stack.view.shape[1:]), C)
            self._fixed = not self._can_be_fitted(model)
            if self._fixed:
                try:
                    _estimated(model, stack.view[:1].numpy(), C)
                except Exception as error:  # the model is the user's, and may fail in any way
                    raise LNTrustError(f"{blamed} cannot answer as it is: {why(error)}") from None
                stack.put(0, model)

    def _can_be_fitted(self, model: Any) -> bool:
        return self._settings.model.trains and hasattr(model, "fit") and hasattr(model, "get_params")

    def _as_in_settings(self, learner: LearnerSettings, input_shape: tuple[int, ...], classes: int) -> Any:
        """What NODE.toml names under [model], with its weights."""
        model, weights = modules.build(learner, input_shape, classes), self._settings.model.weights
        if not isinstance(model, nn.Module):
            return model
        if weights is not None:
            try:
                model.load_state_dict(read_tensors(weights)[0])
            except RuntimeError as error:
                raise LNTrustError(f"model.weights = {weights}: does not fit the model: {error}") from None
        return model if self._settings.model.trains else _still(model)

    def _copied(self, model: Any) -> Any:
        """A copy of a model that the owner has put in: the owner's own stays as it is."""
        try:
            if isinstance(model, nn.Module):
                copied = copy.deepcopy(model)
                return copied if self._settings.model.trains else _still(copied)
            from sklearn.base import clone

            return clone(model) if self._can_be_fitted(model) else model
        except (TypeError, ValueError, RuntimeError) as error:
            raise LNTrustError(f"replace: the model cannot be copied: {error}") from None

    def _see(self, x: Shaped[ndarray, "m *s"]) -> Float[ndarray, "m *v"]:
        """From inputs as they travel to what the model sees: scaled, then the user's view."""
        model, dtype = self._settings.model, np.dtype(self._settings.training.precision)
        seen = x.astype(dtype, copy=False)
        if model.scale != 1.0:
            seen = seen * dtype.type(model.scale)
        if self._function is None:
            return seen
        out = np.asarray(self._function(_tensor(seen)), dtype=dtype)
        if len(out) != len(seen):
            raise LNTrustError(f"model.view = {model.view!r}: made {len(out)} rows of {len(seen)} inputs")
        return out

    def refit(self, labelled: Ragged, pseudo: PseudoLabels | None = None) -> None:
        """Fit an estimator again, on labels and pseudo-labels. Others learn by steps, or nothing."""
        if not self._fixed:
            self.population.refit(labelled, pseudo)

    def load(self, tensors: dict[str, Tensor], same_data: bool) -> None:
        """As it was. An estimator is kept as the rows it was fitted on: with other data it is fitted anew."""
        self.population.load({n: t for n, t in tensors.items() if same_data or "/fit/" not in n})

    def snapshot(self, version: int) -> Snapshot:
        (stack,) = self.population.stacks
        if isinstance(stack, Estimators):
            answer: Answer = partial(_estimated, stack.model(0), classes=self.population.classes)
        else:
            answer = _answering(stack)
        return Snapshot(version, self._see, lambda x: answer(x).astype(np.float32, copy=False))


def _tensor(x: Shaped[ndarray, "m *s"]) -> Shaped[Tensor, "m *s"]:
    """A copy: what came over the wire cannot be written to, and a model may work in place."""
    return torch.from_numpy(np.array(x))


def _still(module: nn.Module) -> nn.Module:
    """The same module, which learns nothing."""
    module.requires_grad_(False)
    return _Still(module) if any(True for _ in module.buffers()) else module


class _Still(nn.Module):
    """A module that never trains: batch normalisation would go on counting what it sees."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.eval()

    def train(self, mode: bool = True) -> Self:
        return super().train(False)

    def forward(self, x: Float[Tensor, "m *v"]) -> Float[Tensor, "m C"]:
        out: Tensor = self.module(x)
        return out


def _answering(stack: Stack) -> Answer:
    """A torch model of its own: parameters are copied, so that learning goes on without it."""
    state = {name: t[0].clone() for name, t in {**stack.params, **stack.buffers}.items()}
    if stack.is_head:  # in numpy: to a node that wakes up for one question torch is four times slower
        weight, bias = state[heads.WEIGHT].numpy(), state[heads.BIAS].numpy()
        return lambda x: _softmax(x.reshape(len(x), weight.shape[1]) @ weight.T + bias)
    module = copy.deepcopy(stack.skeleton).eval().requires_grad_(False)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if name in state:
            tensor.copy_(state[name])

    def answer(x: Float[ndarray, "m *v"]) -> Float[ndarray, "m C"]:
        with torch.no_grad():
            p = softmax(module(_tensor(x)))
            return p.to(torch.promote_types(p.dtype, torch.float32)).numpy()  # numpy has no bfloat16

    return answer


def _softmax(z: Float[ndarray, "m C"]) -> Float[ndarray, "m C"]:
    """Scipy's looks up its array library at every call."""
    e: Float[ndarray, "m C"] = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _estimated(model: Any, x: Float[ndarray, "m *v"], classes: int) -> Float[ndarray, "m C"]:
    """Probabilities over all C classes: 0 for one that it has never seen; one never fitted knows nothing."""
    out = np.zeros((len(x), classes))
    if model is None:
        out[:] = 1.0 / classes
    elif len(x):
        out[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(x.reshape(len(x), -1))
    return out
