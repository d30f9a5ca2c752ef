"""Fewer questions: refreshes in a rhythm of one's own, and no more neighbours asked than an answer needs."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small_runs import MIXED, TORCH, ended, levers, made, shared
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.lntrust.settings import LNTrustSettings


class TestRefresh:
    def test_the_method_may_refresh_in_a_rhythm_of_its_own(self, views: Views) -> None:
        assert shared(views, TORCH).state.log.round.tolist() == [0, 2, 4, 5]
        assert made(views, TORCH, *levers(refresh=3)).state.log.round.tolist() == [0, 3, 5]
        assert made(views, TORCH, *levers(refresh=9)).state.log.round.tolist() == [0, 5]


def neighbours(one: Run) -> Tensor:
    """How many neighbours each node may ask when it is deployed."""
    members = one.method.deploy(one.site, one.state).members
    return torch.bincount(members[members[:, 0] != members[:, 1], 0], minlength=one.world.n)


class TestAnswering:
    def test_one_after_another_until_sure(self, views: Views) -> None:
        """The surer a node must be, the more it asks; sure beyond doubt, its answers are the same."""
        off = ("methods.lntrust.deployment_gate=off", MIXED)
        plain = ended(views, *off, method="lntrust")[1]
        asked, summaries = [], []
        for kappa in (0.0, 0.3, 0.7, 1.0):
            summary = ended(views, *off, *levers(certainty=kappa), method="lntrust")[1]
            asked.append(summary["bytes"]["asked_per_input"])
            summaries.append(summary)
        assert asked == sorted(asked)
        assert asked[0] < asked[1] < asked[-1] < plain["bytes"]["asked_per_input"]
        assert summaries[-1]["per_node"]["test"] == plain["per_node"]["test"]
        assert summaries[-1]["per_node"]["test_pooled"] == plain["per_node"]["test_pooled"]
        for summary in summaries:  # nothing but the number of questions has changed
            assert summary["bytes"]["total"] == plain["bytes"]["total"]
            assert summary["per_node"]["self"] == plain["per_node"]["self"]

    def test_a_certainty_of_its_own_for_every_node(self, views: Views) -> None:
        """Who hears neighbours that are never quite sure may stop sooner, and nothing else has changed."""
        off = ("methods.lntrust.deployment_gate=off", MIXED)
        one, usual = ended(views, *off, *levers(certainty=0.9, typical_margin="true"), method="lntrust")
        plain = ended(views, *off, *levers(certainty=0.9), method="lntrust")[1]
        lead = one.state.typical_margin
        assert lead.shape == (6,)
        assert ((lead > 0) & (lead < 1)).all()
        certainty = one.method.deploy(one.site, one.state).certainty
        assert isinstance(certainty, Tensor)
        torch.testing.assert_close(certainty, 0.9 * lead)
        assert 0 < usual["bytes"]["asked_per_input"] < plain["bytes"]["asked_per_input"]
        assert usual["bytes"]["total"] == plain["bytes"]["total"]
        assert usual["per_node"]["self"] == plain["per_node"]["self"]

    def test_without_a_certainty_all_are_asked(self, views: Views) -> None:
        one, usual = ended(views, TORCH, *levers(typical_margin="true"), method="lntrust")
        assert one.method.deploy(one.site, one.state).certainty is None
        assert usual["per_node"] == ended(views, TORCH, method="lntrust")[1]["per_node"]

    def test_a_vote_of_ones_own(self, views: Views) -> None:
        plain = ended(views, TORCH, method="lntrust")[0]
        one = ended(views, TORCH, *levers(self_share=0.25), method="lntrust")[0]
        expected = 0.75 * plain.state.closed
        expected[:, 0] += 0.25
        torch.testing.assert_close(one.state.closed, expected)
        torch.testing.assert_close(one.state.open, plain.state.open)  # who teaches is another matter
        with pytest.raises(ValidationError, match="self_share needs one weight per member"):
            LNTrustSettings(self_share=0.5, weighting="weighted_majority")

    def test_bytes_of_an_answer_fall_with_who_is_asked(self, views: Views) -> None:
        for overrides in ([], levers(certainty=0.5), levers(reply="top3")):
            one, summary = ended(views, TORCH, *overrides, method="lntrust")
            each = one.network.deployment_bytes(1)
            per_input = summary["bytes"]["asked_per_input"]
            assert summary["bytes"]["per_deployed_query"] == pytest.approx(each * per_input)

    def test_who_answers_alone_asks_nobody(self, views: Views) -> None:
        one, summary = ended(
            views, TORCH, *levers(deployment_gate="evidence", evidence=0.999999999, certainty=1),
            method="lntrust",
        )  # fmt: skip
        alone = ~one.state.together
        assert alone.any()
        assert (neighbours(one)[alone] == 0).all()
        test, own = (np.array(summary["per_node"][name]) for name in ("test", "self"))
        assert (test == own)[alone.numpy()].all()

    def test_weights_by_class_have_no_order(self) -> None:
        with pytest.raises(ValidationError, match="certainty needs one weight per member"):
            LNTrustSettings(certainty=0.5, weighting="weighted_majority")
