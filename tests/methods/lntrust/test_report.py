"""What a run says about trust: permutations that leave padding alone, and shares that add up."""

import pytest
import torch
from small_runs import MIXED, shared_end

from lntrust.learners.views import Views
from lntrust.methods.lntrust import report as trust_report
from lntrust.trust.features import FEATURES


def test_members_change_places_and_the_report_adds_up(views: Views) -> None:
    run, summary = shared_end(views, MIXED, method="lntrust")
    mask, report = run.state.evidence.mask, summary["method_report"]
    orders = trust_report._orders(run.site, mask)
    for order in orders:
        assert torch.equal(order.sort(1).values, torch.arange(mask.shape[1]).expand_as(order))
        assert torch.equal(mask.gather(1, order), mask), "a member gets a member's feature"
    assert len({tuple(order.flatten().tolist()) for order in orders}) == trust_report.REPETITIONS
    assert len(report["trust"]) == 6
    for i, trust in enumerate(report["trust"]):
        assert sum(trust.values()) == pytest.approx(1, abs=1e-5)
        assert set(trust) == {str(i), *(str(j) for j in run.world.graph.neighbors(i))}
    assert tuple(report["importance"]) == tuple(report["importance_std"]) == FEATURES
    mean = torch.tensor(report["importance_per_node"]).mean(0).tolist()
    assert list(report["importance"].values()) == pytest.approx(mean, abs=1e-6)
