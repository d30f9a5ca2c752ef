"""Kinds of models by name: scikit-learn's classes among them."""

from typing import Any

import numpy as np
import pytest
import sklearn.base
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.pipeline import Pipeline
from toy import CLASSES, DATASET, everything, learner, lists, population

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import small_seed
from lntrust.learners.modules import build


class Named(sklearn.base.BaseEstimator):  # type: ignore[misc]
    """An estimator of one's own that takes any option."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.full((len(x), CLASSES), 1 / CLASSES)


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


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "sklearn.ensemble:ExtraTreesClassifier",
            {"trees": 3},
            "trees: unknown options; known are n_est",
        ),
        ("sklearn.naive_bayes:GaussianNB", {"a": 1, "b": 2}, "a, b: unknown options; known are priors, var"),
        ("sklearn.svm:LinearSVC", {}, "made a LinearSVC: must be .* an estimator with predict_proba"),
        (
            "sklearn.linear_model:SGDClassifier",
            {"loss": "hinge"},
            "made a SGDClassifier.* loss = log_loss",
        ),
        ("sklearn.ensemble:RandomForestRegressor", {}, "made a RandomForestRegressor: must be"),
        ("sklearn.pipeline:Pipeline", {}, "missing 1 required positional argument: 'steps'"),
        ("sklearn.ensemble:NoSuchClassifier", {}, "has nothing named NoSuchClassifier"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(kind: str, options: dict[str, Any], message: str) -> None:
    chosen = learner(kind, name="mine", **options)
    with pytest.raises(LNTrustError, match=f"learner mine: kind = '{kind}'.*{message}"):
        build(chosen, (6,), CLASSES)


def test_a_wrong_value_is_named_when_it_is_fitted() -> None:
    nodes = population(learner("sklearn.ensemble:ExtraTreesClassifier", name="mine", n_estimators=-1), n=1)
    with pytest.raises(LNTrustError, match=r"learner mine: ExtraTreesClassifier\.fit .*n_estimators"):
        nodes.refit(lists(1))
