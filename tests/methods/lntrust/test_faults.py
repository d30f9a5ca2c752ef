"""LNTrust with neighbours that misbehave, and on nodes with little to go by."""

from collections.abc import Callable
from pathlib import Path

import pytest
import small_runs as small
import torch
from stopped_runs import timeless
from torch import Tensor

from lntrust.learners.views import Views

# Of all that the network refuses (tests/network): no answer at all, and one bad row.
FAULTS: list[Callable[[Tensor], Tensor | None]] = [lambda _: None, lambda p: torch.cat([p[:-1], p[-1:] * 3])]


class TestFaults:
    def test_a_faulty_neighbour_is_dropped_and_counted_however_it_fails(self, views: Views) -> None:
        """And it is not harmed itself."""
        ends = []
        for fault in FAULTS:
            one = small.begun(views, small.MIXED, *small.SHORT, small.PLAIN, method="lntrust")
            one.network.misbehaviour[2] = fault
            ends.append(timeless(one()))
            asked_it = one.world.edges[:, 1] == 2
            # Per edge: two questions at each of three refreshes, and one in the distilling round.
            assert (one.network.faulty[asked_it] == 2 * 3 + 1).all()
            assert (one.network.faulty[~asked_it] == 0).all()
            assert ends[-1]["method_report"]["faulty_replies"] == 7 * asked_it.sum()
            members = one.method.deploy(one.site, one.state).members
            assert not ((members[:, 1] == 2) & (members[:, 0] != 2)).any()
            assert (one.state.closed[2] > 0).sum() == 1 + one.world.degrees[2]
            torch.testing.assert_close(one.state.closed.sum(-1), torch.ones(6))
            assert all(t.isfinite().all() for t in small.tensors_of(one).values() if t.is_floating_point())
            assert ends[-1] == ends[0]

    @pytest.mark.parametrize(
        ("weighting", "setting"),
        [("trust", "top_k=1"), ("weighted_majority", "recall=2"), ("fedfomo", "top_k=1")],
    )
    def test_everybody_is_faulty(self, views: Views, weighting: str, setting: str) -> None:
        soft = ("methods.lntrust.targets=soft", f"methods.lntrust.weighting={weighting}")
        one = small.begun(views, small.TORCH, *soft, f"methods.lntrust.{setting}", method="lntrust")
        one.network.misbehaviour.update(dict.fromkeys(range(6), FAULTS[0]))
        summary = one()
        plain = small.shared(views, small.TORCH, method=small.TRAIN_ONLY)
        if weighting != "weighted_majority":  # which also weighs the classes of a single answer
            assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert all(t.isfinite().all() for t in one.method.pack(one.state).values())
        for name, tensor in small.parameters(plain).items():
            assert torch.equal(tensor, small.parameters(one)[name]), name

    def test_a_neighbour_that_comes_back(self, views: Views) -> None:
        """Silent at first; heard again at later refreshes."""
        one = small.begun(views, small.TORCH, small.PLAIN, method="lntrust")
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
            settings = (f"methods.lntrust.weighting={weighting}", "methods.lntrust.targets=soft")
            one, summary = small.ended(views, *graph, small.MIXED, *small.SHORT, *settings, method="lntrust")
            assert one.state.closed[5].tolist() == [1.0, 0.0, 0.0]
            assert one.state.open[5].tolist() == [0.0, 0.0, 0.0]
            assert one.state.strength[5] == 0
            if weighting != "weighted_majority":  # see above
                assert summary["per_node"]["test"][5] == summary["per_node"]["self"][5]
            assert all(t.isfinite().all() for t in small.parameters(one).values())

    @pytest.mark.parametrize(
        "odd",
        [
            ("partition.skew=1e9",),
            ("partition.minimum=6", "partition.labelled=36"),  # so every node misses classes
            *(
                (f"training.stage1_rounds={a}", f"training.stage2_rounds={b}")
                for a, b in ((0, 2), (2, 0), (0, 0))
            ),
        ],
    )
    def test_one_class_each_or_hardly_any_rounds(self, views: Views, odd: tuple[str, ...]) -> None:
        one, summary = small.ended(views, small.MIXED, *small.SHORT, *odd, method="lntrust")
        assert 0 <= summary["test"] <= 1
        torch.testing.assert_close(one.state.closed.sum(-1), torch.ones(6))
        assert all(t.isfinite().all() for t in one.method.pack(one.state).values())
