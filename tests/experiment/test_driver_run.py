"""The driver: same seed same bits, two backends one result, sealed labels, one schedule for all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lntrust import LNTrustError, Study, load_study
from lntrust.core.files import read_tensors
from lntrust.experiment import Run, run
from lntrust.learners.views import Views
from lntrust.methods import Deployment, Method, Site, State

# Linear, MLP, CNN and forest in turn, on five nodes.
MIXED = [
    "graph.nodes=5", "partition.labelled=250", "training.stage1_rounds=2", "training.stage2_rounds=3",
    "training.refresh=2", "evaluation.every=2", "population.learners.3.options.trees=5",
]  # fmt: skip


def told(summary: dict[str, Any]) -> dict[str, Any]:
    """All of a summary that must be equal: everything but `seconds`."""
    return {name: value for name, value in summary.items() if name != "seconds"}


def evaluations(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: read_tensors(path)[0] for path in sorted(folder.rglob("round-*.safetensors"))}


class TestSeeds:
    @pytest.mark.parametrize("method", ["independent", "uniform", "centralized"])
    def test_the_same_seed_gives_the_same_summary(self, tiny: Any, views: Views, method: str) -> None:
        assert told(run(tiny(), method, 3, views)) == told(run(tiny(), method, 3, views))

    def test_another_seed_gives_another(self, tiny: Any, views: Views) -> None:
        first, second = (run(tiny(), "uniform", seed, views) for seed in (0, 1))
        assert first["per_node"]["test_pooled"] != second["per_node"]["test_pooled"]
        assert first["per_node"]["favoured_share"] != second["per_node"]["favoured_share"]

    def test_what_else_runs_changes_nothing(self, tiny: Any, views: Views) -> None:
        alone = told(run(tiny(), "uniform", 0, views))
        run(tiny(), "independent", 0, views)
        run(tiny(), "centralized", 0, views)
        assert told(run(tiny(), "uniform", 0, views)) == alone

    def test_torchs_own_generator_does_not_matter(self, tiny: Any, views: Views) -> None:
        torch.manual_seed(1)
        first = told(run(tiny(), "uniform", 0, views))
        torch.manual_seed(2)
        assert told(run(tiny(), "uniform", 0, views)) == first

    def test_stage_1_and_training_are_the_same_for_methods_that_only_deploy(
        self, tiny: Any, views: Views
    ) -> None:
        alone, together = (run(tiny(), method, 0, views) for method in ("independent", "uniform"))
        assert alone["stage1"] == together["stage1"]
        assert alone["per_node"]["self"] == together["per_node"]["self"]
        assert alone["per_node"]["test"] != together["per_node"]["test"]

    def test_evaluating_more_often_changes_nothing(self, tiny: Any, views: Views) -> None:
        rare, often = (run(tiny(f"evaluation.every={k}"), "uniform", 0, views) for k in (100, 1))
        for name in ("test", "self", "test_pooled", "bytes", "per_node"):
            assert rare[name] == often[name]


class TestBackends:
    def study(self, *overrides: str) -> Study:
        return load_study("digits", [*MIXED, *overrides])

    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, views64: Views, tmp_path: Path, schedule: str) -> None:
        study = self.study("training.precision=float64", f"training.schedule={schedule}")
        runs = {
            backend: Run(study, "uniform", 0, views64, backend=backend, folder=tmp_path / backend)  # type: ignore[arg-type]
            for backend in ("batched", "loop")
        }
        summaries = {name: told(one()) for name, one in runs.items()}
        assert summaries["batched"].pop("backend") == "batched"
        assert summaries["loop"].pop("backend") == "loop"
        assert summaries["batched"] == summaries["loop"]
        batched, loop = (evaluations(tmp_path / name) for name in runs)
        assert list(batched) == list(loop) == [f"round-0000{r}.safetensors" for r in (2, 4, 5)]
        for name in batched:
            assert set(batched[name]) == set(loop[name]) == {"self", "deployed"}
            assert all(torch.equal(batched[name][way], loop[name][way]) for way in batched[name])
        one, other = (r.population.state() for r in runs.values())
        for name, tensor in one.items():
            torch.testing.assert_close(tensor, other[name], rtol=0, atol=1e-8)

    def test_close_in_float32(self, views: Views) -> None:
        runs = [Run(self.study(), "uniform", 0, views, backend=b) for b in ("batched", "loop")]  # type: ignore[arg-type]
        first, second = (one() for one in runs)
        for name, tensor in runs[0].population.state().items():
            torch.testing.assert_close(tensor, runs[1].population.state()[name], rtol=0, atol=1e-5)
        for name in ("test", "self", "test_pooled"):
            difference = np.subtract(first["per_node"][name], second["per_node"][name])
            assert np.abs(difference).max() <= 0.125  # one of eight test examples


class TestSealedLabels:
    @pytest.mark.parametrize("validation", ["withheld", "fresh"])
    def test_no_label_of_test_or_pool_is_in_the_world(self, tiny: Any, views: Views, validation: str) -> None:
        one = Run(tiny(f"partition.validation={validation}"), "uniform", 0, views)
        p = one.world.partition
        assert (one.world.labels[p.test.values] == -1).all()
        assert (one.world.labels[p.pool] == -1).all()
        assert (one.world.labels[p.shard.values] == -1).all()
        for lists in (p.train, p.validation, p.given_up):
            assert (one.world.labels[lists.values] == views.dataset.labels[lists.values]).all()

    def test_a_second_opening_is_refused(self, tiny: Any, views: Views) -> None:
        sealed = Run(tiny(), "uniform", 0, views).world.sealed
        ids = np.array([4, 2])
        assert sealed.open(ids).tolist() == views.dataset.labels[ids].tolist()
        with pytest.raises(RuntimeError, match="read once, after training"):
            sealed.open(ids)

    def test_a_run_opens_them_once_after_its_last_round(
        self, tiny: Any, views: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Run(tiny(), "uniform", 0, views)
        opened: list[tuple[int, list[int]]] = []
        real = one.world.sealed.open

        def watched(ids: np.ndarray) -> np.ndarray:
            opened.append((one.done, ids.tolist()))
            return real(ids)

        monkeypatch.setattr(one.world.sealed, "open", watched)
        one()
        assert opened == [(one.rounds, sorted(one.world.partition.test.values.tolist()))]


class Greedy(Method):
    """Takes every granted step twice."""

    def round(self, site: Site, state: State, t: int) -> State:
        for batch in site.labelled.round(t - 1):
            site.population.step(batch)
            site.population.step(batch)
        return state


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
    @pytest.mark.parametrize(("method", "round_"), [("Greedy", 3), ("Twice", 3), ("Early", 2), ("Late", 5)])
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_more_labelled_steps_than_granted_are_refused(
        self, tiny: Any, views: Views, method: str, round_: int, schedule: str
    ) -> None:
        name = f"{__name__}:{method}"
        with pytest.raises(LNTrustError) as refusal:
            run(tiny(f"training.schedule={schedule}"), name, 0, views)
        assert f"method {name}: took " in str(refusal.value)
        assert f"labelled steps in round {round_}; the schedule grants" in str(refusal.value)

    def test_fewer_are_not(self, tiny: Any, views: Views) -> None:
        assert run(tiny(), f"{__name__}:Frugal", 0, views)["method"] == f"{__name__}:Frugal"

    def test_only_neighbours_can_be_deployed(self, tiny: Any, views: Views) -> None:
        study = tiny("graph.kind=ring")
        with pytest.raises(LNTrustError, match="deploys node 2 at node 0, which does not know it"):
            run(study, f"{__name__}:Stranger", 0, views)


class TestEdges:
    """Studies at the border of what makes sense still end with a summary."""

    @pytest.mark.parametrize(("stage1", "stage2"), [(0, 0), (0, 2), (2, 0), (1, 1)])
    @pytest.mark.parametrize("method", ["uniform", "centralized"])
    def test_hardly_any_rounds(
        self, tiny: Any, views: Views, tmp_path: Path, stage1: int, stage2: int, method: str
    ) -> None:
        rounds = (f"training.stage1_rounds={stage1}", f"training.stage2_rounds={stage2}")
        summary = Run(tiny(*rounds), method, 0, views, folder=tmp_path)()
        assert summary["test"] is not None
        assert summary["best_round_test_selected"] >= summary["test"]
        assert (summary["stage1"] is None) == (stage1 == 0)
        assert len(list(tmp_path.rglob("summary.json"))) == 1

    def test_one_node_alone(self, tiny: Any, views: Views) -> None:
        summary = run(tiny("graph.nodes=1", "partition.labelled=50"), "uniform", 0, views)
        assert summary["test"] == summary["self"]
        assert summary["bytes"]["per_deployed_query"] == 0

    def test_overlapping_draws_have_no_pooled_scores(self, tiny: Any, views: Views) -> None:
        summary = run(tiny("partition.draws=overlapping"), "uniform", 0, views)
        assert summary["test_pooled"] is summary["self_pooled"] is summary["per_node"]["test_pooled"] is None
        assert 0 <= summary["p10"] <= 1


class TestIdentity:
    def test_what_decides_the_result_has_a_folder_of_its_own(self, tiny: Any, views: Views) -> None:
        def slug(*overrides: str, method: str = "centralized", seed: int = 0) -> Path:
            return Run(tiny(*overrides), method, seed, views).slug

        different = [
            slug(), slug("training.lr=0.1"), slug("methods.centralized.epochs=3"), slug(seed=1),
            slug(method="uniform"), slug("evaluation.every=3"),
        ]  # fmt: skip
        assert len(set(different)) == len(different)
        assert slug("about=other", "seeds=[4]", "methods.uniform={}") == slug()
        assert slug().parts[:2] == ("tiny", "centralized")
