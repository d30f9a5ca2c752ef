"""Independent: nothing exchanged, nobody asked, every label used."""

from typing import Any

import pytest
import torch

from lntrust.experiment import Run
from lntrust.learners.views import Views


def test_every_node_deploys_itself(tiny: Any, views: Views) -> None:
    one = Run(tiny(), "independent", 0, views)
    summary = one()
    deployment = one.method.deploy(one.site, one.state)
    assert deployment.members.tolist() == [[i, i] for i in range(5)]
    assert deployment.weights.tolist() == [1.0] * 5
    for name in ("test", "test_pooled"):
        alone = name.replace("test", "self")
        assert summary[name] == summary[alone]
        assert summary["per_node"][name] == summary["per_node"][alone]
    assert summary["harmed"] == 0
    assert one.state == {}
    assert not one.method.uses_validation


@pytest.mark.parametrize("validation", ["withheld", "fresh"])
def test_it_trains_on_all_it_has(tiny: Any, views: Views, validation: str) -> None:
    one = Run(tiny(f"partition.validation={validation}"), "independent", 0, views)
    one()
    p = one.world.partition
    rest = p.validation if validation == "withheld" else p.given_up
    assert [set(ids) for ids in one.labelled.lists] == [
        set(a) | set(b) for a, b in zip(p.train, rest, strict=True)
    ]


def test_batches_come_from_train_and_validation(tiny: Any, views: Views) -> None:
    one = Run(tiny(), "independent", 0, views)
    p = one.world.partition
    drawn = [batch.examples for t in range(20) for batch in one.labelled.round(t)]
    for i, mine in enumerate(torch.cat(drawn, 1)):
        assert set(mine.tolist()) == set(p.train[i]) | set(p.validation[i])
