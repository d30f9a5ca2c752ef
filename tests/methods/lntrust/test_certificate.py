"""`--certify` end to end: what it says survives a stop, and who cannot be certified is told so."""

from pathlib import Path

import pytest
from small_runs import SHORT, TORCH, study
from stopped_runs import stop

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.views import Views


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
    assert all(xi >= 0 for xi in tight["per_node"]["xi"])
    # After Stage 1, round 2, and the last look.
    assert [len(path) for path in tight["per_node"]["gate"]] == [3] * 6


def test_a_certified_run_has_a_folder_of_its_own(views: Views, tmp_path: Path) -> None:
    plain, certified = (Run(study(), "lntrust", 0, views, folder=tmp_path, certify=c) for c in (False, True))
    assert plain.folder != certified.folder


@pytest.mark.parametrize(("method", "deploy"), [("uniform", "none"), ("independent", "trust")])
def test_other_methods_have_none(views: Views, method: str, deploy: str) -> None:
    with pytest.raises(LNTrustError, match=f"--certify: method {method} has no certificate"):
        Run(study(f"deploy={deploy}"), method, 0, views, certify=True)
