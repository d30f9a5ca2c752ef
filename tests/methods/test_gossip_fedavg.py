"""Gossip: one push per node and round, merges by age, ages that a checkpoint keeps."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import FLOAT64, LINEAR, TORCH, made, parameters, shared, study, told
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.gossip_fedavg import GossipFedAvg
from lntrust.methods.sharing import Subgraph, subgraphs

ONLY_LINEAR = f"population.learners=[{LINEAR}]"
ROUNDS, STEPS = 4, 5  # of Stage 2 in small runs
AGE = 8  # bytes


def begun(views: Views, *overrides: str) -> tuple[Run, GossipFedAvg]:
    """A run that has not begun, and its method."""
    one = Run(study(FLOAT64, *overrides), "gossip_fedavg", 0, views)
    assert isinstance(one.method, GossipFedAvg)
    return one, one.method


def scatter(run: Run, subgraph: Subgraph) -> Tensor:
    """Parameters that no two nodes share."""
    theta = run.population.parameters(subgraph.stack)
    theta = torch.randn(theta.shape, generator=torch.Generator().manual_seed(3), dtype=theta.dtype)
    run.population.set_parameters(subgraph.stack, theta)
    return theta


def merged(theta: Tensor, ages: list[int], pushes: list[tuple[int, int]]) -> tuple[Tensor, list[int]]:
    """θ ← (1 − a)·θ + a·θ_r and t ← max(t, t_r), push after push, every push with what its sender had."""
    new, new_ages = theta.clone(), list(ages)
    for sender, receiver in pushes:
        total = new_ages[receiver] + ages[sender]
        a = ages[sender] / total if total else 0.0
        new[receiver] = (1 - a) * new[receiver] + a * theta[sender]
        new_ages[receiver] = max(new_ages[receiver], ages[sender])
    return new, new_ages


class TestMerging:
    @pytest.mark.parametrize("ages", [[4, 4], [1, 9], [0, 3], [0, 0]])
    def test_two_nodes(self, views64: Views, ages: list[int]) -> None:
        one, method = begun(views64, ONLY_LINEAR, "graph.nodes=2", "partition.labelled=100")
        (subgraph,) = subgraphs(one.site)
        theta = scatter(one, subgraph)
        got = method._gossip(one.site, subgraph, torch.tensor(ages), 1)
        x, y = (one.population.parameters(subgraph.stack)[i] for i in (0, 1))
        t, s = ages
        share = s / (t + s) if t + s else 0.0  # of two models that have seen nothing, one's own is kept
        torch.testing.assert_close(x, (1 - share) * theta[0] + share * theta[1], rtol=0, atol=1e-12)
        share = t / (t + s) if t + s else 0.0
        torch.testing.assert_close(y, (1 - share) * theta[1] + share * theta[0], rtol=0, atol=1e-12)
        assert got.tolist() == [max(ages)] * 2

    def test_several_arrivals_in_the_order_of_their_senders(self, views64: Views) -> None:
        """A path: both ends can push to nobody but the middle, which so hears two models a round."""
        path = ("graph.nodes=3", "partition.labelled=150", "graph.attach=1")
        one, method = begun(views64, ONLY_LINEAR, *path)
        middle = int(one.world.degrees.argmax())
        first, second = sorted({0, 1, 2} - {middle})
        (subgraph,) = subgraphs(one.site)
        theta = scatter(one, subgraph)
        ages = [2, 3, 7]
        got = method._gossip(one.site, subgraph, torch.tensor(ages), 1)
        orders = [merged(theta, ages, [(a, middle), (b, middle)]) for a, b in
                  ((first, second), (second, first))]  # fmt: skip
        new = one.population.parameters(subgraph.stack)
        torch.testing.assert_close(new[middle], orders[0][0][middle], rtol=0, atol=1e-12)
        assert not torch.allclose(new[middle], orders[1][0][middle], rtol=0, atol=1e-3)
        assert int(got[middle]) == max(ages)

    @pytest.mark.parametrize("learners", [ONLY_LINEAR, TORCH], ids=["linear", "linear-mlp"])
    def test_any_graph(self, views64: Views, learners: str) -> None:
        one, method = begun(views64, learners, "graph.nodes=9", "partition.labelled=450")
        ages = [3, 1, 4, 1, 5, 9, 2, 6, 0]
        got = torch.tensor(ages)
        most = 0
        for t in range(1, 6):
            for subgraph in subgraphs(one.site):
                theta = scatter(one, subgraph)
                chosen = method._one_each(one.site, subgraph, t)
                pushes = [(i, j) for i, j in one.network.edges[subgraph.edges[chosen]].tolist()]
                most = max(most, *Counter(receiver for _, receiver in pushes).values())
                got = method._gossip(one.site, subgraph, got, t)
                new, ages = merged(theta, ages, pushes)
                expected = new[subgraph.stack.nodes]
                torch.testing.assert_close(subgraph.stack.flat(), expected, rtol=0, atol=1e-12)
            assert got.tolist() == ages
        assert most > 1

    def test_ages_are_steps(self, views: Views) -> None:
        """They begin with those of Stage 1; all nodes take equally many, so nobody is ever older."""
        one = Run(study(TORCH), "gossip_fedavg", 0, views)
        seen: list[list[int]] = []
        one(progress=lambda done, *_: seen.append(one.state["age"].tolist()) if done >= 2 else None)
        assert seen == [[STEPS * rounds] * 6 for rounds in range(2, 2 + ROUNDS + 1)]

    def test_an_age_is_the_older_ones_and_the_steps_since(self, views: Views) -> None:
        one = Run(study(ONLY_LINEAR, "graph.kind=complete"), "gossip_fedavg", 0, views)
        one()
        assert isinstance(one.method, GossipFedAvg)
        (subgraph,) = subgraphs(one.site)
        ages = [10, 20, 30, 40, 50, 60]
        chosen = one.method._one_each(one.site, subgraph, ROUNDS + 1)
        pushes = [(i, j) for i, j in one.network.edges[subgraph.edges[chosen]].tolist()]
        _, older = merged(torch.zeros(6, 1), ages, pushes)
        after = one.method.round(one.site, {"age": torch.tensor(ages)}, ROUNDS + 1)["age"]
        assert after.tolist() == [age + STEPS for age in older]
        assert older != ages


class TestReductions:
    @pytest.mark.parametrize("kind", ["complete", "ring"])
    def test_one_node_is_independent(self, views: Views, kind: str) -> None:
        small = ("graph.nodes=1", "partition.labelled=60", f"graph.kind={kind}", ONLY_LINEAR)
        one, plain = (Run(study(*small), method, 0, views) for method in ("gossip_fedavg", "independent"))
        summary, reference = one(), plain()
        assert summary["per_node"] == reference["per_node"]
        assert summary["bytes"] == reference["bytes"]
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name]), name

    def test_nodes_of_an_architecture_begin_alike(self, views: Views) -> None:
        for stack in Run(study(TORCH), "gossip_fedavg", 0, views).population.torch_stacks:
            theta = stack.flat()
            assert torch.equal(theta, theta[:1].expand_as(theta))


class TestMessages:
    @pytest.mark.parametrize(
        "overrides",
        [(TORCH,), (TORCH, "graph.kind=complete"), (ONLY_LINEAR,)],
        ids=["somebody alone", "nobody alone", "one architecture"],
    )
    def test_one_push_per_node_and_round(self, views: Views, overrides: tuple[str, ...]) -> None:
        one = Run(study(*overrides), "gossip_fedavg", 0, views)
        books: list[np.ndarray] = []
        one(progress=lambda *_: books.append(one.network.ledger.payload("parameters", "push")))
        per_round = np.diff(books, axis=0)
        assert len(per_round) == 2 + ROUNDS
        assert (per_round[:2] == 0).all()  # Stage 1
        sender, receiver = one.world.edges.T
        like = one.world.kinds[sender] == one.world.kinds[receiver]
        message = np.zeros(6, dtype=np.int64)
        for stack in one.population.torch_stacks:
            message[stack.nodes.numpy()] = 4 * stack.flat().shape[1] + AGE
        can = np.bincount(sender[like], minlength=6) > 0
        for sent in per_round[2:]:
            assert (sent[~like] == 0).all()
            assert set(np.unique(sent[like] // message[sender[like]])) <= {0, 1}
            assert np.bincount(sender, weights=sent, minlength=6).tolist() == (message * can).tolist()
        assert one.network.ledger.payload().tolist() == books[-1].tolist()

    def test_rarer_pushes(self, views: Views) -> None:
        often, rare = (
            shared(views, TORCH, f"methods.gossip_fedavg.every={k}", method="gossip_fedavg") for k in (1, 2)
        )
        totals = [int(r.network.ledger.payload().sum()) for r in (often, rare)]
        assert totals[0] == 2 * totals[1] > 0

    def test_every_neighbour_gets_its_turn(self, views64: Views) -> None:
        one, method = begun(views64, ONLY_LINEAR, "graph.nodes=5", "partition.labelled=250")
        (subgraph,) = subgraphs(one.site)
        rounds = 600
        counts = torch.zeros(len(subgraph.edges))
        for t in range(rounds):
            chosen = method._one_each(one.site, subgraph, t)
            assert subgraph.sender[chosen].tolist() == list(range(5))
            counts[chosen] += 1
        expected = rounds / subgraph.degree[subgraph.sender]
        spread = (expected * (1 - 1 / subgraph.degree[subgraph.sender])).sqrt()
        assert ((counts - expected).abs() <= 4 * spread).all()


class TestBackends:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, views64: Views, schedule: str) -> None:
        overrides = (TORCH, FLOAT64, f"training.schedule={schedule}")
        batched, loop = (
            made(views64, *overrides, method="gossip_fedavg", backend=b) for b in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-9, msg=name)
        assert torch.equal(batched.state["age"], loop.state["age"])
        assert (len(batched.state["age"].unique()) > 1) == (schedule == "random_node")
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
        assert batched.network.ledger.payload().sum() > 0


class Stopped(BaseException):
    pass


def test_a_resumed_run_equals_an_uninterrupted_one(views: Views, tmp_path: Path) -> None:
    """Ages are all it remembers; under random_node they differ from node to node."""
    often = study(TORCH, "evaluation.checkpoint_every=1", "training.schedule=random_node")
    whole = Run(often, "gossip_fedavg", 0, views, folder=tmp_path / "whole")
    summary = whole()
    for stop in range(1, 2 + ROUNDS + 1):

        def progress(done: int, *_: object, stop: int = stop) -> None:
            if done == stop:
                raise Stopped

        with pytest.raises(Stopped):
            Run(often, "gossip_fedavg", 0, views, folder=tmp_path / "stopped")(resume=True, progress=progress)
    resumed = Run(often, "gossip_fedavg", 0, views, folder=tmp_path / "stopped")
    assert told(resumed(resume=True)) == told(summary)
    assert torch.equal(resumed.state["age"], whole.state["age"])
    assert len(whole.state["age"].unique()) > 1
    for name, tensor in whole.population.state().items():
        assert torch.equal(tensor, resumed.population.state()[name]), name
