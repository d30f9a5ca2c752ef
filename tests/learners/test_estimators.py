"""Scikit-learn classifiers as nodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from toy import CLASSES, DATASET, LABELS, everything, learner, lists, population

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import small_seed
from lntrust.learners import Population
from lntrust.learners.estimators import Estimators
from lntrust.learners.modules import build
from lntrust.learners.population import PseudoLabels
from lntrust.world import Ragged


def only(nodes: Population) -> Estimators:
    (stack,) = nodes.stacks
    assert isinstance(stack, Estimators)
    return stack


def fitted(nodes: Population) -> list[Any]:
    return [only(nodes).model(k) for k in range(nodes.n)]


def of_classes(*classes: int, count: int = 20) -> np.ndarray:
    return np.flatnonzero(np.isin(DATASET.labels, classes))[:count]


# -- answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["flat", "image"])
def test_before_any_fit_it_knows_nothing_and_is_saved_as_nothing(view: str) -> None:
    nodes = population(learner("forest", view=view), n=2)
    answers = nodes.predict_all(everything())
    assert torch.equal(answers, torch.full_like(answers, 1 / CLASSES))
    assert nodes.state() == {}
    nodes.load({})
    nodes.refit(lists(2))  # images are flattened
    assert not torch.equal(nodes.predict_all(everything()), answers)


def test_classes_it_never_saw_get_nothing_and_the_others_their_own_columns() -> None:
    nodes = population("forest", n=3)
    seen = [(1, 3), (0, 2), (2,)]
    nodes.refit(Ragged.of([of_classes(*classes) for classes in seen]))
    answers = nodes.predict_all(everything())
    torch.testing.assert_close(answers.sum(-1), torch.ones(3, len(everything()), dtype=torch.float64))
    for i, classes in enumerate(seen):
        unseen = [c for c in range(CLASSES) if c not in classes]
        assert (answers[i][:, unseen] == 0).all()
        ids = of_classes(*classes)
        assert (answers[i, ids].argmax(-1) == LABELS[ids]).double().mean() > 0.8


# -- fitting ------------------------------------------------------------------------------------------


def test_a_refit_on_the_same_data_does_nothing() -> None:
    nodes = population("forest", n=2)
    nodes.refit(lists(2))
    models = fitted(nodes)
    nodes.refit(lists(2))
    assert all(a is b for a, b in zip(models, fitted(nodes), strict=True))
    nodes.refit(Ragged.of([lists(2)[0], lists(2)[1][:-1]]))
    assert [a is b for a, b in zip(models, fitted(nodes), strict=True)] == [True, False]


def test_a_soft_target_is_a_row_for_each_class() -> None:
    """¼ class 1, ¾ class 2, at weight w: the same fit as hard rows of weights w/4 and 3w/4."""
    nodes = population("sklearn.naive_bayes:GaussianNB", n=1)
    own, more = of_classes(0), of_classes(1, 2)
    soft = torch.zeros(len(more), CLASSES)
    soft[:, 1], soft[:, 2] = 0.25, 0.75
    weight = torch.linspace(0.5, 1.5, len(more), dtype=torch.float64)
    nodes.refit(Ragged.of([own]), PseudoLabels(Ragged.of([more]), soft, weight))
    twin = population("sklearn.naive_bayes:GaussianNB", n=1)
    only(twin).fit(
        0,
        np.concatenate([own, more, more]),
        np.concatenate([DATASET.labels[own], np.full(len(more), 1), np.full(len(more), 2)]),
        np.concatenate([np.ones(len(own)), 0.25 * weight.numpy(), 0.75 * weight.numpy()]),
    )
    torch.testing.assert_close(nodes.predict_all(everything()), twin.predict_all(everything()))


def test_every_node_gets_its_own_pseudo_labels() -> None:
    nodes = population("sklearn.naive_bayes:GaussianNB", n=2)
    own, more = of_classes(0), [of_classes(1), of_classes(2, count=7)]
    targets = torch.eye(CLASSES)[torch.from_numpy(DATASET.labels[np.concatenate(more)])]
    nodes.refit(Ragged.of([own] * 2), PseudoLabels(Ragged.of(more), targets, torch.linspace(1, 2, 27)))
    models = fitted(nodes)
    counts = np.linspace(1, 2, 27)
    assert [model.classes_.tolist() for model in models] == [[0, 1], [0, 2]]
    np.testing.assert_allclose(models[0].class_count_, [20, counts[:20].sum()], rtol=1e-6)
    np.testing.assert_allclose(models[1].class_count_, [20, counts[20:].sum()], rtol=1e-6)


def test_random_states_come_from_seed_and_node() -> None:
    nodes = population("forest", n=4, kinds=[0, 0, 0, 0], seed=5)
    same = Ragged.of([of_classes(0, 1, 2)] * 4)
    nodes.refit(same)
    models = fitted(nodes)
    assert [model.random_state for model in models] == [small_seed(5, "estimators", i) for i in range(4)]
    answers = nodes.predict_all(everything())
    assert len(torch.unique(answers.flatten(1), dim=0)) == 4
    among_others = population("linear", "forest", kinds=[0, 0, 0, 1], seed=5)
    among_others.refit(same)
    assert torch.equal(among_others.predict_all(everything())[3], answers[3])


def test_a_random_state_inside_a_composite_is_set_too() -> None:
    composite = BaggingClassifier(DecisionTreeClassifier(max_features=1), n_estimators=3)
    nodes = population("forest", n=1, build=lambda *_: composite)
    nodes.refit(lists(1))
    expected = small_seed(0, "estimators", 0)
    assert only(nodes).model(0).get_params()["estimator__random_state"] == expected


def test_a_failing_fit_names_the_node() -> None:
    nodes = population(learner("sklearn.linear_model:LogisticRegression", name="mine"), n=2)
    with pytest.raises(LNTrustError, match=r"LogisticRegression\.fit .* fails on the 9 examples of node 1"):
        nodes.refit(Ragged.of([of_classes(0, 1), of_classes(2, count=9)]))


# -- of scikit-learn and of one's own ---------------------------------------------------------------------


class Model:
    """A classifier of one's own, of no library, with all that it takes."""

    classes_ = np.arange(CLASSES)

    def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray) -> "Model":
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.full((len(x), CLASSES), 1 / CLASSES)

    def get_params(self) -> dict[str, Any]:
        return {}

    def set_params(self) -> "Model":
        return self


class Named(Model):
    """One that takes any option."""

    def __init__(self, **options: Any) -> None:
        self.options = options


def test_a_class_of_scikit_learn_is_called_with_the_options_alone_and_learns() -> None:
    nodes = population(learner("sklearn.ensemble:ExtraTreesClassifier", n_estimators=20), n=2)
    held = lists(2)
    nodes.refit(held)
    got = nodes.predict_all(everything()).numpy()
    x = np.asarray(DATASET.view("flat"))
    for node, examples in enumerate(held):
        own = ExtraTreesClassifier(20, random_state=small_seed(0, "estimators", node))
        own.fit(x[examples], DATASET.labels[examples])
        np.testing.assert_allclose(got[node][:, own.classes_], own.predict_proba(x), atol=1e-12)


def test_a_class_may_take_any_option_and_a_factory_return_a_pipeline() -> None:
    assert build(learner(f"{__name__}:Named", colour="red"), (6,), CLASSES).options == {"colour": "red"}
    assert isinstance(build(learner("own_models:pipeline"), (6,), CLASSES), Pipeline)


# -- keeping ------------------------------------------------------------------------------------------


def test_a_saved_estimator_is_its_training_set(tmp_path: Path) -> None:
    nodes = population("forest", n=3)
    targets = torch.eye(CLASSES)[2].repeat(15, 1)
    more = Ragged.of([of_classes(1, count=5)] * 3)
    nodes.refit(lists(3), PseudoLabels(more, targets, torch.full((15,), 0.4)))
    path = tmp_path / "state.safetensors"
    save_file({name: t.contiguous() for name, t in nodes.state().items()}, path)
    assert b"sklearn" not in path.read_bytes()
    loaded = population("forest", n=3)
    loaded.load(load_file(path))
    assert torch.equal(loaded.predict_all(everything()), nodes.predict_all(everything()))
    assert loaded.state().keys() == nodes.state().keys()


@pytest.mark.parametrize(
    ("name", "instead", "wrong"),
    [
        ("get_params", None, "must have get_params and set_params as in scikit-learn: TypeError"),
        ("classes_", None, "must have classes_ and predict_proba as in scikit-learn: TypeError"),
        ("classes_", np.arange(3), "must have classes_ and predict_proba as in scikit-learn: Value"),
        ("classes_", np.arange(CLASSES) + 1, "must have classes_ and predict_proba as in scikit-learn"),
        ("predict_proba", lambda *_: None, "must have classes_ and predict_proba as in scikit-learn"),
        ("fit", None, "fit with sample_weight, which pseudo-labels need, fails on the"),
    ],
)
def test_a_model_of_ones_own_that_is_no_classifier(name: str, instead: Any, wrong: str) -> None:
    broken = type("Model", (Model,), {name: instead})
    nodes = population(learner("forest", name="mine"), n=1, build=lambda *_: broken())
    with pytest.raises(LNTrustError, match=rf"learner mine: Model.{wrong}"):
        (nodes.refit(lists(1)), nodes.predict_all(everything()))
