"""Centralized: one model per kind of learner on everybody's data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lntrust.core.files import read_tensors
from lntrust.experiment import Run, run
from lntrust.learners import Population
from lntrust.learners.views import Views
from lntrust.methods.centralized import Centralized

EPOCHS = "methods.centralized.epochs=3"


def central(one: Run) -> Population:
    assert isinstance(one.method, Centralized)
    assert one.method._trained is not None
    return one.method._trained[0]


def test_the_variant_is_reported(tiny: Any, views: Views) -> None:
    summary = run(tiny(EPOCHS), "centralized", 0, views)
    assert set(summary["variants"]) == {"label_prior"}
    assert 0 < summary["variants"]["label_prior"]["test"] <= 1
    assert summary["variants"]["label_prior"]["test"] != summary["test"]
    assert summary["bytes"]["total"] == summary["bytes"]["per_deployed_query"] == 0


def test_the_variant_multiplies_by_the_nodes_classes(tiny: Any, views: Views) -> None:
    one = Run(tiny(EPOCHS), "centralized", 0, views)
    one()
    p = central(one).predict_all(one._tested)[torch.from_numpy(one.world.kinds)]
    given = one.world.partition.train.joined(one.world.partition.validation)
    counts = [np.bincount(one.world.labels[ids], minlength=10) + 1 for ids in given]  # one more of each
    prior = torch.tensor(np.array([c / c.sum() for c in counts])).float()
    last = one._evaluations[0][one.rounds]
    assert (last["deployed"] == p.argmax(-1).numpy()).all()
    assert (last["variant/label_prior"] == (p * prior[:, None]).argmax(-1).numpy()).all()


def test_one_model_per_learner(tiny: Any, views: Views) -> None:
    one = Run(tiny(EPOCHS), "centralized", 0, views)
    one()
    models = central(one)
    assert models.n == 2
    assert [stack.learner.name for stack in models.stacks] == ["linear", "forest"]
    assert [stack.nodes.tolist() for stack in models.stacks] == [[0], [1]]
    assert any(name.startswith("central/0/linear/") for name in one.state)
    assert any(name.startswith("central/0/forest/") for name in one.state)
    answer = one.method.deploy(one.site, one.state).answer
    assert answer is not None
    p = answer(one._tested)
    assert torch.equal(p[0], p[2])
    assert torch.equal(p[1], p[3])
    assert not torch.equal(p[0], p[1])


@pytest.mark.parametrize("learner", [pytest.param(0, id="linear"), pytest.param(1, id="forest")])
def test_it_knows_more_than_a_node(tiny: Any, views: Views, learner: int) -> None:
    one = Run(tiny("partition.skew=1", "methods.centralized.epochs=30"), "centralized", 0, views)
    summary = one()
    nodes = [i for i in range(5) if one.world.kinds[i] == learner]
    alone = run(tiny("partition.skew=1"), "independent", 0, views)
    together, apart = (
        sum(s["per_node"]["test_pooled"][i] for i in nodes) / len(nodes) for s in (summary, alone)
    )
    assert together > apart


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_resumed_equals_uninterrupted(tiny: Any, views: Views, tmp_path: Path, stop: int) -> None:
    def interrupt(done: int, *_: object) -> None:
        if done == stop:
            raise Stopped

    whole = Run(tiny(EPOCHS), "centralized", 0, views, folder=tmp_path / "whole")
    expected = whole()
    with pytest.raises(Stopped):
        Run(tiny(EPOCHS), "centralized", 0, views, folder=tmp_path / "cut")(progress=interrupt)
    resumed = Run(tiny(EPOCHS), "centralized", 0, views, folder=tmp_path / "cut")
    assert {**resumed(resume=True), "seconds": 0} == {**expected, "seconds": 0}
    assert whole.folder is not None
    assert resumed.folder is not None
    first, second = (read_tensors(r.folder / "checkpoint.safetensors")[0] for r in (whole, resumed))  # type: ignore[operator]
    assert first.keys() == second.keys()
    assert [
        name for name in first if not torch.equal(first[name].nan_to_num(), second[name].nan_to_num())
    ] == []


def test_it_stops_where_nothing_is_gained(tiny: Any, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    real = Population.step

    def counted(self: Population, *arguments: Any) -> Any:
        steps.append(self.n)
        return real(self, *arguments)

    monkeypatch.setattr(Population, "step", counted)
    stop = ("methods.centralized.tolerance=0.9", "methods.centralized.patience=3")
    run(tiny(*stop), "centralized", 0, views)
    assert steps.count(2) == 1 + 3  # a batch of 256 holds all examples: one step is an epoch
