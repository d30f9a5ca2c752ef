"""Methods beside each other: seeds stacked where it pays, Stage 1 once, and as it would be without either."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stopped_runs import Stopped, named, stop, stop_after, timeless

from lntrust.core.errors import LNTrustError
from lntrust.core.threads import FEW
from lntrust.experiment import run
from lntrust.experiment.compared import compared
from lntrust.experiment.driver import Run
from lntrust.learners.views import Views
from lntrust.methods import Method, Site, State

SEEDS = (2, 0, 1)


class Watch:
    """Which seeds ran together, and the rounds they began at."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, list[int], int]] = []

    def __call__(self, method: str, seeds: Sequence[int], rounds: int) -> Any:
        first = iter([True])
        return lambda done, *_: self.begun.append((method, list(seeds), done)) if next(first, False) else None


def test_every_seed_has_what_it_has_alone(tiny: Any, views: Views, tmp_path: Path) -> None:
    watch = Watch()
    methods = ["independent", "uniform", "lntrust", "lntrust+best"]
    found = [*compared(tiny(), methods, SEEDS, views, tmp_path, begin=watch)]
    assert [[(s["method"], s["seed"]) for s in made] for made in found] == [
        [(method, seed) for seed in SEEDS] for method in methods
    ]
    assert all(summary["stacked"] == 3 for made in found for summary in made)
    # Two Stage 1: with the validation labels, and without.
    assert watch.begun == [(m, [0, 1, 2], done) for m, done in zip(methods, (0, 2, 0, 2), strict=True)]
    for method, made in zip(methods, found, strict=True):
        for summary in made:
            alone = run(tiny(), method, summary["seed"], views)
            assert summary["test"] == pytest.approx(alone["test"], abs=0.021), "one example of a node or so"
            assert summary["bytes"] == alone["bytes"]
    assert not list(tmp_path.rglob(".*")), "Stage 1 is not left to a fresh start"
    assert not list(tmp_path.rglob("stack-*"))


@pytest.mark.parametrize("stop", [1, 3])
def test_a_stack_that_was_stopped_goes_on(tiny: Any, views: Views, tmp_path: Path, stop: int) -> None:
    methods, watch = ["independent", "uniform"], Watch()
    with pytest.raises(Stopped):
        [*compared(tiny(), methods, SEEDS, views, tmp_path / "stopped", begin=lambda *_: stop_after(stop))]
    assert not list((tmp_path / "stopped").glob(".*"))
    went_on = [*compared(tiny(), methods, SEEDS, views, tmp_path / "stopped", resume=True, begin=watch)]
    assert watch.begun[0] == ("independent", [0, 1, 2], stop)
    whole = [*compared(tiny(), methods, SEEDS, views, tmp_path / "whole")]
    assert [[*map(timeless, made)] for made in went_on] == [[*map(timeless, made)] for made in whole]


def test_what_has_ended_or_begun_alone_stays_alone(tiny: Any, views: Views, tmp_path: Path) -> None:
    done = Run(tiny(), "uniform", 1, views, folder=tmp_path)()
    stop(Run(tiny(), "uniform", 3, views, folder=tmp_path), 2)
    watch = Watch()
    (made,) = compared(tiny(), ["uniform"], [0, 1, 2, 3], views, tmp_path, resume=True, begin=watch)
    assert watch.begun == [("uniform", [1], 5), ("uniform", [3], 2), ("uniform", [0, 2], 0)]
    assert made[1] == done
    assert [summary["seed"] for summary in made] == [0, 1, 2, 3]


@pytest.mark.parametrize("resume", [False, True])
def test_workers_make_what_one_process_makes(tiny: Any, views: Views, tmp_path: Path, resume: bool) -> None:
    methods, shown = ["independent", "uniform"], list[tuple[str, int]]()
    Run(tiny(), "uniform", 1, views, folder=tmp_path / "two")()

    def begin(method: str, *_: object) -> Any:
        return lambda done, *_: shown.append((method, done))

    options: dict[str, Any] = {"resume": resume, "begin": begin}
    two = [*compared(tiny(), methods, SEEDS, views, tmp_path / "two", workers=2, **options)]
    one = [*compared(tiny(), methods, SEEDS, views, tmp_path / "one")]
    same = [summary["seed"] for made in two for summary in made if summary["stacked"] == 3]
    assert same == ([*SEEDS] if resume else [*SEEDS, *SEEDS])
    assert [*map(timeless, two[0])] == [*map(timeless, one[0])]
    assert [s["bytes"] for s in two[1]] == [s["bytes"] for s in one[1]]
    assert {method for method, done in shown if done == tiny().training.rounds} == {*methods}
    assert [*(tmp_path / "two").rglob("attempt-1.json")], "a worker of a sweep made it"


def test_what_workers_notice_is_told(tiny: Any, views: Views, tmp_path: Path) -> None:
    study, said = tiny("partition.pool=0", "partition.shard=0"), list[str]()
    for _ in compared(study, ["feddf", "fedmd"], [0], views, tmp_path, workers=2, notice=said.append):
        pass
    alone = "no public examples: nodes train alone"
    assert {f"feddf: {alone}", f"fedmd: {alone}"} <= {*said}


def test_an_error_of_a_worker_is_raised_as_it_is(tiny: Any, views: Views, tmp_path: Path) -> None:
    (folder := tmp_path / "no folder").write_text("")
    with pytest.raises(LNTrustError, match="no folder"):  # what one process says
        next(compared(tiny(), ["uniform"], SEEDS, views, folder, workers=2))


class Averages(Method):
    """Over all rows there are, as if there were never more than one world."""

    def round(self, site: Site, state: State, t: int) -> State:
        for stack in site.population.torch_stacks:
            for parameter in stack.params.values():
                parameter.copy_(parameter.mean(0).expand_as(parameter).clone())
        return super().round(site, state, t)


@pytest.mark.parametrize(
    ("method", "change", "options"),
    [
        (named(Averages), [], {}),  # whose author knows nothing of stacked worlds
        ("lntrust", [], {"certify": True}),
        ("uniform", [], {"backend": "loop"}),
        ("uniform", [f"training.batch={FEW // (5 * 64) + 1}"], {}),  # enough work for one at a time
    ],
)
def test_some_run_one_by_one(
    tiny: Any, views: Views, tmp_path: Path, method: str, change: list[str], options: dict[str, Any]
) -> None:
    watch = Watch()
    (made,) = compared(tiny(*change), [method], SEEDS, views, tmp_path, begin=watch, **options)
    assert [seeds for _, seeds, _ in watch.begun] == [[0], [1], [2]]
    assert [summary["seed"] for summary in made] == list(SEEDS)
    assert all(summary["stacked"] == 1 for summary in made)
    if method == named(Averages):
        assert timeless(made[1]) == timeless(run(tiny(), method, SEEDS[1], views))
