"""Scikit-learn classifiers as nodes: they answer like any other, and learn by refitting.

They take no gradient steps. They are fitted when a stage begins and at refresh rounds, on their labels
and, where the method has some, on pseudo-labels.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import users_fault
from lntrust.learners.modules import Members

_REMEMBERED = 2_000_000  # answers are remembered for datasets of at most this many probabilities
_ROWS = ("examples", "labels", "weights")
_SMALL = 2_000  # examples that are answered in one call sooner than some of them in several


def weighted_rows(
    examples: Int[ndarray, "m"], targets: Float[ndarray, "m C"], weight: Float[ndarray, "m"]
) -> tuple[Int[ndarray, "r"], Int[ndarray, "r"], Float[ndarray, "r"]]:
    """Soft targets for a learner of hard ones: one row per class with mass, weighted by that mass."""
    row, label = np.nonzero(targets > 0)
    return examples[row], label, weight[row] * targets[row, label]


@dataclass
class _Fitted:
    model: Any = None
    # What it was fitted on: the whole of its state, since a fit is a function of it.
    rows: tuple[ndarray, ndarray, ndarray] | None = None
    answers: Float[ndarray, "N C"] | None = None  # NaN: not asked yet


@dataclass(eq=False, repr=False)
class Estimators(Members):
    """All nodes with one kind of estimator. A loop, in both backends."""

    def __post_init__(self) -> None:
        self._inputs = self.view.detach().cpu().flatten(1).numpy()
        self._fitted = [_Fitted() for _ in self.nodes]

    def fit(
        self, k: int, examples: Int[ndarray, "r"], labels: Int[ndarray, "r"], weights: Float[ndarray, "r"]
    ) -> None:
        """Fit the k-th estimator from scratch, unless it already stands on exactly this."""
        last, new = self._fitted[k].rows, (examples, labels, weights)
        if last is not None and all(map(np.array_equal, last, new)):
            return
        model, node = self.fresh(), int(self.nodes[k])
        random_state = self.seeds.small_seed("estimators", node)
        with self._blamed(model, " must have get_params and set_params as in scikit-learn"):
            names = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]
            model.set_params(**dict.fromkeys(names, random_state))
        needs = "sample_weight, which pseudo-labels need"
        with self._blamed(model, f".fit with {needs}, fails on the {len(examples)} examples of node {node}"):
            model.fit(self._inputs[examples], labels, sample_weight=weights)
        self._fitted[k] = _Fitted(model, new)

    def model(self, k: int) -> Any:
        """The k-th estimator as it was fitted last; it is never fitted again. None before."""
        return self._fitted[k].model

    def put(self, k: int, model: Any) -> None:
        """Somebody else's fitted estimator in the k-th place."""
        self._fitted[k] = _Fitted(model)

    def _answer(self, k: int, examples: Int[ndarray, "U"]) -> Float[ndarray, "U C"]:
        """Probabilities over all C classes. Kept until the next fit, since nothing else changes them."""
        fitted, shape = self._fitted[k], (len(self._inputs), self.classes)
        if prod(shape) > _REMEMBERED:
            return self._compute(fitted.model, examples)
        known = fitted.answers = np.full(shape, np.nan) if fitted.answers is None else fitted.answers
        missing = np.unique(examples[np.isnan(known[examples, 0])])
        if len(missing):
            missing = np.arange(len(known)) if len(known) <= _SMALL else missing
            known[missing] = self._compute(fitted.model, missing)
        return np.asarray(known[examples])

    def _compute(self, model: Any, examples: Int[ndarray, "U"]) -> Float[ndarray, "U C"]:
        """A class that the estimator has never seen gets 0; one never fitted knows nothing."""
        out = np.zeros((len(examples), self.classes))
        if model is None:
            out[:] = 1.0 / self.classes
        elif len(examples):
            with self._blamed(model, " must have classes_ and predict_proba as in scikit-learn"):
                seen = np.asarray(model.classes_, dtype=np.int64)
                said = np.asarray(model.predict_proba(self._inputs[examples]))
                if said.shape != (shape := (len(examples), len(seen))):  # numpy would spread it
                    raise ValueError(f"probabilities are {list(said.shape)}; must be {list(shape)}")
                out[:, seen] = said
        return out

    @contextmanager
    def _blamed(self, model: Any, wrong: str) -> Iterator[None]:
        """What goes wrong in here is the model's doing, whoever has written it."""
        try:
            yield
        except LNTrustError:
            raise
        except Exception as error:
            why = users_fault(error) or f"{type(error).__name__}: {error}"
            raise LNTrustError(
                f"learner {self.learner.name}: {type(model).__name__}{wrong}: {why}"
            ) from error

    def predict_all(self, examples: Int[Tensor, "worlds U"]) -> Float[Tensor, "k U C"]:
        return self.predict_own(examples[self.nodes // self.seeds.n])

    def predict_own(self, examples: Int[Tensor, "k B"]) -> Float[Tensor, "k B C"]:
        return self._tensor(np.stack([self._answer(k, ids) for k, ids in enumerate(examples.cpu().numpy())]))

    def asked(
        self, member: Int[Tensor, "P"], examples: Int[Tensor, "P"]
    ) -> Callable[[], Float[Tensor, "P C"]]:
        """p_j(x) for (member, example) pairs, sorted by member: told at each call."""
        counts = torch.bincount(member, minlength=len(self.nodes)).tolist()
        lists = [ids.numpy() for ids in torch.split(examples.cpu(), counts)]
        return lambda: self._tensor(np.concatenate([self._answer(k, ids) for k, ids in enumerate(lists)]))

    def _tensor(self, answers: Float[ndarray, "*s"]) -> Float[Tensor, "*s"]:
        return torch.from_numpy(answers).to(self.view.device, self.view.dtype)

    def state(self) -> dict[str, Tensor]:
        """The training set of every fitted estimator: no pickles, a load fits again."""
        return {
            f"fit/{k}/{name}": torch.from_numpy(array)
            for k, fitted in enumerate(self._fitted)
            for name, array in zip(_ROWS, fitted.rows or (), strict=False)
        }

    def load(self, state: dict[str, Tensor]) -> None:
        for k in range(len(self.nodes)):
            if f"fit/{k}/{_ROWS[0]}" in state:
                self.fit(k, *(state[f"fit/{k}/{name}"].cpu().numpy() for name in _ROWS))
