"""Fewer questions: no more neighbours are asked than an answer needs."""

import pytest
import torch
from pydantic import ValidationError
from small_runs import MIXED, PLAIN, TORCH, ended, levers, made, shared_end

from lntrust.learners.views import Views
from lntrust.methods.lntrust.settings import LNTrustSettings

OFF = ("methods.lntrust.deployment_gate=off", MIXED, PLAIN)


class TestAnswering:
    def test_one_after_another_until_sure(self, views: Views) -> None:
        """The surer a node must be, the more it asks; sure beyond doubt, its answers are the same."""
        plain = shared_end(views, *OFF, method="lntrust")[1]
        ends = [ended(views, *OFF, *levers(certainty=kappa), method="lntrust") for kappa in (0.0, 0.5, 1.0)]
        asked = [summary["bytes"]["asked_per_input"] for _, summary in ends]
        assert asked[0] < asked[1] < asked[2] < plain["bytes"]["asked_per_input"]
        for name in ("test", "test_pooled"):
            assert ends[-1][1]["per_node"][name] == plain["per_node"][name]
        for one, summary in ends:  # nothing but the number of questions has changed
            assert summary["bytes"]["total"] == plain["bytes"]["total"]
            assert summary["per_node"]["self"] == plain["per_node"]["self"]
            each = one.network.deployment_bytes(1) * summary["bytes"]["asked_per_input"]
            assert summary["bytes"]["per_deployed_query"] == pytest.approx(each)

    def test_a_certainty_of_its_own_for_every_node(self, views: Views) -> None:
        """Who hears neighbours that are never quite sure may stop sooner."""
        margin = levers(typical_margin="true")
        one, usual = ended(views, *OFF, *levers(certainty=1.0), *margin, method="lntrust")
        plain = shared_end(views, *OFF, method="lntrust")[1]
        lead = one.state.typical_margin
        assert ((lead > 0) & (lead < 1)).all()
        torch.testing.assert_close(one.method.deploy(one.site, one.state).certainty, lead)
        assert 0 < usual["bytes"]["asked_per_input"] < plain["bytes"]["asked_per_input"]
        # Without a certainty all are asked, whatever the margin.
        assert ended(views, *OFF, *margin, method="lntrust")[1]["per_node"] == plain["per_node"]

    def test_a_vote_of_ones_own(self, views: Views) -> None:
        plain, one = (made(views, TORCH, PLAIN, *more) for more in ((), levers(self_share=0.25)))
        expected = 0.75 * plain.state.closed
        expected[:, 0] += 0.25
        torch.testing.assert_close(one.state.closed, expected)
        torch.testing.assert_close(one.state.open, plain.state.open)  # who teaches is another matter

    @pytest.mark.parametrize("setting", ["self_share", "certainty"])
    def test_weights_by_class_have_no_order(self, setting: str) -> None:
        with pytest.raises(ValidationError, match=f"{setting} needs one weight per member"):
            LNTrustSettings.model_validate({setting: 0.5, "weighting": "weighted_majority"})
