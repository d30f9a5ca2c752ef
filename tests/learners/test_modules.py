"""Kinds of models by name: scikit-learn's classes among them."""

from typing import Any

import numpy as np
import sklearn.base
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.pipeline import Pipeline
from toy import CLASSES, DATASET, everything, learner, lists, population

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
