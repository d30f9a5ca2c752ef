"""The settings of LNTrust. Published values are the defaults."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lntrust.network.encodings import ENCODINGS
from lntrust.study.settings import Later, MethodSettings, Range
from lntrust.trust.fit import PRIORS
from lntrust.trust.rivals import WEIGHTINGS

# Of earlier versions: what is called otherwise today, and what is gone, with the value that had no effect.
RENAMED = {"usual_lead": "typical_margin", "head_start": "prior_wins"}
CUT: dict[str, Any] = {
    "look_back": None, "calibrate": False, "probe_others": 1, "answer_k": None, "importance_power": 1.0,
}  # fmt: skip


def renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier version's settings under today's names."""
    return {RENAMED.get(name, name): value for name, value in given.items()}


class LNTrustSettings(MethodSettings):
    """Published values are the defaults; those that differ by setting stand in the studies."""

    weighting: Literal[tuple(WEIGHTINGS)] = Field(  # type: ignore[valid-type]
        "trust", description="what makes α: " + "; ".join(f"{k}: {v.about}" for k, v in WEIGHTINGS.items())
    )
    strength: Annotated[float, Range(0.1, 2.0, log=True)] = Field(0.5, ge=0)
    """λ, the weight of distillation"""
    budget: int = Field(1000, ge=0, description="B, unlabelled examples per round; 0: no distillation")
    warmup: int = Field(5, ge=0, description="rounds of Stage 2 before distillation begins")
    targets: Annotated[Literal["hard", "soft"], Range(choices=("hard", "soft"))] = "hard"
    """learn the ensemble's argmax, or all of p̄"""
    soft_scale: float = Field(0.3, gt=0, le=1, description="α_KL, the scale of soft distillation")
    kl_scale: Literal["sum", "per_class"] = "sum"
    """sum: the paper's equation; per_class: divided by C, as the authors' code has it"""
    importance: Literal["mean_one", "paper", "off"] = "mean_one"
    """ω: C·w scaled to mean 1 over the kept examples; C·w as printed; or 1"""
    confidence_floor: float = Field(0.2, ge=0, le=1, description="τ_abs; the filter keeps max p̄ > τ(C)")
    confidence_margin: float = Field(0.1, ge=-1, le=1, description="τ_conf, the margin above 1/C")
    training_gate: bool = True
    """true: scale λ by a_ens/a_self where that is below 1; false: never"""
    deployment_gate: Literal["members", "ensemble", "loss", "off", "evidence"] = "members"
    """when to answer alone. members: the members' mean accuracy is below one's own (as published); ensemble:
    the ensemble's own accuracy is; loss: its loss is higher; off: never; evidence: it is likely to be no
    better, see `evidence`"""
    top_k: int | None = Field(None, ge=1, description="distil from the k most trusted neighbours; none: all")
    unlabelled: bool = Field(True, description="false: use no pool, neither for features nor to distil")
    epsilon_dep: float = Field(0.1, gt=0, le=1, description="--certify: the loss is clipped at −log ε")
    delta: float = Field(0.05, gt=0, lt=1, description="--certify: the bound holds with probability 1 − δ")
    sample: int = Field(500, ge=1, description="shard examples behind ŵ_j, redrawn at each refresh")
    split_validation: Annotated[bool, Later()] = False
    """half of V_i for trust and gates while training, the other half for the last fit: then the models that
    answer owe nothing to the labels that weigh them, which --certify's deployment bound assumes"""

    temperature: Annotated[float | None, Later()] = Field(None, gt=0)
    """T, weighting = linucb: α ∝ exp(bound/T); none: all weight on the highest bound"""

    # -- fewer bytes: docs/lean.md ------------------------------------------------------------------

    query: Annotated[Literal["inputs", "ids", "handle"] | None, Later()] = None
    """how queries name their examples; none: as the study's network.query"""
    reply: Annotated[str, Later()] = Field("float32", pattern=ENCODINGS)
    """float32: C numbers; uint8: C bytes; top3: the 3 likeliest classes in 6 bytes (or any number), what is
    left spread evenly over the others"""
    recall: Annotated[int | None, Later()] = Field(None, ge=1)
    """K: ask about the whole shard every K rounds and learn from the remembered replies in between; none: ask
    about B examples in every round"""
    refresh: Annotated[int | None, Later()] = Field(None, ge=1)
    """F: rounds between two refreshes of trust; none: training.refresh"""
    certainty: Annotated[float | None, Later()] = Field(None, ge=0, le=1)
    """κ: deployed, ask one neighbour after another, and stop when the likeliest class leads by κ times the
    weight of those not yet asked; at 1 they cannot change the answer. none: ask all"""
    typical_margin: Annotated[bool, Later()] = False
    """multiply certainty, if there is one, by how much the likeliest class leads in neighbours' replies, in
    the mean over the validation set"""

    # -- never worse than alone: docs/safe.md -------------------------------------------------------

    evidence: Annotated[float, Later()] = Field(0.5, gt=0, lt=1)
    """deployment_gate = evidence: answer together where the ensemble is better with this probability, by the
    validation examples that only one of the two gets right"""
    prior_wins: Annotated[float, Later()] = Field(0.0, ge=0)
    """deployment_gate = evidence: so many examples count as won in advance for each effective neighbour,
    (Σα)²/Σα² of them"""
    self_share: Annotated[float, Later()] = Field(0.0, ge=0, lt=1)
    """β: so much of the vote stays with the node, deployed: (1 − β)·α + β·self"""
    final_rounds: Annotated[int, Later()] = Field(0, ge=0)
    """last rounds that train on what was withheld for validation too, with trust frozen"""
    prior: Annotated[Literal[PRIORS], Later()] = "none"  # type: ignore[valid-type]
    """weighting = trust: what α is drawn to. self: the node itself; accuracy: its members in proportion to
    their probe accuracy; uniform: all alike"""
    prior_examples: Annotated[float, Later()] = Field(10.0, gt=0)
    """how many validation examples the prior counts as"""

    @model_validator(mode="before")
    @classmethod
    def _of_today(cls, given: Any) -> Any:
        """An earlier version's settings, without those that are gone, where these had no effect."""
        if not isinstance(given, Mapping):
            return given
        for name, value in given.items():
            if value != CUT.get(name, value) or (name, value) == ("training_gate", "evidence"):
                gone = "no longer there (docs/lean.md and docs/safe.md tell what it gave)"
                raise ValueError(f"{name} = {value!r}: {gone}")
        return {name: value for name, value in renamed(given).items() if name not in CUT}

    @model_validator(mode="after")
    def _fits(self) -> "LNTrustSettings":
        if self.prior != "none" and self.weighting != "trust":
            raise ValueError(f"prior = {self.prior} needs weighting = trust, not {self.weighting}")
        if self.temperature is not None and self.weighting != "linucb":
            raise ValueError(
                f"temperature = {self.temperature} needs weighting = linucb, not {self.weighting}"
            )
        if self.weighting == "weighted_majority" and (self.certainty is not None or self.self_share):
            name = "self_share" if self.certainty is None else "certainty"
            raise ValueError(f"{name} needs one weight per member; weighted_majority has one per class")
        return self
