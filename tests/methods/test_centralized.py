"""Centralized: one model per kind of learner on everybody's data."""

from typing import Any

import numpy as np
import torch
from small_runs import all_tested

from lntrust.experiment import Run, run
from lntrust.learners.views import Views


def test_one_model_per_learner_and_a_variant_that_knows_the_nodes_classes(tiny: Any, views: Views) -> None:
    one = Run(tiny("methods.centralized.epochs=3"), "centralized", 0, views)
    summary = one()
    deployment = one.method.deploy(one.site, one.state)
    assert {name.split("/")[2] for name in one.state} == {"linear", "forest", "steps"}
    p = deployment.answer(all_tested(one))
    assert torch.equal(p[0], p[2])
    assert torch.equal(p[1], p[3])
    assert not torch.equal(p[0], p[1])
    given = one.world.partition.train.joined(one.world.partition.validation)
    counts = [np.bincount(one.world.labels[ids], minlength=10) + 1 for ids in given]  # one more of each
    variant = deployment.variants["label_prior"]
    torch.testing.assert_close(variant.prior, torch.tensor(np.array([c / c.sum() for c in counts])).float())
    assert deployment.prior is None
    assert variant.answer is deployment.answer
    assert set(summary["variants"]) == {"label_prior"}
    assert summary["variants"]["label_prior"]["test"] != summary["test"]


def test_it_knows_more_than_a_node(tiny: Any, views: Views) -> None:
    """Of linear heads and forests, in turn, alike."""
    study = tiny("partition.skew=1", "methods.centralized.epochs=30")
    ends = [run(study, method, 0, views)["per_node"] for method in ("centralized", "independent")]
    for kind in (0, 1):
        together, apart = (np.mean(per_node["test_pooled"][kind::2]) for per_node in ends)
        assert together > apart


def test_it_stops_where_nothing_is_gained(tiny: Any, views: Views) -> None:
    """A batch of 256 holds all examples: one step is an epoch."""
    stop = ("methods.centralized.tolerance=0.9", "methods.centralized.patience=3")
    one = Run(tiny(*stop), "centralized", 0, views)
    one()
    assert int(one.state["central/0/steps/supervised"][0]) == 1 + 3
