"""Presets: LNTrust with other settings under names of their own."""

from pathlib import Path
from typing import Any

import pytest

from lntrust import LNTrustError, load_study
from lntrust.methods import find_method
from lntrust.methods.lntrust.method import LNTrust
from lntrust.methods.lntrust.presets import LEAN, PRESETS, SAFE, hidden_by, method_of, names
from lntrust.methods.lntrust.settings import LNTrustSettings


def settings(name: str, *overrides: str) -> dict[str, Any]:
    return find_method(name, load_study("digits", overrides)).settings.model_dump()


class TestWhatTheyAre:
    def test_best_is_lean_and_safe(self) -> None:
        assert PRESETS["best"].settings == {**LEAN.settings, **SAFE.settings}
        both = set(LEAN.settings) & set(SAFE.settings)
        assert all(LEAN.settings[name] == SAFE.settings[name] for name in both), "neither wins over the other"

    @pytest.mark.parametrize("name", names())
    def test_each_is_lntrust_with_its_settings(self, name: str) -> None:
        method = find_method(name, load_study("digits"))
        assert type(method) is LNTrust
        _, preset = method_of(name)
        assert preset is not None
        assert len(preset.about) > 10
        plain, got = settings("lntrust"), method.settings.model_dump()
        assert {key: got[key] for key in preset.settings} == preset.settings
        assert {k: v for k, v in got.items() if k not in preset.settings} == {
            k: v for k, v in plain.items() if k not in preset.settings
        }

    @pytest.mark.parametrize("name", names())
    def test_each_says_something_the_defaults_do_not(self, name: str) -> None:
        _, preset = method_of(name)
        assert preset is not None
        defaults = LNTrustSettings().model_dump()
        assert all(defaults[key] != value for key, value in preset.settings.items())

    def test_other_names_are_left_as_they_are(self) -> None:
        assert method_of("lntrust") == ("lntrust", None)
        assert method_of("lntrust+leen") == ("lntrust+leen", None)
        assert method_of("uniform+lean") == ("uniform+lean", None)
        assert method_of("package.module:Name") == ("package.module:Name", None)


class TestWhoWins:
    def test_a_preset_over_what_the_study_says_of_lntrust(self) -> None:
        changed = ("methods.lntrust.top_k=5", "methods.lntrust.warmup=3")
        got = settings("lntrust+lean", *changed)
        assert got["top_k"] == LEAN.settings["top_k"] != 5
        assert got["warmup"] == 3, "what the preset does not say is the study's"

    def test_set_over_the_preset(self) -> None:
        got = settings("lntrust+lean", "methods.lntrust+lean.top_k=3")
        assert got["top_k"] == 3
        assert got["recall"] == LEAN.settings["recall"]
        assert settings("lntrust", "methods.lntrust+lean.top_k=3") == settings("lntrust")
        assert settings("lntrust+best", "methods.lntrust+lean.top_k=3") == settings("lntrust+best")

    def test_a_study_over_the_preset(self, tmp_path: Path) -> None:
        path = tmp_path / "own.toml"
        path.write_text('inherits = "digits"\n[methods."lntrust+lean"]\ntop_k = 4\nreply = "uint8"\n')
        got = find_method("lntrust+lean", load_study(path)).settings.model_dump()
        assert (got["top_k"], got["reply"]) == (4, "uint8")
        over = load_study(path, ["methods.lntrust+lean.top_k=1"])
        assert find_method("lntrust+lean", over).settings.model_dump()["top_k"] == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "meant"), [("lntrust+leen", "lntrust+lean"), ("lntrust+save", "lntrust+safe")]
    )
    def test_a_misspelt_preset(self, name: str, meant: str) -> None:
        with pytest.raises(LNTrustError) as refusal:
            find_method(name, load_study("digits"))
        assert f"--method {name}: did you mean {meant}?" in str(refusal.value)
        assert all(known in str(refusal.value) for known in names())

    def test_settings_of_a_misspelt_preset(self) -> None:
        with pytest.raises(LNTrustError, match=r"methods.lntrust\+leen: .* did you mean lntrust\+lean\?"):
            find_method("uniform", load_study("digits", ["methods.lntrust+leen.top_k=3"]))

    def test_presets_are_of_lntrust_only(self) -> None:
        with pytest.raises(LNTrustError, match=r"--method uniform\+lean: "):
            find_method("uniform+lean", load_study("digits"))

    def test_a_wrong_setting_names_the_preset(self) -> None:
        with pytest.raises(
            LNTrustError, match=r"methods\.lntrust\+lean\.recall = 0: .*greater than or equal to 1"
        ):
            settings("lntrust+lean", "methods.lntrust+lean.recall=0")

    def test_a_preset_that_does_not_fit_the_study(self) -> None:
        with pytest.raises(LNTrustError, match="prior = accuracy needs weighting = trust, not uniform"):
            settings("lntrust+safe", "methods.lntrust.weighting=uniform")


def test_settings_that_a_preset_hides() -> None:
    overrides = ["methods.lntrust.top_k=4", "methods.lntrust.strength=1", "graph.nodes=5"]
    assert hidden_by("lntrust+lean", overrides) == ["top_k"]
    assert hidden_by("lntrust", overrides) == []
    assert hidden_by("lntrust+lean", ["methods.lntrust+lean.top_k=4"]) == []


def test_old_names_of_settings_stand_where_they_stood() -> None:
    of_study, of_preset = "methods.lntrust.usual_lead=true", "methods.lntrust+lean.usual_lead=false"
    assert settings("lntrust+lean", of_study, of_preset)["typical_margin"] is False
    assert settings("lntrust+lean", "methods.lntrust.usual_lead=false")["typical_margin"] is True
    assert hidden_by("lntrust+lean", ["methods.lntrust.usual_lead=false"]) == ["typical_margin"]
