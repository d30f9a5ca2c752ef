"""Runs whose numbers stop being finite: each ends as a result that says so, and harms nobody beside it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from stopped_runs import folder_of, named, stop
from torch import Tensor, nn

from lntrust import Study
from lntrust.core.errors import CannotStackError
from lntrust.experiment.divergence import what_diverged
from lntrust.experiment.driver import Run, Runs
from lntrust.experiment.sweep import Task, carry_out
from lntrust.learners.views import Views
from lntrust.methods import Deployment, Method, Site, State, list_methods
from lntrust.world import build_world

MORE = (
    "training.stage1_rounds=2", "training.stage2_rounds=4", "training.refresh=2", "evaluation.every=2",
    "evaluation.checkpoint_every=1", "methods.desa.condense_steps=5", "methods.centralized.epochs=3",
    "methods.lntrust.budget=40",
)  # fmt: skip
NO_FORESTS = """population.learners=[{name="linear",kind="linear",view="pixels"},
    {name="mlp",kind="mlp",view="pixels",options={hidden=16}},
    {name="cnn",kind="cnn2d",view="image",options={width=4}}]""".replace("\n", "")
FLOAT64 = (NO_FORESTS, "training.precision=float64", "graph.nodes=8", "partition.labelled=400")
BAD_SEED = 1
Make = Callable[..., Study]


@pytest.fixture(scope="module")
def tiny(small: Make) -> Make:
    """What `make` makes runs of."""
    return lambda *overrides: small(*MORE, *overrides)


class Breaks(Method):
    """The models of one seed's nodes break in round 4, the second of Stage 2."""

    def round(self, site: Site, state: State, t: int) -> State:
        state = super().round(site, state, t)
        for s, world in enumerate(site.world.worlds):
            if world.seed == BAD_SEED and t == 2:
                nodes = torch.arange(site.population.n)[site.world.nodes_of(s)]
                for stack in site.population.torch_stacks:
                    stack.params[min(stack.params)][torch.isin(stack.nodes, nodes)] = torch.inf
        return state


def object_to(site: Site) -> None:
    for stack in site.population.torch_stacks:
        if not all(bool(p.isfinite().all()) for p in stack.params.values()):
            raise ValueError("Input contains NaN")


class Objects(Breaks):
    """In the round after that, the method itself will have none of it."""

    def round(self, site: Site, state: State, t: int) -> State:
        object_to(site)
        return super().round(site, state, t)


class ObjectsAtOnce(Breaks):
    """In the same round, before anybody else has seen it."""

    def round(self, site: Site, state: State, t: int) -> State:
        state = super().round(site, state, t)
        object_to(site)
        return state


class TrustsNobodyKnowsHow(Method):
    """All models are well; the weights they are deployed with are not."""

    def deploy(self, site: Site, state: State) -> Deployment:
        weights = torch.full((len(site.network.edges),), torch.nan, dtype=site.population.dtype)
        return Deployment(site.network.edges, weights)


class Unsure(Method):
    """All is well; only there is a number it cannot tell."""

    def report(self, site: Site, state: State, nodes: slice = slice(None)) -> dict[str, Any]:
        return {"known": 0.5, "unknown": float("nan"), "each": [1.0, float("inf")]}


class Fails(Method):
    """A bug of its own."""

    def round(self, site: Site, state: State, t: int) -> State:
        raise ZeroDivisionError("a bug")


def speechless(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model that answers with nothing but NaN, before anybody has trained it."""

    class Speechless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(input_shape[0], classes)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.linear(x) * torch.nan
            return out

    return Speechless()


class TestAlone:
    @pytest.mark.parametrize("method", sorted(list_methods()))
    def test_every_method_ends_with_a_summary(self, method: str, make: Any, tmp_path: Path) -> None:
        folder = folder_of(make("training.lr=1e12", method=method, into="", share_stage1=tmp_path))
        assert json.loads((folder / "summary.json").read_text())["diverged"] == 1
        assert pq.read_table(folder / "rounds.parquet")["round"].to_pylist() == [1]
        assert not [*tmp_path.rglob("stage1/*")], "a broken Stage 1 is left to nobody"

    def test_it_stops_there_keeps_what_was_before_and_is_finished(self, make: Any, tmp_path: Path) -> None:
        one = make(method=named(Breaks), seed=BAD_SEED, into="")
        summary, whole = one(), make(method=named(Breaks), into="")()
        assert (summary["diverged"], whole["diverged"], one.done) == (4, None, 4)
        assert summary.keys() == whole.keys()
        assert summary["bytes"].keys() == whole["bytes"].keys()
        assert summary["per_node"].keys() == whole["per_node"].keys()
        scores = [name for name, value in whole.items() if isinstance(value, float) and name != "seconds"]
        assert len(scores) == 9
        assert all(summary[name] is None for name in scores)
        assert summary["per_node"]["test"] == [None] * 5
        rounds = pq.read_table(one.folders[0] / "rounds.parquet").to_pylist()
        assert [row["round"] for row in rounds] == [1, 2, 3, 4]
        assert [row["test"] is not None for row in rounds] == [False, True, False, False]
        files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        assert make(method=named(Breaks), seed=BAD_SEED, into="")(resume=True) == summary
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == files

    @pytest.mark.parametrize("method", [Objects, ObjectsAtOnce, TrustsNobodyKnowsHow])
    def test_what_a_method_says_to_it_is_no_error(self, method: type[Method], make: Any) -> None:
        """Weights that are not finite count at the first round in which a node answers with others."""
        one = make(method=named(method), seed=BAD_SEED, into="")
        assert one()["diverged"] == 4
        assert len(pq.read_table(one.folders[0] / "rounds.parquet")) == 4

    def test_a_methods_own_error_stays_one(self, make: Any) -> None:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            make(method=named(Fails), into="")()

    def test_a_number_that_is_not_finite_is_null(self, make: Any, tmp_path: Path) -> None:
        summary = make(method=named(Unsure), into="")()
        assert summary["diverged"] is None
        assert summary["test"] > 0.1
        assert summary["method_report"] == {"known": 0.5, "unknown": None, "each": [1.0, None]}
        (file,) = tmp_path.rglob("summary.json")
        assert json.loads(file.read_text()) == summary

    @pytest.mark.parametrize("method", ["independent", "lntrust"])
    def test_before_all_training(self, make: Any, tmp_path: Path, method: str) -> None:
        """Where there are no rounds, it is round 0 that says so."""
        own = f'population.learners=[{{name="own",kind="{__name__}:speechless",view="pixels"}}]'
        none = ["training.stage1_rounds=0", "training.stage2_rounds=0"]
        summary = make(own, *none, method=method, into="")()
        assert (summary["diverged"], summary["test"], summary["method_report"]) == (0, None, {})
        assert what_diverged([summary]) == "diverged at round 0"
        assert {path.name for path in tmp_path.rglob("*.parquet")} == {"rounds.parquet"}


@pytest.fixture(scope="module")
def outlier(tiny: Make, views64: Views) -> Views:
    """An example that is too large to train on: node 0 of one seed does, and nobody of seed 3 has it."""
    dataset = views64.dataset
    ours, theirs = (build_world(tiny(*FLOAT64), dataset, seed).partition for seed in (BAD_SEED, 3))
    lists = (theirs.train, theirs.validation, theirs.test, theirs.shard)
    used = np.concatenate([each.values for each in lists])
    row = next(row for row in ours.train[0].tolist() if row not in used)
    x = np.array(dataset.view("pixels"), dtype=np.float64)
    x[row] = 1e200
    spoilt = replace(dataset, views={"pixels": lambda: x, "image": lambda: x.reshape(-1, 1, 8, 8)})
    return Views(spoilt, torch.device("cpu"), torch.float64)


class TestBesideOthers:
    @pytest.mark.parametrize("method", sorted(list_methods()))
    def test_the_others_are_as_alone(self, method: str, tiny: Make, outlier: Views, views64: Views) -> None:
        bad, good = Runs(tiny(*FLOAT64), method, (BAD_SEED, 3), outlier)()
        alone = Run(tiny(*FLOAT64), method, 3, views64)()
        assert (bad["diverged"], good["diverged"]) == (1, None)
        for score in ("bytes", "test", "self", "test_pooled", "stage1", "p10", "harmed", "per_node"):
            assert good[score] == alone[score], score

    def test_a_stack_that_goes_on_knows_since_when(self, make: Any, tmp_path: Path) -> None:
        stop(make(method=named(Breaks), seed=(0, BAD_SEED), into=""), 5)
        got = make(method=named(Breaks), seed=(0, BAD_SEED), into="")(resume=True)
        assert [summary["diverged"] for summary in got] == [None, 4]
        tables = {path.parent.name[:6]: pq.read_table(path) for path in tmp_path.rglob("rounds.parquet")}
        assert {name: len(table) for name, table in tables.items()} == {"seed-0": 6, "seed-1": 4}

    def test_a_method_that_cannot_go_on_beside_it_has_its_seeds_run_one_by_one(
        self, tiny: Make, make: Any, views: Views, tmp_path: Path
    ) -> None:
        with pytest.raises(CannotStackError, match=r"seed 1 has diverged.*contains NaN.*one by one"):
            make(method=named(Objects), seed=(0, BAD_SEED), into="")()
        task = Task(study=tiny(), method=named(Objects), seeds=[0, BAD_SEED], device="cpu", setting={})
        said: list[str] = []
        got = carry_out(task, views, tmp_path, notice=said.append)
        assert [summary["diverged"] for summary in got] == [None, 4]
        assert [summary["stacked"] for summary in got] == [1, 1]
        assert any("seed 1 has diverged" in text for text in said)
        assert got[0]["test"] == make(method=named(Objects), into="")()["test"]
