"""A node's own model: it learns, and its snapshots answer what it said at their moment, for ever."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray
from safetensors.torch import save_file
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from small_nodes import CLASSES, SHAPE, blobs, normalised, settings
from torch import nn

from lntrust.core.errors import LNTrustError
from lntrust.fleet.training.data import NodeData, load_data
from lntrust.fleet.training.learner import LiveLearner, Snapshot
from lntrust.fleet.training.world import node_world
from lntrust.learners import Labelled

TORCH: list[dict[str, Any]] = [
    {"kind": "linear"},
    {"kind": "mlp", "options": {"hidden": 8}},
    {"kind": "cnn2d", "options": {"width": 2}},
    {"kind": "small_nodes:normalised", "options": {"width": 4}},
    {"kind": "linear", "scale": 0.5, "view": "small_nodes:twice"},
]
FITTED: list[dict[str, Any]] = [
    {"kind": "forest", "options": {"trees": 5}},
    {"kind": "sklearn.ensemble:ExtraTreesClassifier", "options": {"n_estimators": 5}},
    {"kind": "small_nodes:logistic", "options": {"strength": 0.1}, "scale": 2.0},
]
X = blobs(5)[0]


class Made:
    """A learner with its data, and a way to teach it."""

    def __init__(self, model: dict[str, Any], **changes: Any) -> None:
        self.settings = settings(model=model, **changes)
        self.data: NodeData = load_data(self.settings)
        self.learner = LiveLearner(self.settings, self.data)
        self.taught = 0

    def teach(self, rounds: int = 3) -> None:
        population = self.learner.population
        lists = node_world(self.settings, self.data).labelled(1, uses_validation=True)
        steps = self.settings.training
        labelled = Labelled(lists, population.labels, steps, population.seeds, 1, population.device)
        self.learner.refit(lists)
        for _ in range(rounds):
            for batch in labelled.round(self.taught):
                population.step(batch)
            self.taught += 1

    def says(self, x: ndarray = X) -> ndarray:
        return self.learner.snapshot(1).predict(x)

    @property
    def sees(self) -> tuple[int, ...]:
        """The shape of what the model sees."""
        return tuple(self.learner.population.stacks[0].view.shape[1:])


def named(model: dict[str, Any]) -> str:
    return str(model["kind"])


@pytest.mark.parametrize("model", TORCH + FITTED, ids=named)
def test_a_snapshot_says_what_the_model_says_and_never_changes(model: dict[str, Any]) -> None:
    made = Made(model)
    made.teach(1)
    own = made.learner.population.predict_own(torch.arange(len(made.data.inputs))[None])[0]
    kept, x = made.learner.snapshot(3), X.copy()
    got, before = kept.predict(made.data.inputs), kept.predict(x)
    assert (got.dtype, kept.version) == (np.float32, 3)
    np.testing.assert_allclose(got, own.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-5)
    assert kept.predict(X[:0]).shape == (0, len(CLASSES))
    np.testing.assert_allclose(before[2:3], kept.predict(X[2:3]), atol=1e-6, err_msg="one by one as well")
    made.teach(2)
    if model in TORCH:
        assert not np.array_equal(made.says(), before), "it has learned"
    made.learner = made.learner.replaced(nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(made.sees)), 3)))
    np.testing.assert_array_equal(kept.predict(x), before)
    np.testing.assert_array_equal(x, X)


def test_many_inputs_are_seen_a_thousand_at_a_time() -> None:
    """Else whoever asks about many decides how much memory the node takes."""
    seen: list[int] = []
    x = np.random.default_rng(0).random((5000, 3))
    answered = Snapshot(1, lambda part: seen.append(len(part)) or part, lambda part: part * 2).predict(x)
    np.testing.assert_array_equal(answered, x * 2)
    assert (max(seen), sum(seen)) == (1024, 5000)


def test_what_an_estimator_never_saw_it_knows_nothing_of(tmp_path: Path) -> None:
    x, y = blobs(0)
    np.savez(tmp_path / "two.npz", x=x[y < 2], y=y[y < 2])
    made = Made(FITTED[0], data={"labelled": str(tmp_path / "two.npz")})
    np.testing.assert_allclose(made.says(), 1 / 3, rtol=1e-6, err_msg="before a fit")
    made.teach(0)
    assert (made.says()[:, 2] == 0).all()


# -- what the model sees --------------------------------------------------------------------------


def test_inputs_are_scaled_and_seen_as_they_are_told_to_be() -> None:
    scaled, plain = Made({"kind": "linear", "scale": 0.25}), Made({"kind": "linear"})
    np.testing.assert_allclose(scaled.says(X), plain.says(X * np.float32(0.25)), rtol=1e-6)
    whole = np.arange(32, dtype=np.uint8).reshape(2, *SHAPE)
    np.testing.assert_array_equal(scaled.says(whole), scaled.says(whole.astype(np.float32)))
    assert Made({"kind": "linear", "view": "small_nodes:twice"}).sees == (18,)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"kind": "lineal"}, "model.kind = 'lineal': must be one of linear, .*, onnx, or package.module"),
        ({"kind": "small_nodes:text"}, "made a str: must be a torch nn.Module or"),
        ({"kind": "small_nodes:absent"}, "has nothing named absent"),
        ({"kind": "linear", "options": {"widht": 3}}, "widht"),
        ({"kind": "forest", "trains": False}, "model.kind = 'forest' cannot answer as it is: NotFittedError"),
        ({"kind": "linear", "view": "small_nodes:absent"}, "model.view = 'small_nodes:absent'"),
        ({"kind": "linear", "view": "small_nodes:halved"}, "'small_nodes:halved': made 30 rows of 60 inputs"),
        ({"kind": "linear", "weights": "absent"}, "absent: not a readable"),
    ],
)
def test_models_that_are_none(model: dict[str, Any], message: str) -> None:
    with pytest.raises(LNTrustError, match=message):
        Made(model)


# -- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("trains", [True, False])
def test_weights_from_a_file(tmp_path: Path, trains: bool) -> None:
    module = normalised(SHAPE, 3)
    for name, tensor in module.state_dict().items():  # also those of the buffers
        tensor.copy_(torch.linspace(0.1, 0.9, tensor.numel()).view(tensor.shape) + len(name) / 20)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    made = Made({"kind": "small_nodes:normalised", "weights": tmp_path / "w.safetensors", "trains": trains})
    expected = torch.softmax(module.eval()(torch.from_numpy(X)), 1).detach().numpy()
    np.testing.assert_allclose(made.says(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(LNTrustError, match="does not fit the model"):
        Made({"kind": "linear", "weights": tmp_path / "w.safetensors"})


@pytest.mark.parametrize("model", TORCH[:4], ids=named)
def test_a_model_that_shall_not_train_learns_nothing(model: dict[str, Any]) -> None:
    made = Made({**model, "trains": False})
    before = made.says()
    made.teach()
    np.testing.assert_array_equal(made.says(), before)


# -- replacing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trains", [True, False])
def test_a_module_in_the_place_of_the_model(trains: bool) -> None:
    made = Made({"kind": "linear", "trains": trains})
    made.teach(1)
    module = normalised(SHAPE, 3)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    expected = torch.softmax(module.eval()(torch.from_numpy(X)), 1).detach().numpy()
    made.learner = made.learner.replaced(module)
    np.testing.assert_allclose(made.says(), expected, rtol=1e-5, atol=1e-6)
    made.teach(1)
    assert np.allclose(made.says(), expected, atol=1e-6) == (not trains)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), "the owner's own copy stays as it was"


class Finished:
    """A classifier of no library: it answers, and cannot be fitted."""

    classes_ = np.arange(3)

    def predict_proba(self, x: ndarray) -> ndarray:
        return np.tile([0.5, 0.3, 0.2], (len(x), 1))


def trees() -> ExtraTreesClassifier:
    x, y = blobs(6)
    return ExtraTreesClassifier(5, random_state=0).fit(x.reshape(-1, 16), y)


@pytest.mark.parametrize(
    ("other", "trains"), [(LogisticRegression(), True), (Finished(), True), (trees(), False)]
)
def test_a_classifier_is_fitted_or_if_it_cannot_or_shall_not_be_answers_as_it_is(
    other: Any, trains: bool
) -> None:
    made = Made({"kind": "linear", "trains": trains})
    made.learner = made.learner.replaced(other)
    made.teach(1)
    if isinstance(other, LogisticRegression):
        learned = made.data.train
        other.fit(made.data.inputs[learned].reshape(-1, 16), made.data.labels[learned])
    np.testing.assert_allclose(made.says(), other.predict_proba(X.reshape(-1, 16)), rtol=1e-3, atol=1e-4)


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo: object) -> nn.Module:
        raise TypeError("holds a lock")


@pytest.mark.parametrize("model", [{"kind": "linear"}, FITTED[0]], ids=named)
def test_what_cannot_take_the_models_place_leaves_the_old_one(model: dict[str, Any]) -> None:
    made = Made(model)
    before = made.says()
    for other, message in (
        ("a model", r"replace: str is neither a torch nn\.Module nor has it predict_proba"),
        (nn.Linear(7, 3), "replace: the model fails on inputs of shape"),
        (Uncopied(16, 3), "replace: the model cannot be copied: holds a lock"),
    ):
        with pytest.raises(LNTrustError, match=message):
            made.learner.replaced(other)
    np.testing.assert_array_equal(made.says(), before)
    made.teach(20)  # it still learns
    x, y = blobs(9, 300)
    assert (made.says(x).argmax(1) == y).mean() > 0.6
