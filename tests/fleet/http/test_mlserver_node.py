"""A node learns to trust a server that knows nothing of fleets: a real MLServer with a scikit-learn model."""

from pathlib import Path

import mlserver
import numpy as np
import pytest
from fleets import deployed, until

from lntrust.fleet.node import Node
from lntrust.fleet.settings import NodeSettings

FILES = {"labelled": "data", "probe_with": "probe", "shard": "shard"}
OURS = ("virginica", "setosa", "versicolor")  # not the order of the server


def settings(folder: Path, served: mlserver.Served) -> NodeSettings:
    """A node that has hardly any data, and knows somebody who has seen more."""
    order = np.random.default_rng(0).permutation(len(served.x))
    labels = np.array([OURS.index(mlserver.CLASSES[k]) for k in np.arange(150) // 50])
    for name, rows in zip(FILES.values(), np.split(order, [6, 46, 96]), strict=False):
        np.savez(folder / f"{name}.npz", x=served.x[rows], y=labels[rows])
    there = {"input": "predict", "output": "predict_proba", "classes": mlserver.CLASSES}
    return NodeSettings.model_validate(
        {
            "name": "here",
            "input": {"shape": [4], "classes": OURS},
            "model": {"kind": "linear", "options": {"dropout": 0.0}},
            "data": {name: f"{folder}/{file}.npz" for name, file in FILES.items()},
            "neighbours": [{"name": "there", "url": served.url, **there}],
            "http": {"listen": "off"},
            "life": {"state": folder / "state", "refresh_every": 1.0, "wait": 20.0},
            "training": {"stage1_rounds": 2, "stage2_rounds": 10, "lr": 0.001, "refresh": 5},
            "trust": {"budget": 20, "sample": 20, "warmup": 2},
        }
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> mlserver.Served:  # type: ignore[misc]
    with mlserver.serving(tmp_path_factory.mktemp("mlserver")) as served:
        yield served  # type: ignore[misc]


def test_it_is_asked_and_trusted(served: mlserver.Served, tmp_path: Path) -> None:
    with Node(settings(tmp_path, served)).start() as node:
        until(node, deployed)
        status = node.status()
        assert status["together"]
        assert status["trust"]["there"] > 0.5
        assert status["validation"]["ensemble"] > status["validation"]["self"] + 0.2
        answer = node.predict(served.x)
        assert set(answer.weights) == {"here", "there"}
        truth = np.array([OURS.index(mlserver.CLASSES[k]) for k in np.arange(150) // 50])
        assert (answer.probabilities.argmax(1) == truth).mean() > 0.9
        # The server's own columns, brought into our order, and mixed by the weights that are told.
        by_self = node.predict(served.x, "self").probabilities
        theirs = served.p[:, [mlserver.CLASSES.index(name) for name in OURS]]
        mixed = answer.weights["here"] * by_self + answer.weights["there"] * theirs
        np.testing.assert_allclose(answer.probabilities, mixed, atol=1e-4)
        traffic = status["bytes"]
        assert traffic["out"]["query"] > 0
        assert traffic["in"]["reply"] > 0
