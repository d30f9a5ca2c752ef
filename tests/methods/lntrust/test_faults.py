"""LNTrust with neighbours that misbehave, and on nodes with little to go by."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import (
    MIXED,
    TORCH,
    TRAIN_ONLY,
    made,
    parameters,
    shared,
    study,
    told,
)
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views


def wrong_shape(p: Tensor) -> Tensor:
    return p[:, :-1]


FAULTS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "NaN": lambda p: p * torch.nan,
    "negative": lambda p: p - 1.0,
    "sum": lambda p: p * 2,
    "shape": wrong_shape,
    "none": lambda _: None,
    "one bad row": lambda p: torch.cat([p[:-1], p[-1:] * 3]),
}


class TestFaults:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_faulty_neighbour_is_dropped_and_counted(self, views: Views, fault: str) -> None:
        one = Run(study(MIXED), "lntrust", 0, views)
        one.network.misbehaviour[2] = FAULTS[fault]
        summary = one()
        edges = one.world.edges
        asked_it = edges[:, 1] == 2
        # Per edge: two questions at each of four refreshes, and one in each of three distilling rounds.
        assert (one.network.faulty[asked_it] == 2 * 4 + 3).all()
        assert (one.network.faulty[~asked_it] == 0).all()
        assert summary["method_report"]["faulty_replies"] == 11 * asked_it.sum()
        members = one.method.deploy(one.site, one.state).members
        assert not ((members[:, 1] == 2) & (members[:, 0] != 2)).any()
        closed = one.state.closed
        torch.testing.assert_close(closed.sum(-1), torch.ones(6))
        assert all(t.isfinite().all() for t in one.method.pack(one.state).values())
        assert all(t.isfinite().all() for t in parameters(one).values())
        everybody = torch.arange(6)
        assert one.population.predict(everybody, everybody).isfinite().all()

    def test_it_does_not_matter_how_it_fails(self, views: Views) -> None:
        ends = []
        for fault in ("NaN", "shape"):
            one = Run(study(MIXED), "lntrust", 0, views)
            one.network.misbehaviour[2] = FAULTS[fault]
            ends.append(told(one()))
        assert ends[0] == ends[1]

    def test_the_faulty_node_itself_is_not_harmed(self, views: Views) -> None:
        one = Run(study(TORCH), "lntrust", 0, views)
        one.network.misbehaviour[2] = FAULTS["none"]
        one()
        assert one.state.closed[2, 0] > 0
        assert (one.state.closed[2] > 0).sum() == 1 + one.world.degrees[2]

    @pytest.mark.parametrize("weighting", ["trust", "weighted_majority", "fedfomo"])
    @pytest.mark.parametrize("pruned", ["methods.lntrust.top_k=1", ""])
    def test_everybody_is_faulty(self, views: Views, weighting: str, pruned: str) -> None:
        soft = ("methods.lntrust.targets=soft", f"methods.lntrust.weighting={weighting}")
        one = Run(study(TORCH, *soft, *filter(None, [pruned])), "lntrust", 0, views)
        one.network.misbehaviour.update(dict.fromkeys(range(6), FAULTS["none"]))
        summary = one()
        plain = shared(views, TORCH, method=TRAIN_ONLY)
        if weighting != "weighted_majority":  # which also weighs the classes of a single answer
            assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert all(t.isfinite().all() for t in one.method.pack(one.state).values())
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name]), name

    def test_a_neighbour_that_comes_back(self, views: Views) -> None:
        """Silent at first; heard again at later refreshes."""
        one = Run(study(MIXED), "lntrust", 0, views)
        one.network.misbehaviour[2] = lambda p: None if one.done < 4 else p
        one()
        around = one.method.tables(one.site, one.state)["trust"]
        it = (around["member"] == 2) & (around["node"] != 2)
        by_round = {r: around["trust"][it & (around["round"] == r)] for r in (0, 2, 4, 5)}
        assert (by_round[0] == 0).all()
        assert (by_round[2] > 0).all()  # round 2 of Stage 2 is the run's fourth
        assert (by_round[5] > 0).all()


class TestOddNodes:
    def test_without_neighbours(self, views: Views, tmp_path: Path) -> None:
        path = tmp_path / "edges.txt"
        path.write_text("0 1\n1 2\n2 3\n3 4\n")  # node 5 knows nobody
        graph = ("graph.kind=file", f'graph.file="{path}"', "graph.connected=false")
        for weighting in ("trust", "weighted_majority", "linucb"):
            setting = f"methods.lntrust.weighting={weighting}"
            one = Run(study(*graph, MIXED, setting, "methods.lntrust.targets=soft"), "lntrust", 0, views)
            summary = one()
            assert one.state.closed[5].tolist() == [1.0, 0.0, 0.0]
            assert one.state.open[5].tolist() == [0.0, 0.0, 0.0]
            assert one.state.strength[5] == 0
            if weighting != "weighted_majority":  # which also weighs the classes of a single answer
                assert summary["per_node"]["test"][5] == summary["per_node"]["self"][5]
            assert all(t.isfinite().all() for t in parameters(one).values())

    def test_one_class_each(self, views: Views) -> None:
        one = Run(study(MIXED, "partition.classes_per_node=1"), "lntrust", 0, views)
        summary = one()
        assert (one.world.class_distribution.max(1) == 1).all()
        assert 0 <= summary["test"] <= 1
        assert all(t.isfinite().all() for t in one.method.pack(one.state).values())

    def test_a_handful_of_labels(self, views: Views) -> None:
        few = ("partition.minimum=6", "partition.labelled=36")
        one = Run(study(MIXED, *few), "lntrust", 0, views)
        one()
        validation = one.world.partition.validation
        assert validation.lengths.max() < 10  # so every node misses classes
        labels = one.world.labels[validation.values]
        rho = one.state.evidence.rho
        for i in range(6):
            absent = np.setdiff1d(np.arange(10), labels[validation.owner == i])
            assert (rho[i][:, absent] == 0).all()
        assert all(t.isfinite().all() for t in one.method.pack(one.state).values())

    @pytest.mark.parametrize(("stage1", "stage2"), [(0, 2), (2, 0), (1, 1), (0, 0)])
    def test_hardly_any_rounds(self, views: Views, stage1: int, stage2: int) -> None:
        rounds = (f"training.stage1_rounds={stage1}", f"training.stage2_rounds={stage2}")
        assert 0 <= Run(study(MIXED, *rounds), "lntrust", 0, views)()["test"] <= 1

    def test_validation_drawn_afresh(self, views: Views) -> None:
        one = made(views, MIXED, "partition.validation=fresh")
        torch.testing.assert_close(one.state.closed.sum(-1), torch.ones(6))
