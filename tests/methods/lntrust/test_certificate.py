"""`--certify` end to end: what it says survives a stop, and who cannot be certified is told so."""

from pathlib import Path
from typing import Any

import pytest
from small_runs import study

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.views import Views

SAVED = ("evaluation.checkpoint_every=1",)


class Stopped(BaseException):
    """A stop from outside."""


def stop_at(number: int) -> Any:
    def progress(done: int, *_: object) -> None:
        if done == number:
            raise Stopped

    return progress


def test_a_resumed_certificate_is_the_same(views: Views, tmp_path: Path) -> None:
    whole = Run(study(*SAVED), "lntrust", 0, views, folder=tmp_path / "a", certify=True)()
    for number in (3, 5):
        with pytest.raises(Stopped):
            Run(study(*SAVED), "lntrust", 0, views, folder=tmp_path / "b", certify=True)(
                resume=True, progress=stop_at(number)
            )
    resumed = Run(study(*SAVED), "lntrust", 0, views, folder=tmp_path / "b", certify=True)(resume=True)
    assert resumed["method_report"]["certificate"] == whole["method_report"]["certificate"]


def test_a_certified_run_has_a_folder_of_its_own(views: Views, tmp_path: Path) -> None:
    plain, certified = (Run(study(), "lntrust", 0, views, folder=tmp_path, certify=c) for c in (False, True))
    assert plain.folder != certified.folder


def test_its_settings_are_used(views: Views) -> None:
    sets = ("methods.lntrust.epsilon_dep=0.5", "methods.lntrust.delta=0.2")
    loose = Run(study(*sets), "lntrust", 0, views, certify=True)()["method_report"]["certificate"]
    tight = Run(study(), "lntrust", 0, views, certify=True)()["method_report"]["certificate"]
    assert (loose["epsilon_dep"], loose["delta"]) == (0.5, 0.2)
    assert (tight["epsilon_dep"], tight["delta"]) == (0.1, 0.05)
    for a, b in zip(loose["per_node"]["excess_bound"], tight["per_node"]["excess_bound"], strict=True):
        assert a < b
    nodes = tight["per_node"]
    assert all(xi >= 0 for xi in nodes["xi"])
    assert [len(path) for path in nodes["gate"]] == [4] * 6, (
        "after Stage 1, rounds 2 and 4, and the last look"
    )


def test_other_methods_have_none(views: Views) -> None:
    with pytest.raises(LNTrustError, match="--certify: method uniform has no certificate"):
        Run(study(), "uniform", 0, views, certify=True)
