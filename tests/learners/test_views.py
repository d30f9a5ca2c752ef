"""Views on the device."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toy import (
    BACKENDS,
    CLASSES,
    CPU,
    DATASET,
    EXAMPLES,
    close,
    everything,
    learner,
    module_of,
    population,
    train,
)

from lntrust.core.errors import LNTrustError
from lntrust.experiment import run
from lntrust.learners.estimators import Estimators
from lntrust.learners.inference import Backend
from lntrust.learners.views import Views, pick_device
from lntrust.study.settings import LearnerSettings
from lntrust.world import build_world
from lntrust.world.data.datasets import Coded

RNG = np.random.default_rng(0)
CODED = Coded(
    RNG.integers(0, 256, (10_000, 5), dtype=np.uint8),  # more than are decoded at once
    RNG.uniform(0.01, 0.1, 5).astype(np.float32),
    RNG.normal(size=5).astype(np.float32),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coded_features_are_decoded(dtype: torch.dtype) -> None:
    view = Views(replace(DATASET, views={"coded": lambda: CODED}), CPU, dtype)["coded"]
    expected = CODED.codes.astype(np.float64) * CODED.step + CODED.offset
    assert view.dtype == dtype
    np.testing.assert_allclose(view.numpy(), expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_is_made_once_in_the_runs_precision(dtype: torch.dtype) -> None:
    views = Views(DATASET, CPU, dtype)
    assert views["series"].dtype == dtype
    assert views["series"].shape == (120, 2, 16)
    assert views["series"] is views["series"]
    with pytest.raises(LNTrustError, match="no such view; it has flat, series, image"):
        views["smell"]
    np.testing.assert_array_equal(views["series"].numpy(), DATASET.view("series"))


def noisy(kind: str, noise: float = 1.5, view: str | None = None) -> LearnerSettings:
    return learner(kind, view=view).model_copy(update={"noise": noise})


class TestNoise:
    """What weakens a learner."""

    def of(self, views: Views, noise: float, view: str) -> Tensor:
        """ε: what the noise adds, in standard deviations of each feature and of the noise."""
        clear, seen = views[view], views.seen_by(noisy("linear", noise, view))
        return (seen - clear) / (noise * clear.std(0, correction=0))

    def test_none_is_the_view_itself(self) -> None:
        views = Views(DATASET, CPU, torch.float32)
        assert views.seen_by(noisy("linear", 0)) is views["flat"]

    def test_it_is_gaussian_in_units_of_each_features_own_deviation(self) -> None:
        """Five standard errors."""
        views = Views(replace(DATASET, views={"coded": lambda: CODED}), CPU, torch.float64)
        drawn = self.of(views, 2.0, "coded")  # more than are drawn at once
        count = drawn.numel()
        assert abs(drawn.mean()) < 5 / count**0.5
        assert abs(drawn.var() - 1) < 5 * (2 / count) ** 0.5
        assert abs(torch.corrcoef(drawn.T) - torch.eye(5)).max() < 5 / len(drawn) ** 0.5
        assert abs((drawn[1:] * drawn[:-1]).mean()) < 5 / count**0.5, "examples have theirs each"

    def test_an_example_has_the_same_whatever_the_strength_and_whoever_asks(self) -> None:
        views = Views(DATASET, CPU, torch.float64)
        weak, strong, again = (self.of(views, noise, "series") for noise in (0.5, 8.0, 0.5))
        close(weak, strong)
        assert torch.equal(weak, again)
        close(self.of(Views(DATASET, CPU, torch.float32), 0.5, "series").double(), weak, 1e-4)
        few = replace(DATASET, views={"series": lambda: np.asarray(DATASET.view("series"))[:9]})
        close(self.of(Views(few, CPU, torch.float64), 0.5, "series"), weak[:9])

    def test_views_have_each_their_own(self) -> None:
        views = Views(DATASET, CPU, torch.float64)
        flat, image = (self.of(views, 1.0, name).flatten(1)[:, :6] for name in ("flat", "image"))
        assert (flat - image).abs().mean() > 0.5

    def test_what_never_varies_stays(self) -> None:
        still = np.ones((EXAMPLES, 3), np.float32)
        views = Views(replace(DATASET, views={"flat": lambda: still}), CPU, torch.float32)
        assert torch.equal(views.seen_by(noisy("linear", 100)), views["flat"])

    @pytest.mark.parametrize("kind", ["linear", "mlp", "cnn1d", "cnn2d", "forest"])
    @BACKENDS
    def test_a_node_answers_on_what_it_sees(self, kind: str, backend: Backend) -> None:
        """For every kind of model and shape of input, whichever way it is asked."""
        clear = learner(kind, "clear")
        nodes = train(population(clear, noisy(kind), n=4, backend=backend))
        ids = torch.tensor([3, 77, 12])
        for stack, seen_by in zip(nodes.stacks, (clear, noisy(kind)), strict=True):
            seen = nodes.views.seen_by(seen_by)[ids]
            for k, node in enumerate(stack.nodes.tolist()):
                if isinstance(stack, Estimators):
                    fitted, said = stack.model(k), torch.zeros(len(ids), CLASSES, dtype=torch.float64)
                    made = fitted.predict_proba(seen.flatten(1).numpy())
                    said[:, fitted.classes_] = torch.from_numpy(made)
                else:
                    said = module_of(stack, k)(seen).softmax(-1).detach()
                close(nodes.predict_all(ids)[node], said)
                close(nodes.predict_own(ids.expand(4, -1))[node], said)
                close(nodes.asked(torch.full((3,), node), ids)(), said)

    def test_backends_agree(self) -> None:
        kinds = [noisy("linear"), learner("mlp"), noisy("cnn1d"), noisy("forest")]
        batched, looped = (train(population(*kinds, n=9, backend=each)) for each in ("batched", "loop"))
        close(batched.predict_all(everything()), looped.predict_all(everything()), 1e-8)

    def test_more_of_it_makes_who_has_it_weaker_and_nobody_else(self, small: Any, views: Views) -> None:
        """Independent on digits: hubs answer as before to the last bit, leaves ever worse."""
        own = 'kind="linear",view="pixels"'
        long = ("graph.nodes=10", "partition.labelled=600", "training.stage1_rounds=20")
        hubs, leaves = [], []
        for noise in (0, 2, 8):
            kinds = f'[{{name="hub",{own},share=0.2}},{{name="leaf",{own},noise={noise}}}]'
            study = small(*long, "population.assign=by_degree", f"population.learners={kinds}")
            leaf = build_world(study, views.dataset, 0).kinds == 1
            scores = np.array(run(study, "independent", 0, views)["per_node"]["self_pooled"])
            hubs.append(scores[~leaf].tolist())
            leaves.append(scores[leaf].mean())
        assert hubs[0] == hubs[1] == hubs[2]
        assert leaves[0] > leaves[1] + 0.1 > leaves[2] + 0.2


def test_devices_are_picked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("cpu").type == pick_device("auto").type == "cpu"
    with pytest.raises(LNTrustError, match="torch sees no GPU here; use --device cpu, or auto"):
        pick_device("cuda")
    with pytest.raises(LNTrustError, match="--device tpu: must be cpu, cuda or auto"):
        pick_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("cuda").type == pick_device("auto").type == "cuda"
    assert pick_device("cpu").type == "cpu"
