"""A live node's own model: a population of one that learns, and snapshots of it that answer.

Learning happens in one thread. Questions come in others, and are answered by snapshots: a snapshot never
changes, so nobody hears a model that is half a step further.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy import ndarray
from torch import Tensor, nn

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors
from lntrust.core.losses import softmax, tempered
from lntrust.core.plugins import load_object
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.world import OneNode, node_number
from lntrust.learners import Population, modules
from lntrust.learners import linear as heads
from lntrust.learners.estimators import Estimators
from lntrust.learners.training import Stack
from lntrust.learners.views import Views
from lntrust.study.settings import LearnerSettings, TrainingSettings

See = Callable[[Shaped[ndarray, "m *s"]], Float[ndarray, "m *v"]]
Answer = Callable[[Float[ndarray, "m *v"]], Float[ndarray, "m C"]]
_BUILT_IN = tuple(modules.KINDS)
_REPLACED = "replace: the model"
_AT_ONCE = 1024  # inputs that a model sees at a time
_NUMBERS = count(1)  # of models: several learners may live in one process


@dataclass(frozen=True)
class Snapshot:
    """A model as it stood at one moment."""

    version: int
    see: See
    answer: Answer

    def predict(self, x: Shaped[ndarray, "m *s"]) -> Float[ndarray, "m C"]:
        """p(x), for inputs as they travel."""
        with np.errstate(over="ignore", invalid="ignore"):  # who asks looks whether they are probabilities
            if len(x) <= _AT_ONCE:
                return self.answer(self.see(x))
            # A network takes a hundred times the memory of its inputs, and anybody may ask about many.
            pieces = (x[start : start + _AT_ONCE] for start in range(0, len(x), _AT_ONCE))
            return np.concatenate([self.answer(self.see(piece)) for piece in pieces])


class _OwnView(Views):
    """How the node's own examples look to its model."""

    def __init__(self, view: Float[Tensor, "N *v"]) -> None:
        self.device, self.dtype, self._view = view.device, view.dtype, view

    def __getitem__(self, name: str) -> Float[Tensor, "N *v"]:
        return self._view


class _One(Population):
    """The node's own model, as a population."""

    def sibling(
        self, learners: Sequence[LearnerSettings], kinds: Any, training: TrainingSettings,
        world: int | None = None,
    ) -> Population:  # fmt: skip
        """One beside it that is built as it is, whatever NODE.toml names, and draws what it draws."""
        mine = [stack.learner for stack in self.stacks]
        return _One(
            mine, np.zeros(1, dtype=np.int64), self._views, self.labels, self.classes, training, self.seeds,
            self.backend,
        )  # fmt: skip


class LiveLearner:
    """The node's model, in training. `replace` puts another in its place."""

    def __init__(self, settings: NodeSettings, data: NodeData) -> None:
        self._settings, self._data = settings, data
        self._see = _seeing(settings)
        self._view = torch.from_numpy(np.array(self._see(data.inputs)))
        self._kind: str | None = None
        self._fixed = False  # an estimator that answers as it is
        self.population = self._made(_factory(settings), f"model.kind = {settings.model.kind!r}")

    def _made(self, factory: Callable[..., Any], blamed: str) -> Population:
        # The population builds its models by name, and estimators are built anew at every fit.
        kind = f"model {next(_NUMBERS)}"
        modules.KINDS[kind] = factory
        try:
            population, fixed = self._built(LearnerSettings(name="own", kind=kind, view="own"))
        except BaseException as error:  # then the old one stays
            del modules.KINDS[kind]
            if isinstance(error, LNTrustError):
                raise LNTrustError(str(error).replace(f"learner own: kind = {kind!r}", blamed)) from None
            raise
        if self._kind is not None:
            del modules.KINDS[self._kind]
        self._kind, self._fixed = kind, fixed
        return population

    def _built(self, learner: LearnerSettings) -> tuple[Population, bool]:
        s = self._settings
        C, seeds = len(s.input.classes), OneNode((s.seed,), 1, node_number(s))
        labels = torch.from_numpy(self._data.labels)
        population = _One(
            [learner], np.zeros(1, dtype=np.int64), _OwnView(self._view), labels, C, s.training, seeds, "loop"
        )
        (stack,) = population.stacks
        if not isinstance(stack, Estimators):
            return population, False
        model = modules.build(learner, tuple(self._view.shape[1:]), C)
        fixed = not (s.model.trains and _can_be_fitted(model))
        if fixed:
            self._try(model, learner, C)
            stack.put(0, model)
        return population, fixed

    def _try(self, model: Any, learner: LearnerSettings, classes: int) -> None:
        """One that is never fitted must know something already."""
        try:
            _estimated(model, self._view[:1].numpy(), classes)
        except Exception as error:  # the model is the user's, and may fail in any way
            why = f"{type(error).__name__}: {error}"
            raise LNTrustError(
                f"learner own: kind = {learner.kind!r} cannot answer as it is: {why}"
            ) from None

    @property
    def refits(self) -> bool:
        """Whether the model learns by being fitted again, on labels and pseudo-labels."""
        return isinstance(self.population.stacks[0], Estimators) and not self._fixed

    @contextmanager
    def replacing(self, model: Any) -> Iterator[None]:
        """Another model from now on; if what is done inside fails, the old one is in its place again."""
        before = (self.population, self._kind, self._fixed)
        factory = None if self._kind is None else modules.KINDS[self._kind]
        self.replace(model)
        try:
            yield
        except BaseException:
            if self._kind is not None:
                modules.KINDS.pop(self._kind, None)
            self.population, self._kind, self._fixed = before
            if self._kind is not None and factory is not None:
                modules.KINDS[self._kind] = factory
            raise

    def close(self) -> None:
        """Forget how its model is built."""
        if self._kind is not None:
            modules.KINDS.pop(self._kind, None)

    def replace(self, model: Any) -> None:
        """Another model from now on: a module with its parameters, or an estimator, which is fitted."""
        if isinstance(model, nn.Module):
            self.population = self._made(
                lambda *_: _prepared(copy.deepcopy(model), self._settings, None), _REPLACED
            )
        elif hasattr(model, "predict_proba"):
            from sklearn.base import clone

            learns = self._settings.model.trains and _can_be_fitted(model)
            self.population = self._made(lambda *_: clone(model) if learns else model, _REPLACED)
        else:
            raise LNTrustError(
                f"replace: {type(model).__name__} is neither a torch nn.Module nor has it predict_proba"
            )

    def load(self, tensors: dict[str, Tensor], same_data: bool) -> None:
        """As it was. An estimator is kept as the rows it was fitted on: with other data it is fitted anew."""
        self.population.load({n: t for n, t in tensors.items() if same_data or "/fit/" not in n})

    @property
    def takes_steps(self) -> bool:
        """Whether the model learns by gradient steps."""
        return not isinstance(self.population.stacks[0], Estimators)

    def snapshot(self, version: int) -> Snapshot:
        (stack,), temperature = self.population.stacks, self.population.temperature
        if isinstance(stack, Estimators):
            model, classes = stack.model(0), self.population.classes
            answer: Answer = lambda x: _estimated(model, x, classes)  # noqa: E731
        else:
            answer = _answering(stack)
        return Snapshot(version, self._see, _told(answer, temperature))


def _seeing(settings: NodeSettings) -> See:
    """From inputs as they travel to what the model sees: scaled, then the user's view."""
    scale, name = settings.model.scale, settings.model.view
    function = None if name is None else load_object(name, "model.view")
    dtype = np.dtype(settings.training.precision)

    def see(x: Shaped[ndarray, "m *s"]) -> Float[ndarray, "m *v"]:
        seen = x.astype(dtype, copy=False)
        if scale != 1.0:
            seen = seen * dtype.type(scale)
        if function is None:
            return seen
        out = np.asarray(function(_tensor(seen)), dtype=dtype)
        if len(out) != len(seen):
            raise LNTrustError(f"model.view = {name!r}: made {len(out)} rows of {len(seen)} inputs")
        return out

    return see


def _tensor(x: Shaped[ndarray, "m *s"]) -> Shaped[Tensor, "m *s"]:
    """A copy: what came over the wire cannot be written to, and a model may work in place."""
    return torch.from_numpy(np.array(x))


def _factory(settings: NodeSettings) -> Callable[..., Any]:
    """What NODE.toml names under [model]."""
    learner, weights = settings.learner, settings.model.weights
    if ":" not in learner.kind and learner.kind not in _BUILT_IN:
        raise LNTrustError(
            f"model.kind = {learner.kind!r}: must be one of {', '.join(_BUILT_IN)}, or package.module:factory"
        )

    def make(input_shape: tuple[int, ...], classes: int) -> Any:
        model = modules.build(learner, input_shape, classes)
        return _prepared(model, settings, weights) if isinstance(model, nn.Module) else model

    return make


def _prepared(module: nn.Module, settings: NodeSettings, weights: Path | None) -> nn.Module:
    """With the parameters of a file, if one is named; and frozen, if the model shall learn nothing."""
    if weights is not None:
        tensors, _ = read_tensors(weights)
        try:
            module.load_state_dict(tensors)
        except RuntimeError as error:
            raise LNTrustError(f"model.weights = {weights}: does not fit the model: {error}") from None
    if settings.model.trains:
        return module
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


def _can_be_fitted(model: Any) -> bool:
    return hasattr(model, "fit") and hasattr(model, "get_params")


def _told(answer: Answer, temperature: Float[Tensor, "1"] | None) -> Answer:
    """As it is told to others: in float32, and no surer of itself than the model may be."""
    T = None if temperature is None else temperature.clone()  # the next refresh sets another

    def told(x: Float[ndarray, "m *v"]) -> Float[ndarray, "m C"]:
        p = answer(x)
        if T is not None:
            exact = torch.from_numpy(p).to(T.dtype)
            p = tempered(exact, T.expand(len(exact))).numpy()
        return p.astype(np.float32, copy=False)

    return told


def _answering(stack: Stack) -> Answer:
    """A torch model of its own: parameters are copied, so that learning goes on without it."""
    state = {name: t[0].clone() for name, t in {**stack.params, **stack.buffers}.items()}
    if stack.is_head:
        weight, bias = state[heads.WEIGHT].numpy(), state[heads.BIAS].numpy()
        return lambda x: _head(weight, bias, x.reshape(len(x), weight.shape[1]))
    module = copy.deepcopy(stack.skeleton).eval().requires_grad_(False)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if name in state:
            tensor.copy_(state[name])

    def answer(x: Float[ndarray, "m *v"]) -> Float[ndarray, "m C"]:
        with torch.no_grad():
            p = softmax(module(_tensor(x)))
            return p.to(torch.promote_types(p.dtype, torch.float32)).numpy()  # numpy has no bfloat16

    return answer


def _head(
    weight: Float[ndarray, "C d"], bias: Float[ndarray, "C"], x: Float[ndarray, "m d"]
) -> Float[ndarray, "m C"]:
    """softmax(Wx + b), in numpy: to a node that wakes up for one question torch is four times slower."""
    z: Float[ndarray, "m C"] = x @ weight.T
    z += bias
    z -= z.max(1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(1, keepdims=True)
    return z


def _estimated(model: Any, x: Float[ndarray, "m *v"], classes: int) -> Float[ndarray, "m C"]:
    """Probabilities over all C classes: 0 for one that it has never seen; one never fitted knows nothing."""
    out = np.zeros((len(x), classes))
    if model is None:
        out[:] = 1.0 / classes
    elif len(x):
        out[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(x.reshape(len(x), -1))
    return out
