"""DecDiff + VT: a bounded step towards the neighbours, and a teacher made of labels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, ONLY_LINEAR, TORCH, UNEQUAL, assert_differ, begun, scatter, shared

from lntrust.core.losses import cross_entropy
from lntrust.learners.views import Views
from lntrust.methods.decdiff_vt import virtual_teacher
from lntrust.methods.sharing import subgraphs

METHOD = "decdiff_vt"


class TestTheStep:
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
    def test_it_points_to_the_weighted_mean_and_is_never_longer_than_one(
        self, views64: Views, scale: float
    ) -> None:
        one = begun(views64, FLOAT64, TORCH, *UNEQUAL, method=METHOD)
        samples = one.labelled.lists.lengths
        assert len(set(samples.tolist())) > 3
        alone = 0
        for subgraph in subgraphs(one.site):
            w = scatter(one, subgraph.stack, scale)
            one.method.approach(one.site, subgraph)
            moved = one.population.parameters(subgraph.stack) - w
            for i in subgraph.stack.nodes.tolist():
                near = subgraph.sender[subgraph.receiver == i].tolist()
                if not near:
                    alone += 1
                    assert (moved[i] == 0).all()
                    continue
                total = sum(int(samples[j]) for j in near)
                way = sum((int(samples[j]) / total * w[j] for j in near), torch.zeros_like(w[i])) - w[i]
                distance = float(way.norm())
                torch.testing.assert_close(moved[i], way / (distance + 1), rtol=0, atol=1e-11)
                length = float(moved[i].norm())
                assert length < 1
                assert length < distance
                along = float(moved[i] @ way) / (length * distance)
                assert along == pytest.approx(1)
        assert alone == 1  # node 5 of the small graph has no neighbour of its kind

    def test_identical_models_do_not_move(self, views64: Views) -> None:
        one = begun(views64, FLOAT64, TORCH, *UNEQUAL, method=METHOD)
        for subgraph in subgraphs(one.site):
            same = scatter(one, subgraph.stack, 1.0)[:1].repeat(one.world.n, 1)
            one.population.set_parameters(subgraph.stack, same)
            one.method.approach(one.site, subgraph)
            torch.testing.assert_close(
                subgraph.stack.flat(), same[subgraph.stack.nodes], rtol=0, atol=1e-14
            )  # the weights sum to one but for rounding

    def test_everybody_moves_at_once(self, views64: Views) -> None:
        """Two nodes go to each other's old place, so by symmetry they move by opposite steps."""
        one = begun(views64, FLOAT64, ONLY_LINEAR, "graph.nodes=2", "partition.labelled=100", method=METHOD)
        (subgraph,) = subgraphs(one.site)
        w = scatter(one, subgraph.stack, 1.0)
        one.method.approach(one.site, subgraph)
        moved = one.population.parameters(subgraph.stack) - w
        torch.testing.assert_close(moved[0], -moved[1], rtol=0, atol=1e-13)


class TestTheTeacher:
    @given(st.integers(0, 2**31), st.integers(2, 6))
    def test_with_beta_one_it_is_cross_entropy(self, seed: int, C: int) -> None:
        draws = torch.Generator().manual_seed(seed)
        logits = 5 * torch.randn(3, 4, C, generator=draws, dtype=torch.float64)
        labels = torch.randint(C, (3, 4), generator=draws)
        got = virtual_teacher(logits, labels, torch.ones(3, dtype=torch.float64))
        torch.testing.assert_close(got, cross_entropy(logits, labels), rtol=0, atol=1e-12)

    @given(st.integers(0, 2**31), st.integers(2, 6), st.floats(0.1, 1.0))
    def test_it_is_cross_entropy_to_soft_labels(self, seed: int, C: int, beta: float) -> None:
        draws = torch.Generator().manual_seed(seed)
        logits = torch.randn(2, 3, C, generator=draws, dtype=torch.float64)
        labels = torch.randint(C, (2, 3), generator=draws)
        got = virtual_teacher(logits, labels, torch.full((2,), beta, dtype=torch.float64))
        for i in range(2):
            q = torch.full((3, C), (1 - beta) / (C - 1), dtype=torch.float64)
            q[range(3), labels[i]] = beta
            torch.testing.assert_close(q.sum(1), torch.ones(3, dtype=torch.float64))
            expected = torch.nn.functional.cross_entropy(logits[i], q)
            torch.testing.assert_close(got[i], expected, rtol=0, atol=1e-12)

    def test_beta_matters(self, views: Views) -> None:
        assert_differ(
            *(shared(views, TORCH, f"methods.decdiff_vt.beta={b}", method=METHOD) for b in (0.95, 1))
        )
