"""Decentralized FedAvg: one average a round, and what it is where everybody knows everybody."""

import numpy as np
import pytest
import torch
from small_runs import FLOAT64, LINEAR, TORCH, made, parameters, shared, study

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.sharing import metropolis_hastings, subgraphs

ONLY_LINEAR = f"population.learners=[{LINEAR}]"
ROUNDS = 4  # of Stage 2 in small runs


class TestReductions:
    @pytest.mark.parametrize("kind", ["complete", "ring"])
    def test_one_node_is_independent(self, views: Views, kind: str) -> None:
        small = ("graph.nodes=1", "partition.labelled=60", f"graph.kind={kind}", ONLY_LINEAR)
        one, plain = (Run(study(*small), method, 0, views) for method in ("dfedavg", "independent"))
        summary, reference = one(), plain()
        assert summary["per_node"] == reference["per_node"]
        assert summary["bytes"] == reference["bytes"]
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name]), name

    @pytest.mark.parametrize("learners", [ONLY_LINEAR, TORCH], ids=["linear", "linear-mlp"])
    def test_a_complete_graph_agrees_on_the_mean(self, views64: Views, learners: str) -> None:
        """With `every` = 2, the first round ends before any average: these are the heads it is made of."""
        first = (learners, FLOAT64, "graph.kind=complete", "training.stage2_rounds=1")
        mixed = made(views64, *first, method="dfedavg")
        before = made(views64, *first, "methods.dfedavg.every=2", method="dfedavg")
        for new, old in zip(mixed.population.torch_stacks, before.population.torch_stacks, strict=True):
            torch.testing.assert_close(
                new.flat(), old.flat().mean(0).expand_as(new.flat()), rtol=0, atol=1e-12
            )
            assert (old.flat() - old.flat().mean(0)).abs().max() > 1e-3
            for name, velocity in new.momentum.items():  # that stays at home
                assert torch.equal(velocity, old.momentum[name])

    def test_elsewhere_it_is_metropolis_hastings(self, views64: Views) -> None:
        first = (TORCH, FLOAT64, "training.stage2_rounds=1")
        mixed = made(views64, *first, method="dfedavg")
        before = made(views64, *first, "methods.dfedavg.every=2", method="dfedavg")
        for new, old in zip(subgraphs(mixed.site), subgraphs(before.site), strict=True):
            theta = before.population.parameters(old.stack)
            weights, own = metropolis_hastings(old, torch.float64)
            expected = own[:, None] * theta
            for i, j, w in zip(old.receiver.tolist(), old.sender.tolist(), weights.tolist(), strict=True):
                expected[i] += w * theta[j]
            got = mixed.population.parameters(new.stack)
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
            assert len(old.edges)


class TestStart:
    def test_nodes_of_an_architecture_begin_alike(self, views: Views) -> None:
        stacks = Run(study(TORCH), "dfedavg", 0, views).population.torch_stacks
        for stack in stacks:
            theta = stack.flat()
            assert torch.equal(theta, theta[:1].expand_as(theta))
        # And the first of them as Independent's first.
        for stack, own in zip(
            stacks, Run(study(TORCH), "independent", 0, views).population.torch_stacks, strict=True
        ):
            assert torch.equal(stack.flat()[0], own.flat()[0])
            assert not torch.equal(stack.flat()[1], own.flat()[1])


class TestMessages:
    @pytest.mark.parametrize("every", [1, 2, 5])
    def test_bytes(self, views: Views, every: int) -> None:
        """4P over every edge inside an architecture and average, nothing over any other."""
        one = shared(views, TORCH, f"methods.dfedavg.every={every}", method="dfedavg")
        expected = np.zeros(len(one.world.edges), dtype=np.int64)
        for stack in one.population.torch_stacks:
            mine = np.isin(one.world.edges, stack.nodes.numpy()).all(1)
            expected[mine] = (ROUNDS // every) * 4 * stack.flat().shape[1]
        assert one.network.ledger.payload("parameters", "mix").tolist() == expected.tolist()
        assert one.network.ledger.payload().tolist() == expected.tolist()
        assert (expected == 0).any()
        assert (expected > 0).any() == (every <= ROUNDS)

    def test_in_float64_a_number_takes_eight_bytes(self, views64: Views) -> None:
        one = made(views64, ONLY_LINEAR, FLOAT64, method="dfedavg")
        (stack,) = one.population.torch_stacks
        assert (one.network.ledger.payload() == ROUNDS * 8 * stack.flat().shape[1]).all()


class TestBackends:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, views64: Views, schedule: str) -> None:
        overrides = (TORCH, FLOAT64, f"training.schedule={schedule}")
        batched, loop = (
            made(views64, *overrides, method="dfedavg", backend=backend) for backend in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-9, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
        assert batched.network.ledger.payload().sum() > 0
