"""DecDiff + VT: a bounded step towards the neighbours, and a teacher made of labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, LINEAR, TORCH, made, parameters, shared, study
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.decdiff_vt import DecDiffVT, virtual_teacher
from lntrust.methods.sharing import Subgraph, subgraphs

ONLY_LINEAR = f"population.learners=[{LINEAR}]"
UNEQUAL = ("partition.sizes=dirichlet", "partition.minimum=20")
PLAIN = "methods.decdiff_vt.beta=1"
ROUNDS = 4  # of Stage 2 in small runs
COUNT = 8  # bytes


def begun(views: Views, *overrides: str) -> tuple[Run, DecDiffVT]:
    """A run that has not begun, and its method."""
    one = Run(study(FLOAT64, *overrides), "decdiff_vt", 0, views)
    assert isinstance(one.method, DecDiffVT)
    return one, one.method


def scatter(run: Run, subgraph: Subgraph, scale: float) -> Tensor:
    """Parameters that no two nodes share, this far apart."""
    theta = run.population.parameters(subgraph.stack)
    theta = scale * torch.randn(theta.shape, generator=torch.Generator().manual_seed(3), dtype=theta.dtype)
    run.population.set_parameters(subgraph.stack, theta)
    return theta


class TestTheStep:
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
    def test_it_points_to_the_weighted_mean_and_is_never_longer_than_one(
        self, views64: Views, scale: float
    ) -> None:
        one, method = begun(views64, TORCH, *UNEQUAL)
        samples = one.labelled.lists.lengths
        assert len(set(samples.tolist())) > 3
        alone = 0
        for subgraph in subgraphs(one.site):
            w = scatter(one, subgraph, scale)
            method._approach(one.site, subgraph)
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
        one, method = begun(views64, TORCH, *UNEQUAL)
        for subgraph in subgraphs(one.site):
            same = scatter(one, subgraph, 1.0)[:1].repeat(one.world.n, 1)
            one.population.set_parameters(subgraph.stack, same)
            method._approach(one.site, subgraph)
            torch.testing.assert_close(
                subgraph.stack.flat(), same[subgraph.stack.nodes], rtol=0, atol=1e-14
            )  # the weights sum to one but for rounding

    def test_everybody_moves_at_once(self, views64: Views) -> None:
        """Two nodes go to each other's old place, so by symmetry they move by opposite steps."""
        one, method = begun(views64, ONLY_LINEAR, "graph.nodes=2", "partition.labelled=100")
        (subgraph,) = subgraphs(one.site)
        w = scatter(one, subgraph, 1.0)
        method._approach(one.site, subgraph)
        moved = one.population.parameters(subgraph.stack) - w
        torch.testing.assert_close(moved[0], -moved[1], rtol=0, atol=1e-13)


class TestTheTeacher:
    @given(st.integers(0, 2**31), st.integers(2, 6))
    def test_with_beta_one_it_is_cross_entropy(self, seed: int, C: int) -> None:
        draws = torch.Generator().manual_seed(seed)
        logits = 5 * torch.randn(3, 4, C, generator=draws, dtype=torch.float64)
        labels = torch.randint(C, (3, 4), generator=draws)
        torch.testing.assert_close(
            virtual_teacher(logits, labels, torch.ones(3, dtype=torch.float64)),
            cross_entropy(logits, labels),
            rtol=0,
            atol=1e-12,
        )

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
        soft, hard = (shared(views, TORCH, *more, method="decdiff_vt") for more in ((), (PLAIN,)))
        assert any(not torch.equal(t, parameters(hard)[name]) for name, t in parameters(soft).items())


class TestReductions:
    @pytest.mark.parametrize("kind", ["complete", "ring"])
    def test_one_node_with_beta_one_is_independent(self, views64: Views, kind: str) -> None:
        """To the last digits but one: the same loss is computed by another formula."""
        small = ("graph.nodes=1", "partition.labelled=60", f"graph.kind={kind}", ONLY_LINEAR, FLOAT64, PLAIN)
        one, plain = (Run(study(*small), method, 0, views64) for method in ("decdiff_vt", "independent"))
        summary, reference = one(), plain()
        assert summary["per_node"] == reference["per_node"]
        assert summary["bytes"] == reference["bytes"]
        for name, tensor in parameters(plain).items():
            torch.testing.assert_close(tensor, parameters(one)[name], rtol=0, atol=1e-12, msg=name)

    def test_nodes_begin_apart_as_those_of_independent(self, views: Views) -> None:
        own, plain = (
            Run(study(TORCH), method, 0, views).population.torch_stacks
            for method in ("decdiff_vt", "independent")
        )
        for stack, other in zip(own, plain, strict=True):
            theta = stack.flat()
            assert torch.equal(theta, other.flat())
            assert len(theta.unique(dim=0)) == len(theta) == 3

    def test_stage_1_has_no_teacher(self, views: Views) -> None:
        first = (TORCH, "training.stage2_rounds=0")
        own, plain = (made(views, *first, method=method) for method in ("decdiff_vt", "independent"))
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(own)[name]), name


class TestMessages:
    def test_bytes(self, views: Views) -> None:
        """4P and a sample count over every edge inside an architecture and round."""
        one = shared(views, TORCH, method="decdiff_vt")
        expected = np.zeros(len(one.world.edges), dtype=np.int64)
        for stack in one.population.torch_stacks:
            mine = np.isin(one.world.edges, stack.nodes.numpy()).all(1)
            expected[mine] = ROUNDS * (4 * stack.flat().shape[1] + COUNT)
        assert one.network.ledger.payload("parameters", "mix").tolist() == expected.tolist()
        assert one.network.ledger.payload().tolist() == expected.tolist()
        assert (expected == 0).any()
        assert (expected > 0).any()


class TestBackends:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, views64: Views, schedule: str) -> None:
        overrides = (TORCH, FLOAT64, f"training.schedule={schedule}", *UNEQUAL)
        batched, loop = (
            made(views64, *overrides, method="decdiff_vt", backend=backend) for backend in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-9, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
        assert batched.network.ledger.payload().sum() > 0
