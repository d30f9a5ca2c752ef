"""Presets: LNTrust with a few settings changed, under names of their own: `lntrust+lean`, `lntrust+safe`, ….

`lntrust run STUDY --preset lean` is short for `--method lntrust+lean`. A preset's settings take the place of
the study's for LNTrust; what a study, or `--set`, has under [methods."lntrust+lean"] takes theirs in turn.
How they were chosen, and what each setting does: docs/lean.md and docs/safe.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lntrust.methods.lntrust.settings import RENAMED


@dataclass(frozen=True)
class Preset:
    about: str
    settings: dict[str, Any]


# Cost no bytes, and serve both: they make up for the accuracy that fewer replies cost.
SHARED: dict[str, Any] = {"importance": "off", "final_rounds": 50, "self_share": 0.2}
FEWER = {"query": "handle", "reply": "top3", "recall": 20, "top_k": 2, "refresh": 20, "sample": 100}
LEAN = Preset(
    "the published method's accuracy, or better, for a hundredth of its replies",
    {**SHARED, **FEWER, "certainty": 0.7, "typical_margin": True},
)
GATE = {"deployment_gate": "evidence", "evidence": 0.95, "prior_wins": 0.25}
SAFE = Preset(
    "seldom worse together than by its own model: a prior on trust, a vote of one's own, a gate that looks "
    "at evidence",
    {**SHARED, **GATE, "prior": "accuracy", "prior_examples": 20.0},
)
PRESETS = {
    "lean": LEAN,
    "safe": SAFE,
    "best": Preset("lean and safe at once", {**LEAN.settings, **SAFE.settings}),
}
OF = "lntrust"  # the method they are presets of


def method_of(name: str) -> tuple[str, Preset | None]:
    """`lntrust+lean` → lntrust, and the preset; a name without one, or with an unknown one, as it is."""
    method, plus, preset = name.partition("+")
    return (method, PRESETS[preset]) if plus and method == OF and preset in PRESETS else (name, None)


def names() -> list[str]:
    """As methods are named."""
    return [f"{OF}+{preset}" for preset in PRESETS]


def hidden_by(name: str, overrides: Sequence[str]) -> list[str]:
    """The settings of LNTrust among `path=value` overrides that a preset puts its own in the place of."""
    _, preset = method_of(name)
    fields = [path.partition("=")[0].strip().removeprefix(f"methods.{OF}.") for path in overrides]
    fields = [RENAMED.get(field, field) for field in fields]
    return [] if preset is None else [each for each in fields if each in preset.settings]
