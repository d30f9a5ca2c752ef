"""Scores: all evaluated rounds in one pass over the test labels."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from lntrust.experiment.evaluation import test_inputs
from lntrust.world import World
from lntrust.world.partition.splits import class_table

Predictions = dict[str, Int[ndarray, "n U"]]  # "self", "deployed", "variant/NAME"


@dataclass(frozen=True)
class Score:
    """Per node: accuracy on its own test set (NaN if that is empty), and on the union of all."""

    own: Float[ndarray, "n"]
    pooled: Float[ndarray, "n"] | None

    @property
    def means(self) -> dict[str, float | None]:
        return {"test": mean(self.own), "test_pooled": None if self.pooled is None else mean(self.pooled)}

    def judged(self, by: str) -> Float[ndarray, "n"]:
        """What single nodes are judged by: pooled where there is such a score and it asks what is theirs."""
        return self.own if self.pooled is None or judged_on_own_tests(by) else self.pooled


def judged_on_own_tests(by: str) -> bool:
    """Whether nodes are places or people: the pooled score asks them about other places and people.

    With label skew a class looks alike everywhere, and the union of all test sets only takes away noise.
    """
    return by in ("region", "subject")


class Examiner:
    """Opens the test labels, once, and scores what was stored."""

    def __init__(self, world: World) -> None:
        self._world = world
        ids = test_inputs(world)
        self._labels = world.sealed.open(ids)
        test = world.partition.test
        self._owner = test.owner
        self._place = np.searchsorted(ids, test.values)  # where each node's test examples stand in ids
        study = world.study
        self._pools = study.evaluation.pooled and study.partition.draws == "disjoint"
        self._distribution = self._class_distribution(ids)

    def score(self, predicted: Int[ndarray, "n U"]) -> Score:
        right = predicted == self._labels
        return Score(self._own(right), self._pooled(right) if self._pools else None)

    def _own(self, right: Bool[ndarray, "n U"]) -> Float[ndarray, "n"]:
        total = np.bincount(self._owner, minlength=self._world.n)
        hits = np.bincount(self._owner, right[self._owner, self._place], self._world.n)
        return np.asarray(hits / np.where(total, total, np.nan))

    def _class_distribution(self, ids: Int[ndarray, "U"]) -> Float[ndarray, "n C"]:
        """P_i: as the study made it, or else counted over all that the node was given.

        Not w_i: that is counted on what the node trained on, so a class it happened to get none of
        would weigh nothing, and every small node would look better than it is.
        """
        p = self._world.partition
        if p.drawn_from is not None:
            return p.drawn_from
        labels = self._world.labels.copy()
        labels[ids] = self._labels
        held = p.train.joined(p.validation).joined(p.test)
        counts = class_table(held, labels, len(self._world.classes))
        return np.asarray(counts / counts.sum(1, keepdims=True))

    def _pooled(self, right: Bool[ndarray, "n U"]) -> Float[ndarray, "n"]:
        """Σ_c P_i(c) · accuracy on class c of the union; classes without test examples are left out."""
        w = self._distribution
        one_hot = np.eye(w.shape[1])[self._labels]
        count = one_hot.sum(0)
        per_class = (right.astype(np.float64) @ one_hot) / np.maximum(count, 1)
        weight = w * (count > 0)
        total = weight.sum(1)
        return np.asarray((weight * per_class).sum(1) / np.where(total > 0, total, np.nan))

    def best_neighbour(self, predicted: Int[ndarray, "n U"]) -> float | None:
        """An oracle: the best single model of each closed neighbourhood on the node's own test set."""
        right = predicted == self._labels
        best = self._own(right)
        for asker, answerer in self._world.edges:
            mine = self._owner == asker
            if mine.any():
                best[asker] = max(best[asker], right[answerer, self._place[mine]].mean())
        return mean(best)


def mean(values: Float[ndarray, "n"]) -> float | None:
    """Mean over the nodes that have a value; none if no node has."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def finite(value: Any) -> Any:
    """The same with None in the place of every number that JSON has not.

    >>> finite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scores(score: dict[str, Score], by: Callable[[Float[ndarray, "n"]], Any] = mean) -> dict[str, Any]:
    """What is said of deployed answers, and of the nodes' own."""
    test, own = score["deployed"], score["self"]
    of = {"test": test.own, "self": own.own, "test_pooled": test.pooled, "self_pooled": own.pooled}
    return {name: None if values is None else by(values) for name, values in of.items()}


def summarise(
    world: World, rounds: dict[int, Predictions], stage1: int, diverged: int | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary of the last round, and one row per evaluated round. Reads the test labels.

    Of a run that diverged in some round: the rows before it, and no scores.
    """
    examiner, p = Examiner(world), world.partition
    rows: list[dict[str, Any]] = []
    final: dict[str, Score] = {}
    for number, predictions in sorted(rounds.items()):
        if diverged is None or number < diverged:
            final = {name: examiner.score(each) for name, each in predictions.items()}
            rows.append({"round": number, **_scores(final)})
    counted = rows
    if diverged is not None:
        nothing = np.full(world.n, np.nan)
        counted, final = [], dict.fromkeys(("deployed", "self"), Score(nothing, nothing))
    judged, alone = (final[name].judged(world.study.partition.by) for name in ("deployed", "self"))
    known = np.isfinite(judged)
    tests = [row["test"] for row in counted if row["test"] is not None and row["round"] > stage1]
    summary = {
        **_scores(final),
        "stage1": next((row["self"] for row in counted if row["round"] == stage1 > 0), None),
        "p10": float(np.percentile(judged[known], 10)) if known.any() else None,
        "harmed": float((judged < alone)[known].mean()) if known.any() else None,
        "best_neighbor_oracle": examiner.best_neighbour(rounds[max(rounds)]["self"]) if counted else None,
        "best_round_test_selected": max(tests, default=mean(final["deployed"].own)),
        "variants": {name.partition("/")[2]: score.means for name, score in final.items() if "/" in name},
        "per_node": {
            **_scores(final, lambda values: finite(values.tolist())),
            "size": (p.train.lengths + p.validation.lengths + p.test.lengths).tolist(),
            "favoured_share": finite(p.favoured_share.tolist()),
        },
    }
    return summary, rows
