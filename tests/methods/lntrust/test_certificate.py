"""`--certify` end to end: what it says is so, and survives a stop; who cannot be certified is told so."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import ONLY_LINEAR, SHORT, TORCH, ended, levers, study
from stopped_runs import stop

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.trust import bounds

PLAIN_SGD = ("training.momentum=0.0", "training.lr=0.01")


def certified(views: Views, *overrides: str) -> tuple[Run, dict[str, Any]]:
    run, summary = ended(views, *SHORT, *overrides, method="lntrust", certify=True)
    return run, summary["method_report"]["certificate"]


def test_a_resumed_certificate_is_the_same_and_its_settings_are_used(views: Views, tmp_path: Path) -> None:
    def make(name: str, *sets: str) -> Run:
        often = study(TORCH, *SHORT, "evaluation.checkpoint_every=1", *sets)
        return Run(often, "lntrust", 0, views, folder=tmp_path / name, certify=True)

    tight = make("whole")()["method_report"]["certificate"]
    for number in (2, 3):  # in the middle, and when only the summary is missing; whoever answers
        stop(make("stopped", "deploy=self"), number, resume=True)
    assert make("stopped", "deploy=self")(resume=True)["method_report"]["certificate"] == tight
    sets = ("methods.lntrust.epsilon_dep=0.5", "methods.lntrust.delta=0.2")
    loose = make("loose", *sets)()["method_report"]["certificate"]
    assert (loose["epsilon_dep"], loose["delta"]) == (0.5, 0.2)
    assert (tight["epsilon_dep"], tight["delta"]) == (0.1, 0.05)
    for a, b in zip(loose["per_node"]["excess_bound"], tight["per_node"]["excess_bound"], strict=True):
        assert a < b
    # After Stage 1, round 2, and the last look.
    assert [len(path) for path in tight["per_node"]["gate"]] == [3] * 6


def test_no_weights_are_better_than_xi_allows(views: Views) -> None:
    """On a ring, where all weights of three members can be tried; α̂ is fitted to another loss."""
    run, certificate = certified(views, TORCH, "graph.kind=ring", "training.stage2_rounds=1")
    parts = torch.cartesian_prod(torch.arange(101), torch.arange(101)).double() / 100
    parts = parts[parts.sum(-1) <= 1]
    everywhere = torch.cat([parts, 1 - parts.sum(-1, keepdim=True)], -1)
    said, evidence = certificate["per_node"], run.state.evidence
    for i in range(6):
        p_true = evidence.at(slice(i, i + 1)).p_true.double()
        risk = float(bounds.clipped_risk(p_true, run.state.closed[i].double(), 0.1))
        lowest = float(bounds.clipped_risk(p_true, everywhere, 0.1).min())
        assert said["validation_risk"][i] == pytest.approx(risk)
        assert said["xi"][i] >= risk - lowest - 1e-9
        assert said["xi"][i] <= risk - lowest + 2e-3, "and not much more than that"
        assert 0 <= said["xi_at_least"][i] <= said["xi"][i]
    assert max(said["xi"]) > 0.01, "or nothing is shown"


class TestAssumptions:
    @staticmethod
    def broken(certificate: dict[str, Any]) -> dict[str, str]:
        """By what is assumed, why it is not so."""
        broken = [one for one in certificate["assumptions"] if not one["holds"]]
        out = {one["says"]: "; ".join(one["why_not"]) for one in broken}
        assert all(out.values())
        assert certificate["assumptions_hold"] == (not out)
        return out

    def test_they_hold_for_heads_and_plain_sgd_if_validation_is_split(self, views: Views) -> None:
        split = (ONLY_LINEAR, *PLAIN_SGD, *levers(split_validation="true"))
        assert not self.broken(certified(views, *split)[1])

    @pytest.mark.parametrize(
        ("sets", "why"),
        [
            (levers(split_validation="false"), "split_validation = true keeps half apart"),
            (["training.momentum=0.9"], "momentum = 0.9"),
            ([TORCH], "linear heads only"),
            (["partition.draws=overlapping"], "other nodes train on examples of V_i"),
            (["partition.validation=fresh"], "shares of classes"),
            (levers(certainty=0.7), "stops asking"),
            (levers(weighting="weighted_majority"), "weights for each class"),
        ],
    )
    def test_each_that_does_not_says_why(self, views: Views, sets: list[str], why: str) -> None:
        split = (ONLY_LINEAR, *PLAIN_SGD, *levers(split_validation="true"))
        ((_, said),) = self.broken(certified(views, *split, *sets)[1]).items()
        assert why in said

    def test_who_is_not_taught_owes_nothing_to_its_validation_set(self, views: Views) -> None:
        assert not self.broken(certified(views, ONLY_LINEAR, *PLAIN_SGD, *levers(budget=0))[1])

    def test_of_other_models_the_drift_is_measured_and_its_bound_not_known(self, views: Views) -> None:
        certificate = certified(views, TORCH, *PLAIN_SGD)[1]
        assert None in certificate["per_node"]["drift_bound_log10"]
        assert None not in certificate["per_node"]["drift"]


def test_33_members(views: Views) -> None:
    """As in the densest graphs of the paper's settings."""
    dense = ("graph.nodes=33", "graph.kind=complete", "partition.labelled=660", "partition.minimum=20")
    said = certified(views, ONLY_LINEAR, *dense)[1]["per_node"]
    assert said["members"] == [33] * 33
    for m, excess, xi in zip(said["validation_examples"], said["excess_bound"], said["xi"], strict=True):
        assert excess == pytest.approx(sum(bounds.deployment_bound(33, m, 0.1, 0.05)))
        assert xi >= 0


def test_a_certified_run_has_a_folder_of_its_own(views: Views, tmp_path: Path) -> None:
    plain, certified = (Run(study(), "lntrust", 0, views, folder=tmp_path, certify=c) for c in (False, True))
    assert plain.folder != certified.folder


@pytest.mark.parametrize(("method", "deploy"), [("uniform", "none"), ("independent", "trust")])
def test_other_methods_have_none(views: Views, method: str, deploy: str) -> None:
    with pytest.raises(LNTrustError, match=f"--certify: method {method} has no certificate"):
        Run(study(f"deploy={deploy}"), method, 0, views, certify=True)
