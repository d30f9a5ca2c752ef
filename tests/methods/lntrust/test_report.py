"""What a run says about trust: permutations that leave padding alone, and shares that add up."""

import pytest
import torch
from small_runs import made

from lntrust.learners.views import Views
from lntrust.methods.lntrust import report as trust_report
from lntrust.trust.features import FEATURES


def test_members_change_places_among_themselves(views: Views) -> None:
    run = made(views)
    mask = run.state.evidence.mask
    orders = trust_report._orders(run.site, mask)
    places = torch.arange(mask.shape[1])
    for order in orders:
        assert torch.equal(order.sort(1).values, places.expand_as(order))
        assert torch.equal(mask.gather(1, order), mask), "a member gets a member's feature"
    assert len({tuple(order.flatten().tolist()) for order in orders}) == trust_report.REPETITIONS


def test_the_report_adds_up(views: Views) -> None:
    run = made(views)
    report = run.method.report(run.site, run.state)
    assert len(report["trust"]) == 6
    for i, trust in enumerate(report["trust"]):
        assert sum(trust.values()) == pytest.approx(1, abs=1e-5)
        assert set(trust) == {str(i), *(str(j) for j in run.world.graph.neighbors(i))}
    assert tuple(report["importance"]) == FEATURES
    per_node = torch.tensor(report["importance_per_node"])
    for f, name in enumerate(FEATURES):
        assert report["importance"][name] == pytest.approx(float(per_node[:, f].mean()), abs=1e-6)
