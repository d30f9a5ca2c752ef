"""The driver: same seed same bits, two backends one result, sealed labels, one schedule for all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stopped_runs import LINEAR, Make, named, timeless

from lntrust import LNTrustError, Study
from lntrust.core.files import read_tensors
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Deployment, Method, Site, State
from lntrust.world import Dataset, World, build_world
from lntrust.world.world import SealedLabels


def evaluations(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: read_tensors(path)[0] for path in sorted(folder.rglob("round-*.safetensors"))}


class TestSeeds:
    @pytest.mark.parametrize("method", ["uniform", "centralized"])
    def test_the_same_seed_gives_the_same_and_another_another(self, make: Make, method: str) -> None:
        """Whatever else runs, and whatever state torch's own generator is in."""
        torch.manual_seed(1)
        first, other = make(method=method, seed=3)(), make(method=method, seed=1)()
        torch.manual_seed(2)
        assert timeless(make(method=method, seed=3)()) == timeless(first)
        for name in ("test_pooled", "favoured_share"):
            assert first["per_node"][name] != other["per_node"][name]

    def test_who_only_deploys_trains_alike_however_often_it_is_evaluated(self, make: Make) -> None:
        rare, often = (make(f"evaluation.every={k}")() for k in (100, 1))
        alone = make(method="independent")()
        assert alone["stage1"] == often["stage1"]
        assert alone["per_node"]["self"] == often["per_node"]["self"]
        assert alone["per_node"]["test"] != often["per_node"]["test"]
        for name in ("test", "self", "test_pooled", "bytes", "per_node"):
            assert rare[name] == often[name]


class TestBackends:
    """Linear, MLP, CNN and forest in turn, all nodes at once or one at a time."""

    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, small: Any, views64: Views, tmp_path: Path, schedule: str) -> None:
        study = small("training.precision=float64", f"training.schedule={schedule}")
        runs = {
            backend: Run(study, "uniform", 0, views64, backend=backend, folder=tmp_path / backend)
            for backend in ("batched", "loop")
        }
        summaries = {name: timeless(one()) for name, one in runs.items()}
        assert [summaries[name].pop("backend") for name in runs] == ["batched", "loop"]
        assert summaries["batched"] == summaries["loop"]
        batched, loop = (evaluations(tmp_path / name) for name in runs)
        assert list(batched) == list(loop) == [f"round-0000{r}.safetensors" for r in (1, 2, 3)]
        for name in batched:
            assert set(batched[name]) == set(loop[name]) == {"self", "deployed"}
            assert all(torch.equal(batched[name][way], loop[name][way]) for way in batched[name])
        one, other = (r.population.state() for r in runs.values())
        for name, tensor in one.items():
            torch.testing.assert_close(tensor, other[name], rtol=0, atol=1e-8)

    def test_close_in_float32(self, small: Any, views: Views) -> None:
        runs = [Run(small(), "uniform", 0, views, backend=b) for b in ("batched", "loop")]
        first, second = (one() for one in runs)
        for name, tensor in runs[0].population.state().items():
            torch.testing.assert_close(tensor, runs[1].population.state()[name], rtol=0, atol=1e-5)
        for name in ("test", "self", "test_pooled"):
            difference = np.subtract(first["per_node"][name], second["per_node"][name])
            assert np.abs(difference).max() <= 0.125  # one of eight test examples


def test_hidden_labels_are_not_in_the_world_and_opened_once_after_the_last_round(make: Make) -> None:
    opened: list[tuple[int, list[int]]] = []

    class Watched(SealedLabels):
        def open(self, ids: np.ndarray) -> np.ndarray:
            opened.append((one.done, ids.tolist()))
            return super().open(ids)

    def make_world(study: Study, dataset: Dataset, seed: int, _: bool) -> World:
        return replace(build_world(study, dataset, seed), sealed=Watched(dataset.labels))

    one = make(make_world=make_world)
    p, labels = one.world.partition, one.world.labels
    for hidden in (p.test.values, p.pool, p.shard.values):
        assert (labels[hidden] == -1).all()
    for lists in (p.train, p.validation):
        assert (labels[lists.values] == one.views.dataset.labels[lists.values]).all()
    one()
    assert opened == [(one.rounds, sorted(p.test.values.tolist()))]


class Twice(Method):
    """Goes through the granted batches twice."""

    def round(self, site: Site, state: State, t: int) -> State:
        return super().round(site, super().round(site, state, t), t)


class Early(Method):
    """Takes steps before its first round."""

    def start(self, site: Site) -> State:
        return super().round(site, {}, 1)


class Late(Method):
    """Takes steps after its last round."""

    def finish(self, site: Site, state: State) -> State:
        return super().round(site, state, 1)


class Frugal(Method):
    """Takes fewer steps than granted."""

    def round(self, site: Site, state: State, t: int) -> State:
        for k, batch in enumerate(site.labelled.round(t - 1)):
            if k < 2:
                site.population.step(batch)
        return state


class Stranger(Method):
    """Deploys a node far away."""

    def deploy(self, site: Site, state: State) -> Deployment:
        return Deployment(torch.tensor([[0, 2]]), torch.ones(1, dtype=site.population.dtype))


class TestRules:
    @pytest.mark.parametrize(("method", "round_"), [(Twice, 3), (Early, 2), (Late, 5)])
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_more_labelled_steps_than_granted_are_refused(
        self, make: Make, method: type[Method], round_: int, schedule: str
    ) -> None:
        took = f"method {named(method)}: took .* labelled steps in round {round_}; the schedule grants"
        with pytest.raises(LNTrustError, match=took):
            make(LINEAR, f"training.schedule={schedule}", method=named(method))()

    def test_fewer_are_not(self, make: Make) -> None:
        assert make(LINEAR, method=named(Frugal))()["method"] == named(Frugal)

    def test_only_neighbours_can_be_deployed(self, make: Make) -> None:
        with pytest.raises(LNTrustError, match="deploys node 2 at node 0, which does not know it"):
            make(LINEAR, "graph.kind=ring", method=named(Stranger))()


@pytest.mark.parametrize(("stage1", "stage2"), [(0, 0), (0, 2), (2, 0), (1, 1)])
@pytest.mark.parametrize("method", ["uniform", "centralized"])
def test_hardly_any_rounds(make: Make, stage1: int, stage2: int, method: str) -> None:
    """Studies at the border of what makes sense still end with a summary."""
    rounds = (f"training.stage1_rounds={stage1}", f"training.stage2_rounds={stage2}")
    summary = make(*rounds, method=method, into="")()
    assert summary["best_round_test_selected"] >= summary["test"]
    assert (summary["stage1"] is None) == (stage1 == 0)
