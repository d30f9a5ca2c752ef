"""Decentralized FedAvg: one average a round, and what it is where everybody knows everybody."""

import pytest
import torch
from small_runs import TORCH, made

from lntrust.learners.views import Views
from lntrust.methods.sharing import metropolis_hastings, subgraphs


@pytest.mark.parametrize("graph", ["complete", "barabasi_albert"])
def test_an_average_a_round_by_metropolis_hastings(views64: Views, graph: str) -> None:
    """After its average; and, with `every` = 2, before any: the models that the average is made of."""
    first = (TORCH, "training.stage2_rounds=1", f"graph.kind={graph}")
    mixed, before = (made(views64, *first, f"methods.dfedavg.every={k}", method="dfedavg") for k in (1, 2))
    for new, old in zip(subgraphs(mixed.site), subgraphs(before.site), strict=True):
        theta = before.population.parameters(old.stack)
        weights, own = metropolis_hastings(old, torch.float64)
        expected = own[:, None] * theta
        for i, j, w in zip(old.receiver.tolist(), old.sender.tolist(), weights.tolist(), strict=True):
            expected[i] += w * theta[j]
        got = mixed.population.parameters(new.stack)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        assert len(old.edges)
        if graph == "complete":  # they agree on the mean
            mean = theta[old.stack.nodes].mean(0).expand(3, -1)
            torch.testing.assert_close(new.stack.flat(), mean, rtol=0, atol=1e-12)
        for name, velocity in new.stack.momentum.items():  # that stays at home
            assert torch.equal(velocity, old.stack.momentum[name])
