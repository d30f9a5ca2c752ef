"""Stacks that were stopped: they go on together, unless one of their seeds has gone its own way since."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from stopped_runs import Stopped, stop_after

from lntrust.experiment import Run
from lntrust.experiment.compared import compared
from lntrust.experiment.sweep import Task, carry_out
from lntrust.learners.views import Views
from lntrust.methods import Site, State
from lntrust.methods.uniform import Uniform

SEEDS = [0, 1]
Go = Callable[..., list[dict[str, Any]]]


@pytest.fixture(params=["run", "sweep"])
def go(request: pytest.FixtureRequest, tiny: Any, views: Views, tmp_path: Path) -> Go:
    """A method with two seeds in a stack, or what is left of it; stops after a round if asked to."""

    def call(stop: int | None = None, method: str = "uniform") -> list[dict[str, Any]]:
        progress = stop_after(stop)
        if request.param == "run":
            resumed: dict[str, Any] = {"resume": True, "begin": lambda *_: progress}
            return next(compared(tiny(), [method], SEEDS, views, tmp_path, **resumed))
        task = Task(study=tiny(), method=method, seeds=SEEDS, device="cpu", setting={})
        return carry_out(task, views, tmp_path, progress=progress)

    return call


def stacks(folder: Path) -> Sequence[Path]:
    return [*folder.rglob("stack-*")]


def test_a_seed_that_was_finished_alone_is_kept(go: Go, tiny: Any, views: Views, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        go(stop=3)
    assert stacks(tmp_path)
    alone = Run(tiny(), "uniform", 0, views, folder=tmp_path)()
    made = go()
    assert made[0] == alone, "`seconds` too"
    assert [summary["stacked"] for summary in made] == [1, 1]
    assert not stacks(tmp_path)


def test_a_seed_whose_folder_is_gone_is_made_anew_with_the_others(go: Go, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        go(stop=3)
    (folder,) = tmp_path.rglob("seed-1-*")
    shutil.rmtree(folder)
    assert [summary["stacked"] for summary in go()] == [2, 2]


def test_a_stack_that_was_given_up_leaves_nothing_to_go_on_from(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seeds have run one by one, and each is its own from then on."""

    def round_(self: Uniform, site: Site, state: State, t: int) -> State:
        seeds = [world.seed for world in site.world.worlds]
        if t == 2 and 1 in seeds:
            nodes = torch.arange(site.population.n)[site.world.nodes_of(seeds.index(1))]
            for stack in site.population.torch_stacks:
                stack.params[min(stack.params)][torch.isin(stack.nodes, nodes)] = torch.nan
            raise ValueError("not with these numbers")
        return super(Uniform, self).round(site, state, t)

    monkeypatch.setattr(Uniform, "round", round_)
    first = go()
    assert [(summary["stacked"], summary["diverged"]) for summary in first] == [(1, None), (1, 4)]
    assert not stacks(tmp_path)
    (folder,) = tmp_path.rglob("seed-0-*")
    shutil.rmtree(folder)
    again = go()
    assert again[1] == first[1]
    assert (again[0]["test"], again[0]["stacked"]) == (first[0]["test"], 1)
