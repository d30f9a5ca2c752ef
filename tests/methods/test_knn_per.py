"""kNN-Per: a node's model, mixed with its nearest labelled examples."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from small_runs import ALONE, FORESTS, MIXED, TRAIN_ONLY, all_tested, assert_same, ended, made, shared_end
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.knn_per import NEAREST, WEIGHTS, Store

METHOD = "knn_per"


def sets(**settings: object) -> list[str]:
    return [f"methods.knn_per.{name}={value}" for name, value in settings.items()]


def nearest(one: Run, i: int, k: int, ids: Tensor, scale: float = 1.0) -> np.ndarray:
    """Scikit-learn's answer, from what node i trains on, as it sees it."""
    learner = one.study.population.learners[one.world.kinds[i]]
    view = one.views[learner.view].flatten(1).double().numpy()
    own = one.world.partition.train[i]
    model = KNeighborsClassifier(
        min(k, len(own)), weights=lambda d: np.exp(-np.square(d) / (scale * view.shape[1]))
    )
    p = np.zeros((len(ids), 10))
    model.fit(view[own], one.world.labels[own])
    p[:, model.classes_] = model.predict_proba(view[ids])
    return p


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 15), st.floats(0.05, 5))
def test_the_nearest_against_scikit_learn(seed: int, m: int, k: int, scale: float) -> None:
    """Also where there are fewer than k examples, and of inputs that are images."""
    draw = torch.Generator().manual_seed(seed)
    view = torch.randn(30, 2, 3, generator=draw, dtype=torch.float64)
    labels, known = torch.randint(4, (m,), generator=draw), torch.arange(m)
    got = Store(view, known, labels, 4).answers(torch.arange(12, 30), torch.tensor([1, k]), scale)
    flat = view.flatten(1).numpy()
    for p, near in zip(got, (1, k), strict=True):
        model = KNeighborsClassifier(min(near, m), weights=lambda d: np.exp(-np.square(d) / (scale * 6)))
        theirs = np.zeros((18, 4))
        model.fit(flat[:m], labels.numpy())
        theirs[:, model.classes_] = model.predict_proba(flat[12:])
        np.testing.assert_allclose(p.numpy(), theirs, atol=1e-9)


class TestReductions:
    def test_without_weight_it_is_training_on_train_only(self, views: Views) -> None:
        (one, got), (plain, trained) = (
            ended(views, MIXED, *sets(weight=0), method=m) for m in (METHOD, TRAIN_ONLY)
        )
        assert got["per_node"] == trained["per_node"]
        assert got["bytes"] == trained["bytes"]
        assert_same(one, plain)

    @pytest.mark.parametrize("k", [1, 7, 10**6])
    def test_with_all_the_weight_it_is_the_nearest_neighbours(self, views64: Views, k: int) -> None:
        """In the node's own view, and among its own training examples: no neighbour has a part in it."""
        one = made(views64, FORESTS, *sets(weight=1, k=k, scale=0.5), method=METHOD)
        x, stored = all_tested(one), one.course.evaluations[0][one.rounds]["deployed"]
        for i in range(6):
            p = nearest(one, i, k, x, 0.5)
            clear = np.diff(np.sort(p, 1)[:, -2:], axis=1)[:, 0] > 1e-9
            assert clear.mean() > 0.8
            assert (stored[i] == p.argmax(1))[clear].all()

    def test_one_node_is_as_many(self, views: Views) -> None:
        """It needs nobody."""
        one, summary = ended(views, *ALONE, MIXED, method=METHOD)
        assert summary["bytes"]["total"] == summary["bytes"]["per_deployed_query"] == 0
        assert summary["method_report"].keys() == {"weight", "k"}
        assert len(one.state["k"]) == 1


def test_what_it_has_chosen_does_best_on_its_validation_examples(views64: Views) -> None:
    one, summary = shared_end(views64, MIXED, method=METHOD)
    report, V = summary["method_report"], one.world.partition.validation
    for i in range(6):
        ids = torch.from_numpy(V[i].copy())
        own, labels = one.population.predict_all(ids)[i].numpy(), one.world.labels[V[i]]
        loss = {}
        for weight, k in product(WEIGHTS, NEAREST):
            q = (1 - weight) * own + weight * nearest(one, i, k, ids)
            loss[weight, k] = -np.log(q[np.arange(len(ids)), labels].clip(0.01)).mean()
        assert loss[round(report["weight"][i], 1), report["k"][i]] == pytest.approx(min(loss.values()))
    assert len(set(report["weight"])) > 1


def test_it_costs_nothing_and_trains_on_no_validation_label(views64: Views) -> None:
    one, summary = shared_end(views64, MIXED, method=METHOD)
    plain, trained = shared_end(views64, MIXED, method=TRAIN_ONLY)
    assert_same(one, plain)
    assert summary["per_node"]["self"] == trained["per_node"]["self"]
    assert summary["per_node"]["test"] != trained["per_node"]["test"]
    assert summary["bytes"]["total"] == summary["bytes"]["per_deployed_query"] == 0
