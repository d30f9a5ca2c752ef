"""D-PSGD: mixing after gradient steps, and the average model beside."""

import networkx as nx
import pytest
import torch
from small_runs import ONLY_LINEAR, STEPS, TORCH, all_tested, assert_differ, assert_same, ended, made, shared

from lntrust.learners.views import Views
from lntrust.methods.sharing import subgraphs


def test_mixing_once_a_round_is_dfedavg(views: Views) -> None:
    rare = shared(views, TORCH, f"methods.d_psgd.local_steps={STEPS}", method="d_psgd")
    other = shared(views, TORCH, method="dfedavg")
    assert_same(rare, other)
    assert rare.network.ledger.summary() == other.network.ledger.summary()
    assert_differ(shared(views, TORCH, method="d_psgd"), other)


def test_on_a_complete_graph_it_is_sgd_with_everybodys_gradient(views64: Views) -> None:
    """Consensus after every step, so that all nodes stay one model, and their average is that model, too."""
    one, summary = ended(views64, ONLY_LINEAR, "graph.kind=complete", method="d_psgd")
    (stack,) = one.population.torch_stacks
    theta = stack.flat()
    torch.testing.assert_close(theta, theta.mean(0).expand_as(theta), rtol=0, atol=1e-12)
    momentum = torch.cat([v.flatten(1) for v in stack.momentum.values()], 1)
    assert (momentum - momentum.mean(0)).abs().max() > 1e-3  # that stays at home
    assert set(summary["variants"]) == {"average"}
    assert summary["variants"]["average"]["test"] == summary["test"] == summary["self"]
    assert summary["variants"]["average"]["test_pooled"] == pytest.approx(summary["test_pooled"])


def test_the_average_is_of_those_that_edges_connect(views64: Views) -> None:
    one = made(views64, TORCH, "methods.d_psgd.local_steps=10", method="d_psgd")
    before, examples = one.population.predict_all(all_tested(one)), all_tested(one)
    average = one.method.deploy(one.site, one.state).variants["average"]
    got = average.answer(examples)
    assert torch.equal(one.population.predict_all(examples), before)  # only looked at
    assert not torch.equal(got.argmax(-1), before.argmax(-1))
    sizes = set()
    for subgraph in subgraphs(one.site):
        theta = one.population.parameters(subgraph.stack)
        for piece in nx.connected_components(one.world.graph.subgraph(subgraph.stack.nodes.tolist())):
            theta[sorted(piece)] = theta[sorted(piece)].mean(0)
            sizes.add(len(piece))
        one.population.set_parameters(subgraph.stack, theta)
    assert sizes >= {1, 3}  # somebody alone, and some who are not
    torch.testing.assert_close(got, one.population.predict_all(examples), rtol=0, atol=1e-12)
