"""DecDiff + VT: a bounded step towards the neighbours, and a teacher made of labels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import TORCH, UNEQUAL, assert_differ, begun, scatter, shared

from lntrust.learners.views import Views
from lntrust.methods.decdiff_vt import virtual_teacher
from lntrust.methods.sharing import subgraphs

METHOD = "decdiff_vt"


@pytest.mark.parametrize("scale", [0.0, 1e-3, 100.0])
def test_the_step_is_towards_the_weighted_mean_and_shorter_than_one(views64: Views, scale: float) -> None:
    one = begun(views64, TORCH, *UNEQUAL, method=METHOD)
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
            assert float(moved[i].norm()) < 1
    assert alone == 1  # node 5 of the small graph has no neighbour of its kind


class TestTheTeacher:
    @given(st.integers(0, 2**31), st.integers(2, 6), st.floats(0.1, 1.0))
    def test_it_is_cross_entropy_to_soft_labels(self, seed: int, C: int, beta: float) -> None:
        draws = torch.Generator().manual_seed(seed)
        logits = torch.randn(2, 3, C, generator=draws, dtype=torch.float64)
        labels = torch.randint(C, (2, 3), generator=draws)
        got = virtual_teacher(logits, labels, torch.full((2,), beta, dtype=torch.float64))
        q = torch.full((2, 3, C), (1 - beta) / (C - 1), dtype=torch.float64)
        q.scatter_(2, labels[..., None], beta)
        expected = [torch.nn.functional.cross_entropy(z, target) for z, target in zip(logits, q, strict=True)]
        torch.testing.assert_close(got, torch.stack(expected), rtol=0, atol=1e-12)

    def test_beta_matters(self, views: Views) -> None:
        assert_differ(
            *(shared(views, TORCH, f"methods.decdiff_vt.beta={b}", method=METHOD) for b in (0.95, 1))
        )
