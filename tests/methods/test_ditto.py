"""Ditto: a personal model near an averaged one."""

import pytest
import torch
from small_runs import ROUNDS, STEPS, TORCH, UNEQUAL, begun, ended, parameters, scatter, shared
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.base import State, below
from lntrust.methods.sharing import subgraphs

METHOD = "ditto"
STILL = TORCH.replace("dropout=0.2", "dropout=0")


def strength(value: float) -> str:
    return f"methods.ditto.strength={value}"


def averaged(one: Run, state: State) -> dict[str, Tensor]:
    """w, its momentum beside, as a population's parameters are named."""
    return {name: t for name, t in state.items() if name in parameters(one)}


def test_without_the_term_it_is_independent_bit_for_bit(views64: Views) -> None:
    one = begun(views64, TORCH, strength(0), method=METHOD)
    plain = begun(views64, TORCH, method="independent")
    plain.population.load(one.population.state())  # from the same common start
    one(), plain()
    assert parameters(one).keys() == parameters(plain).keys()
    assert all(torch.equal(t, parameters(plain)[name]) for name, t in parameters(one).items())


def test_the_averaged_model_is_that_of_dfedavg(views64: Views) -> None:
    """Up to dropout, of which each has its own; whatever the personal one does."""
    one, other = (shared(views64, STILL, method=m) for m in (METHOD, "dfedavg"))
    w = averaged(one, one.state)
    assert w.keys() == parameters(other).keys()
    assert all(torch.equal(t, parameters(other)[name]) for name, t in w.items())
    assert one.network.ledger.summary() == other.network.ledger.summary()


def test_held_without_end_it_is_the_average_that_the_round_began_with(views64: Views) -> None:
    one = begun(views64, TORCH, strength(1e12), method=METHOD)
    states: list[State] = []
    one(progress=lambda done, *_: states.append(one.state))
    last = averaged(one, states[-2])
    for subgraph in subgraphs(one.site):
        stack = subgraph.stack
        w = below(f"{stack.learner.name}/param/", last)
        near = subgraph.degree[stack.nodes] > 0
        for name, v in stack.params.items():
            torch.testing.assert_close(v[near], w[name][near], rtol=0, atol=1e-9)
            assert not torch.allclose(v[~near], w[name][~near]) or not (~near).any()


def test_the_more_it_is_held_the_nearer_it_stays(views64: Views) -> None:
    distances = []
    for value in (0.0, 0.1, 1.0, 10.0):
        one = shared(views64, TORCH, strength(value), method=METHOD)
        w, v = averaged(one, one.state), parameters(one)
        distances.append(sum(float((v[n] - t).square().sum()) for n, t in w.items() if "/param/" in n))
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 2 * distances[-1]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_proximal_step(views64: Views, momentum: float) -> None:
    """argmin_v c/2·‖v − w‖² + 1/2·‖v − v'‖², for who has stepped; c as momentum multiplies gradients."""
    how = (TORCH, *UNEQUAL, strength(3.0), f"training.momentum={momentum}", "training.lr=0.02")
    one = begun(views64, *how, method=METHOD)
    turn = torch.arange(6) % 3 > 0
    before = {subgraph.stack.learner.name: scatter(one, subgraph.stack) for subgraph in subgraphs(one.site)}
    w = [torch.ones_like(v) for v in before.values()]
    one.method.pull(one.site, w, turn)
    c = 0.02 * 3.0 / (1 - momentum)
    for subgraph in subgraphs(one.site):
        old = before[subgraph.stack.learner.name]
        new = one.population.parameters(subgraph.stack)
        for i in subgraph.stack.nodes.tolist():
            if not turn[i] or not subgraph.degree[i]:
                assert torch.equal(new[i], old[i])
            else:
                slope = c * (new[i] - 1.0) + (new[i] - old[i])
                torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)


def test_the_deployed_model_takes_the_steps_of_every_method(views: Views) -> None:
    """And the averaged one as many again, on the same examples."""
    one, summary = ended(views, TORCH, method=METHOD)
    assert one.population.calls == {"supervised": (2 + ROUNDS) * STEPS, "average": ROUNDS * STEPS}
    assert summary["test"] == summary["self"]
