"""Decentralized FedAvg: one average a round, and what it is where everybody knows everybody."""

import pytest
import torch
from small_runs import FLOAT64, ONLY_LINEAR, TORCH, made

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.sharing import metropolis_hastings, subgraphs


def first_round(views64: Views, *overrides: str) -> tuple[Run, Run]:
    """After its average; and, with `every` = 2, before any: the heads that the average is made of."""
    first = (*overrides, FLOAT64, "training.stage2_rounds=1")
    mixed, before = (made(views64, *first, f"methods.dfedavg.every={k}", method="dfedavg") for k in (1, 2))
    return mixed, before


@pytest.mark.parametrize("learners", [ONLY_LINEAR, TORCH], ids=["linear", "linear-mlp"])
def test_a_complete_graph_agrees_on_the_mean(views64: Views, learners: str) -> None:
    mixed, before = first_round(views64, learners, "graph.kind=complete")
    for new, old in zip(mixed.population.torch_stacks, before.population.torch_stacks, strict=True):
        torch.testing.assert_close(new.flat(), old.flat().mean(0).expand_as(new.flat()), rtol=0, atol=1e-12)
        assert (old.flat() - old.flat().mean(0)).abs().max() > 1e-3
        for name, velocity in new.momentum.items():  # that stays at home
            assert torch.equal(velocity, old.momentum[name])


def test_elsewhere_it_is_metropolis_hastings(views64: Views) -> None:
    mixed, before = first_round(views64, TORCH)
    for new, old in zip(subgraphs(mixed.site), subgraphs(before.site), strict=True):
        theta = before.population.parameters(old.stack)
        weights, own = metropolis_hastings(old, torch.float64)
        expected = own[:, None] * theta
        for i, j, w in zip(old.receiver.tolist(), old.sender.tolist(), weights.tolist(), strict=True):
            expected[i] += w * theta[j]
        got = mixed.population.parameters(new.stack)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        assert len(old.edges)
