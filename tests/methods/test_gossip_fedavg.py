"""Gossip: one push per node and round, merges by age."""

from collections import Counter

import numpy as np
import pytest
import torch
from small_runs import ONLY_LINEAR, ROUNDS, STEPS, TORCH, begun, scatter
from torch import Tensor

from lntrust.learners.views import Views
from lntrust.methods.sharing import subgraphs

METHOD = "gossip_fedavg"
AGE = 8  # bytes


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
    @pytest.mark.parametrize("learners", [ONLY_LINEAR, TORCH], ids=["linear", "linear-mlp"])
    def test_any_graph(self, views64: Views, learners: str) -> None:
        one = begun(views64, learners, "graph.nodes=9", "partition.labelled=450", method=METHOD)
        ages = [0, 0, 4, 1, 5, 9, 2, 6, 0]  # of two that have seen nothing, keep one's own
        got = torch.tensor(ages)
        most = 0
        for t in range(1, 6):
            for subgraph in subgraphs(one.site):
                theta = scatter(one, subgraph.stack)
                chosen = one.method.choose_edges(one.site, subgraph, t)
                pushes = [(i, j) for i, j in one.network.edges[subgraph.edges[chosen]].tolist()]
                most = max(most, *Counter(receiver for _, receiver in pushes).values())
                got = one.method.push(one.site, subgraph, got, t)
                new, ages = merged(theta, ages, pushes)
                expected = new[subgraph.stack.nodes]
                torch.testing.assert_close(subgraph.stack.flat(), expected, rtol=0, atol=1e-12)
            assert got.tolist() == ages
        assert most > 1

    def test_ages_are_steps(self, views: Views) -> None:
        """They begin with those of Stage 1; all nodes take equally many, so nobody is ever older."""
        one = begun(views, TORCH, method=METHOD)
        seen: list[list[int]] = []
        one(progress=lambda done, *_: seen.append(one.state["age"].tolist()) if done >= 2 else None)
        assert seen == [[STEPS * rounds] * 6 for rounds in range(2, 2 + ROUNDS + 1)]


class TestMessages:
    @pytest.mark.parametrize(("learners", "every"), [(TORCH, 1), (ONLY_LINEAR, 2)])
    def test_one_push_per_node_and_round(self, views: Views, learners: str, every: int) -> None:
        """Of two architectures somebody has no neighbour of its kind."""
        one = begun(views, learners, f"methods.gossip_fedavg.every={every}", method=METHOD)
        after: list[np.ndarray] = []
        one(progress=lambda *_: after.append(one.network.ledger.payload("parameters", "push")))
        per_round = np.diff(after, axis=0)
        assert len(per_round) == 2 + ROUNDS
        assert (per_round[:2] == 0).all()  # Stage 1
        sender, receiver = one.world.edges.T
        like = one.world.kinds[sender] == one.world.kinds[receiver]
        message = np.zeros(6, dtype=np.int64)
        for stack in one.population.torch_stacks:
            message[stack.nodes.numpy()] = 4 * stack.flat().shape[1] + AGE
        can = np.bincount(sender[like], minlength=6) > 0
        for t, sent in enumerate(per_round[2:], 1):
            if t % every:
                assert not sent.any()
                continue
            assert (sent[~like] == 0).all()
            assert set(np.unique(sent[like] // message[sender[like]])) <= {0, 1}
            assert np.bincount(sender, weights=sent, minlength=6).tolist() == (message * can).tolist()
        assert one.network.ledger.payload().tolist() == after[-1].tolist()

    def test_every_neighbour_gets_its_turn(self, views64: Views) -> None:
        one = begun(views64, ONLY_LINEAR, "graph.nodes=5", "partition.labelled=250", method=METHOD)
        (subgraph,) = subgraphs(one.site)
        drawn = torch.stack([one.method.choose_edges(one.site, subgraph, t) for t in range(300)])
        assert (subgraph.sender[drawn] == torch.arange(5)).all()
        share = 1 / subgraph.degree[subgraph.sender]
        spread = (300 * share * (1 - share)).sqrt()
        counts = torch.bincount(drawn.flatten(), minlength=len(share))
        assert ((counts - 300 * share).abs() <= 4 * spread).all()
