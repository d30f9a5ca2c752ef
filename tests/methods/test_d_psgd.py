"""D-PSGD: mixing after gradient steps, its reductions, and the average model beside."""

import networkx as nx
import numpy as np
import pytest
import torch
from small_runs import FLOAT64, LINEAR, TORCH, made, parameters, shared, study

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import find_method
from lntrust.methods.sharing import subgraphs

ONLY_LINEAR = f"population.learners=[{LINEAR}]"
ALONE = ("graph.nodes=1", "partition.labelled=60")
ROUNDS, STEPS = 4, 5  # of Stage 2 in small runs


def inside(run: Run) -> np.ndarray:
    """Which edges join two nodes of one architecture."""
    kinds = run.world.kinds[run.world.edges]
    return np.asarray(kinds[:, 0] == kinds[:, 1])


def one_model(run: Run) -> np.ndarray:
    """4P of each edge's sender."""
    size = np.zeros(run.world.n, dtype=np.int64)
    for stack in run.population.torch_stacks:
        size[stack.nodes.numpy()] = 4 * stack.flat().shape[1]
    return size[run.world.edges[:, 0]]


class TestReductions:
    @pytest.mark.parametrize("kind", ["complete", "ring"])
    def test_one_node_is_independent(self, views: Views, kind: str) -> None:
        small = (*ALONE, f"graph.kind={kind}", ONLY_LINEAR)
        one, plain = (Run(study(*small), method, 0, views) for method in ("d_psgd", "independent"))
        summary, reference = one(), plain()
        assert summary["per_node"] == reference["per_node"]
        assert summary["bytes"] == reference["bytes"]
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name]), name

    def test_mixing_once_a_round_is_dfedavg(self, views: Views) -> None:
        rare = shared(views, TORCH, f"methods.d_psgd.local_steps={STEPS}", method="d_psgd")
        other = shared(views, TORCH, method="dfedavg")
        for name, tensor in parameters(other).items():
            assert torch.equal(tensor, parameters(rare)[name]), name
        assert rare.network.ledger.summary() == other.network.ledger.summary()
        often = shared(views, TORCH, method="d_psgd")
        assert any(not torch.equal(t, parameters(often)[name]) for name, t in parameters(other).items())

    def test_on_a_complete_graph_it_is_sgd_with_everybodys_gradient(self, views64: Views) -> None:
        """Consensus after every step, so that all nodes stay one model."""
        one = made(views64, ONLY_LINEAR, FLOAT64, "graph.kind=complete", method="d_psgd")
        (stack,) = one.population.torch_stacks
        theta = stack.flat()
        torch.testing.assert_close(theta, theta.mean(0).expand_as(theta), rtol=0, atol=1e-12)
        momentum = torch.cat([v.flatten(1) for v in stack.momentum.values()], 1)
        assert (momentum - momentum.mean(0)).abs().max() > 1e-3  # that stays at home


class TestStart:
    def test_nodes_of_an_architecture_begin_alike(self, views: Views) -> None:
        for stack in Run(study(TORCH), "d_psgd", 0, views).population.torch_stacks:
            theta = stack.flat()
            assert torch.equal(theta, theta[:1].expand_as(theta))

    def test_nothing_is_mixed_in_stage_1(self, views: Views) -> None:
        one = Run(study(TORCH), "d_psgd", 0, views)
        sent: list[int] = []
        one(progress=lambda *_: sent.append(int(one.network.ledger.payload().sum())))
        assert sent[:3] == [0, 0, 0]  # before, and after each of the two rounds
        assert sent[3] > 0


class TestAverage:
    def test_on_consensus_it_is_the_own_model(self, views64: Views) -> None:
        one = Run(study(ONLY_LINEAR, FLOAT64, "graph.kind=complete"), "d_psgd", 0, views64)
        summary = one()
        assert set(summary["variants"]) == {"average"}
        assert summary["variants"]["average"]["test"] == summary["test"] == summary["self"]
        assert summary["variants"]["average"]["test_pooled"] == pytest.approx(summary["test_pooled"])

    def test_it_is_the_mean_of_those_that_edges_connect(self, views64: Views) -> None:
        one = made(views64, TORCH, FLOAT64, "methods.d_psgd.local_steps=10", method="d_psgd")
        before = {name: tensor.clone() for name, tensor in parameters(one).items()}
        average = one.method.deploy(one.site, one.state).variants["average"]
        assert average.answer is not None
        got = average.answer(one._tested)
        for name, tensor in parameters(one).items():
            assert torch.equal(tensor, before[name]), name  # only looked at
        pieces = []
        for subgraph in subgraphs(one.site):
            theta = one.population.parameters(subgraph.stack)
            for piece in nx.connected_components(one.world.graph.subgraph(subgraph.stack.nodes.tolist())):
                theta[sorted(piece)] = theta[sorted(piece)].mean(0)
                pieces.append(piece)
            one.population.set_parameters(subgraph.stack, theta)
        assert {len(piece) for piece in pieces} >= {1, 3}  # somebody alone, and some who are not
        torch.testing.assert_close(got, one.population.predict_all(one._tested), rtol=0, atol=1e-12)

    def test_it_costs_nothing_and_everybody_answers_alone(self, views: Views) -> None:
        one = Run(study(TORCH), "d_psgd", 0, views)
        summary = one()
        assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert summary["bytes"]["per_deployed_query"] == 0
        last = one._evaluations[0][one.rounds]
        assert (last["variant/average"] != last["deployed"]).any()


class TestMessages:
    @pytest.mark.parametrize("k", [1, 2, 5])
    def test_bytes(self, views: Views, k: int) -> None:
        """Steps are counted through rounds: with k = 2, every second of all twenty is followed by mixing."""
        one = shared(views, TORCH, f"methods.d_psgd.local_steps={k}", method="d_psgd")
        mixings = ROUNDS * STEPS // k
        expected = np.where(inside(one), mixings * one_model(one), 0)
        assert one.network.ledger.payload("parameters", "mix").tolist() == expected.tolist()
        assert one.network.ledger.payload().tolist() == expected.tolist()
        assert 0 < inside(one).sum() < len(expected)
        heads = one_model(one)[one.world.kinds[one.world.edges[:, 0]] == 0]
        assert set(heads.tolist()) == {4 * (64 + 1) * 10}  # a linear head on 64 pixels

    def test_settings(self, views: Views) -> None:
        assert find_method("d_psgd", study()).settings.model_dump()["local_steps"] == 1


class TestBackends:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, views64: Views, schedule: str) -> None:
        overrides = (TORCH, FLOAT64, f"training.schedule={schedule}")
        batched, loop = (
            made(views64, *overrides, method="d_psgd", backend=backend) for backend in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-9, msg=name)
        assert int(batched.state["steps"]) == int(loop.state["steps"]) >= ROUNDS * STEPS
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
        assert batched.network.ledger.payload().sum() > 0
