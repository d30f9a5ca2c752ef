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
        defaults = LNTrustSettings().model_dump()
        assert all(defaults[key] != value for key, value in preset.settings.items())
        plain, got = settings("lntrust"), method.settings.model_dump()
        assert got == plain | preset.settings

    def test_other_names_are_left_as_they_are(self) -> None:
        for name in ("lntrust", "lntrust+leen", "uniform+lean", "package.module:Name"):
            assert method_of(name) == (name, None)


def test_set_wins_over_a_study_over_the_preset_over_what_the_study_says_of_lntrust(tmp_path: Path) -> None:
    got = settings("lntrust+lean", "methods.lntrust.top_k=5", "methods.lntrust.warmup=3")
    assert got["top_k"] == LEAN.settings["top_k"] != 5
    assert got["warmup"] == 3, "what the preset does not say is the study's"
    path = tmp_path / "own.toml"
    path.write_text('inherits = "digits"\n[methods."lntrust+lean"]\ntop_k = 4\nreply = "uint8"\n')
    for sets, top_k in (((), 4), (("methods.lntrust+lean.top_k=1",), 1)):
        got = find_method("lntrust+lean", load_study(path, sets)).settings.model_dump()
        assert (got["top_k"], got["reply"], got["recall"]) == (top_k, "uint8", LEAN.settings["recall"])
    for other in ("lntrust", "lntrust+best"):
        assert settings(other, "methods.lntrust+lean.top_k=3") == settings(other)


@pytest.mark.parametrize(
    ("name", "sets", "wrong"),
    [
        ("lntrust+leen", (), r"--method lntrust\+leen: did you mean lntrust\+lean\?.*lntrust\+safe"),
        ("uniform", ("methods.lntrust+leen.top_k=3",), r"lntrust\+leen: .* did you mean lntrust\+lean"),
        ("uniform+lean", (), r"--method uniform\+lean: "),
        ("lntrust+lean", ("methods.lntrust+lean.recall=0",), r"t\+lean: recall = 0: .*or equal to 1"),
        ("lntrust+safe", ("methods.lntrust.weighting=uniform",), "prior = accuracy needs weighting = trust"),
    ],
)
def test_refusals(name: str, sets: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(LNTrustError, match=wrong):
        settings(name, *sets)


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
