"""Scores: all evaluated rounds in one pass over the test labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from lntrust.experiment.evaluation import test_inputs
from lntrust.world import World

Predictions = dict[str, Int[ndarray, "n U"]]  # "self", "deployed", "variant/NAME"


@dataclass(frozen=True)
class Score:
    """Per node: accuracy on its own test set (NaN if that is empty), and on the union of all."""

    own: Float[ndarray, "n"]
    pooled: Float[ndarray, "n"] | None

    @property
    def means(self) -> dict[str, float | None]:
        return {"test": mean(self.own), "test_pooled": None if self.pooled is None else mean(self.pooled)}

    @property
    def judged(self) -> Float[ndarray, "n"]:
        """What single nodes are judged by: pooled where there is such a score."""
        return self.own if self.pooled is None else self.pooled


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
        counts = np.zeros((self._world.n, len(self._world.classes)))
        for lists in (p.train, p.validation, p.test):
            np.add.at(counts, (lists.owner, labels[lists.values]), 1)
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


def as_list(values: Float[ndarray, "n"] | None) -> list[float | None] | None:
    """For JSON, which has no NaN."""
    if values is None:
        return None
    return [float(v) if np.isfinite(v) else None for v in values]


def per_node(world: World, deployed: Score | None = None, own: Score | None = None) -> dict[str, Any]:
    """What a summary says of each node; without scores, its size and its favoured share."""
    p, nobody = world.partition, [None] * world.n
    return {
        "test": as_list(deployed.own) if deployed else nobody,
        "self": as_list(own.own) if own else nobody,
        "test_pooled": as_list(deployed.pooled) if deployed else nobody,
        "self_pooled": as_list(own.pooled) if own else nobody,
        "size": (p.train.lengths + p.validation.lengths + p.test.lengths).tolist(),
        "favoured_share": as_list(p.favoured_share),
    }


def summarise(
    world: World, rounds: dict[int, Predictions], stage1: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary of the last round, and one row per evaluated round. Reads the test labels."""
    examiner = Examiner(world)
    rows: list[dict[str, Any]] = []
    final: dict[str, Score] = {}
    for number, predictions in sorted(rounds.items()):
        final = {name: examiner.score(p) for name, p in predictions.items()}
        test, own = final["deployed"].means, final["self"].means
        scores = {"test": test["test"], "self": own["test"]}
        pooled = {"test_pooled": test["test_pooled"], "self_pooled": own["test_pooled"]}
        rows.append({"round": number, **scores, **pooled})
    last = rows[-1]
    judged, alone = final["deployed"].judged, final["self"].judged
    finite = np.isfinite(judged)
    tests = [row["test"] for row in rows if row["test"] is not None and row["round"] > stage1]
    variants = {name: score.means for name, score in final.items() if name.startswith("variant/")}
    summary = {
        **{name: score for name, score in last.items() if name != "round"},
        "stage1": next((row["self"] for row in rows if row["round"] == stage1 > 0), None),
        "p10": float(np.percentile(judged[finite], 10)) if finite.any() else None,
        "harmed": float((judged < alone)[finite].mean()) if finite.any() else None,
        "best_neighbor_oracle": examiner.best_neighbour(rounds[last["round"]]["self"]),
        "best_round_test_selected": max(tests, default=last["test"]),
        "variants": {name.removeprefix("variant/"): means for name, means in variants.items()},
        "per_node": per_node(world, final["deployed"], final["self"]),
    }
    return summary, rows
