"""Settings: what is off by default, switched on; fewer questions for an answer; earlier versions' names."""

from pathlib import Path

import pytest
import small_runs as small
import torch
from pydantic import ValidationError

from lntrust.learners.views import Views
from lntrust.methods.lntrust.settings import CUT, RENAMED, LNTrustSettings
from lntrust.study.settings import Later

OFF = ("methods.lntrust.deployment_gate=off", small.MIXED, small.PLAIN)


def test_no_lever_is_forgotten_here() -> None:
    younger = {
        name
        for name, field in LNTrustSettings.model_fields.items()
        if any(isinstance(mark, Later) for mark in field.metadata)
    }
    others = {"temperature"}  # of another weighting than the levers'
    assert younger - others <= {change.split(".")[2].split("=")[0] for change in small.ALL_LEVERS}


def test_a_resumed_run_with_all_of_them_equals_an_uninterrupted_one(views: Views, tmp_path: Path) -> None:
    lean, plain = (
        small.assert_resumes(views, tmp_path, small.MIXED, *small.SHORT, *small.ALL_LEVERS),
        small.made(views, small.MIXED, *small.SHORT),
    )
    replies = [run.network.ledger.payload("reply").sum() for run in (lean, plain)]
    assert replies[0] < replies[1]
    assert all(t.isfinite().all() for t in lean.method.pack(lean.state).values())


def test_a_temperature_is_linucbs_alone(views: Views, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"temperature = 0\.1 needs weighting = linucb, not trust"):
        LNTrustSettings(temperature=0.1)
    linucb = small.levers(weighting="linucb", temperature=0.1)
    soft = small.assert_resumes(views, tmp_path, small.MIXED, *small.SHORT, *linucb)
    shares = soft.state.closed[soft.state.evidence.mask]
    assert ((shares > 0) & (shares < 1)).any(), "weight is spread"


class TestAnswering:
    def test_one_after_another_until_sure(self, views: Views) -> None:
        """The surer a node must be, the more it asks; sure beyond doubt, its answers are the same."""
        plain = small.shared_end(views, *OFF, method="lntrust")[1]
        ends = [
            small.ended(views, *OFF, *small.levers(certainty=kappa), method="lntrust")
            for kappa in (0.0, 0.5, 1.0)
        ]
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
        margin = small.levers(typical_margin="true")
        one, usual = small.ended(views, *OFF, *small.levers(certainty=1.0), *margin, method="lntrust")
        plain = small.shared_end(views, *OFF, method="lntrust")[1]
        lead = one.state.typical_margin
        assert ((lead > 0) & (lead < 1)).all()
        torch.testing.assert_close(one.method.deploy(one.site, one.state).certainty, lead)
        assert 0 < usual["bytes"]["asked_per_input"] < plain["bytes"]["asked_per_input"]
        # Without a certainty all are asked, whatever the margin.
        assert small.ended(views, *OFF, *margin, method="lntrust")[1]["per_node"] == plain["per_node"]

    def test_a_vote_of_ones_own(self, views: Views) -> None:
        plain, one = (
            small.made(views, small.TORCH, small.PLAIN, *more) for more in ((), small.levers(self_share=0.25))
        )
        expected = 0.75 * plain.state.closed
        expected[:, 0] += 0.25
        torch.testing.assert_close(one.state.closed, expected)
        torch.testing.assert_close(one.state.open, plain.state.open)  # who teaches is another matter

    @pytest.mark.parametrize("setting", ["self_share", "certainty"])
    def test_weights_by_class_have_no_order(self, setting: str) -> None:
        with pytest.raises(ValidationError, match=f"{setting} needs one weight per member"):
            LNTrustSettings.model_validate({setting: 0.5, "weighting": "weighted_majority"})


class TestEarlierVersions:
    def test_renamed_settings_are_read_under_their_old_names(self) -> None:
        old = LNTrustSettings.model_validate({"usual_lead": True, "head_start": 0.5})
        assert old == LNTrustSettings(typical_margin=True, prior_wins=0.5)
        assert not set(RENAMED) & set(LNTrustSettings.model_fields)

    def test_what_is_gone_is_ignored_where_it_had_no_effect(self) -> None:
        assert LNTrustSettings.model_validate({**CUT, "budget": 7}) == LNTrustSettings(budget=7)
        assert not set(CUT) & set(LNTrustSettings.model_fields)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("look_back", 0.8), ("calibrate", True), ("probe_others", 2), ("answer_k", 1),
            ("importance_power", 0.5), ("training_gate", "evidence"),
        ],
    )  # fmt: skip
    def test_and_refused_in_a_sentence_where_it_had(self, name: str, value: object) -> None:
        with pytest.raises(ValidationError, match=rf"{name} = {value!r}: no longer there \(docs/"):
            LNTrustSettings.model_validate({name: value})
