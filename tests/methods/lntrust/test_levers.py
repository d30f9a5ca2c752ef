"""All that is off by default, switched on at once; and the settings of earlier versions."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from small_runs import ALL_LEVERS, MIXED, SHORT, assert_resumes, made

from lntrust.learners.views import Views
from lntrust.methods.lntrust.settings import CUT, RENAMED, LNTrustSettings
from lntrust.study.settings import Later


def test_no_lever_is_forgotten_here() -> None:
    younger = {
        name
        for name, field in LNTrustSettings.model_fields.items()
        if any(isinstance(mark, Later) for mark in field.metadata)
    }
    assert younger <= {change.split(".")[2].split("=")[0] for change in ALL_LEVERS}


def test_a_resumed_run_with_all_of_them_equals_an_uninterrupted_one(views: Views, tmp_path: Path) -> None:
    lean, plain = assert_resumes(views, tmp_path, MIXED, *SHORT, *ALL_LEVERS), made(views, MIXED, *SHORT)
    replies = [run.network.ledger.payload("reply").sum() for run in (lean, plain)]
    assert replies[0] < replies[1]
    assert all(t.isfinite().all() for t in lean.method.pack(lean.state).values())


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
