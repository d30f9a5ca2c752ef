"""Scikit-learn classifiers as nodes: they answer like any other, and learn by refitting.

They take no gradient steps. They are fitted when a stage begins and at refresh rounds, on their labels
and, where the method has some, on pseudo-labels.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import users_fault
from lntrust.core.randomness import Seeds
from lntrust.learners.modules import Build, build
from lntrust.study.settings import LearnerSettings

_REMEMBERED = 2_000_000  # answers are remembered for datasets of at most this many probabilities
_ROWS = ("examples", "labels", "weights")
_SMALL = 2_000  # examples that are answered in one call sooner than some of them in several


def weighted_rows(
    examples: Int[ndarray, "m"], targets: Float[ndarray, "m C"], weight: Float[ndarray, "m"]
) -> tuple[Int[ndarray, "r"], Int[ndarray, "r"], Float[ndarray, "r"]]:
    """Soft targets for a learner of hard ones: one row per class with mass, weighted by that mass."""
    row, label = np.nonzero(targets > 0)
    return examples[row], label, weight[row] * targets[row, label]


class Estimators:
    """All nodes with one kind of estimator. A loop, in both backends."""

    def __init__(
        self,
        learner: LearnerSettings,
        nodes: Int[Tensor, "k"],
        view: Float[Tensor, "N *s"],
        classes: int,
        seeds: Seeds,
        build: Build = build,
    ) -> None:
        self.learner = learner
        self.nodes = nodes
        self.view = view
        self.classes = classes
        self._seeds, self._build = seeds, build
        self._world = [node // seeds.n for node in nodes.tolist()]
        self._inputs = view.detach().cpu().flatten(1).numpy()
        self._models: list[Any] = [None] * len(nodes)
        self._answers: dict[int, Float[ndarray, "N C"]] = {}  # answers since the last fit; NaN: not asked yet
        # What each was last fitted on: the whole of its state, since a fit is a function of it.
        self._fitted_on: list[tuple[ndarray, ndarray, ndarray] | None] = [None] * len(nodes)

    def fit(
        self, k: int, examples: Int[ndarray, "r"], labels: Int[ndarray, "r"], weights: Float[ndarray, "r"]
    ) -> None:
        """Fit the k-th estimator from scratch, unless it already stands on exactly this."""
        last, new = self._fitted_on[k], (examples, labels, weights)
        if last is not None and all(map(np.array_equal, last, new)):
            return
        model, node = self._build(self.learner, tuple(self.view.shape[1:]), self.classes), int(self.nodes[k])
        random_state = self._seeds.small_seed("estimators", node)
        with self._blamed(model, " must have get_params and set_params as in scikit-learn"):
            names = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]
            model.set_params(**dict.fromkeys(names, random_state))
        needs = "sample_weight, which pseudo-labels need"
        with self._blamed(model, f".fit with {needs}, fails on the {len(examples)} examples of node {node}"):
            model.fit(self._inputs[examples], labels, sample_weight=weights)
        self._models[k], self._fitted_on[k] = model, new
        self._answers.pop(k, None)

    def model(self, k: int) -> Any:
        """The k-th estimator as it was fitted last; it is never fitted again. None before."""
        return self._models[k]

    def put(self, k: int, model: Any) -> None:
        """Somebody else's fitted estimator in the k-th place."""
        self._models[k], self._fitted_on[k] = model, None
        self._answers.pop(k, None)

    def _answer(self, k: int, examples: Int[ndarray, "U"]) -> Float[ndarray, "U C"]:
        """Probabilities over all C classes. Kept until the next fit, since nothing else changes them."""
        if len(self._inputs) * self.classes > _REMEMBERED:
            return self._compute(k, examples)
        if k not in self._answers:
            self._answers[k] = np.full((len(self._inputs), self.classes), np.nan)
        known = self._answers[k]
        missing = np.unique(examples[np.isnan(known[examples, 0])])
        if len(missing):
            missing = np.arange(len(known)) if len(known) <= _SMALL else missing
            known[missing] = self._compute(k, missing)
        return np.asarray(known[examples])

    def _compute(self, k: int, examples: Int[ndarray, "U"]) -> Float[ndarray, "U C"]:
        """A class that the estimator has never seen gets 0; one never fitted knows nothing."""
        model = self._models[k]
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
        ids = examples.cpu().numpy()
        return self._tensor(np.stack([self._answer(k, ids[s]) for k, s in enumerate(self._world)]))

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
        fitted = [(k, rows) for k, rows in enumerate(self._fitted_on) if rows is not None]
        return {
            f"fit/{k}/{name}": torch.from_numpy(array)
            for k, rows in fitted
            for name, array in zip(_ROWS, rows, strict=True)
        }

    def load(self, state: dict[str, Tensor]) -> None:
        for k in range(len(self.nodes)):
            if f"fit/{k}/{_ROWS[0]}" in state:
                self.fit(k, *(state[f"fit/{k}/{name}"].cpu().numpy() for name in _ROWS))
