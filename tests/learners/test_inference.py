"""Models that are asked: under dropout without a step, about inputs that are no examples."""

import pytest
import torch
import toy

from lntrust.learners.inference import Backend

OWN = ["own_models:Residual", "own_models:normalised", "own_models:frozen"]


# -- logits under dropout, without a step -------------------------------------------------------------


@toy.BACKENDS
def test_noisy_logits_change_no_parameter_no_buffer_and_no_momentum(backend: Backend) -> None:
    """Batch normalisation would count every look at a batch if its buffers were handed over."""
    nodes = toy.train(toy.population(*toy.MIXED, n=11, backend=backend), rounds=1)
    before = toy.snapshot(nodes)
    noisy = nodes.noisy_logits("teacher", toy.ids_for(nodes))
    assert not toy.changed(nodes, before)
    assert noisy.shape == (11, 8, toy.CLASSES)
    assert not noisy.requires_grad
    assert not noisy[1::5].any()  # forests have no logits
    assert noisy[0::5].any(-1).all()


@toy.BACKENDS
@pytest.mark.parametrize("kind", [*toy.KINDS, *OWN])
def test_noisy_logits_are_those_that_a_step_of_that_purpose_would_see(kind: str, backend: Backend) -> None:
    """The same masks, step after step; other purposes and other steps have others."""
    looking = toy.population(kind, n=3, backend=backend)
    looking.step(toy.batch_of(looking))
    stepping = toy.population(kind, n=3, backend=backend, lr=1e-30)
    stepping.load({name: t.clone() for name, t in looking.state().items()})
    ids, seen = toy.ids_for(looking), []
    for _ in range(2):
        watched = toy.Watched()
        stepping.descend("teacher", ids, watched, (toy.LABELS[ids],))
        seen.append(torch.stack(watched.logits))
    first, second = (looking.noisy_logits("teacher", ids) for _ in range(2))
    toy.close(first, seen[0])
    toy.close(second, seen[1])
    assert not torch.allclose(first, second)
    assert not torch.allclose(looking.noisy_logits("pupil", ids), first)


# -- logits of inputs that are no examples ------------------------------------------------------------


@toy.BACKENDS
@pytest.mark.parametrize("kind", [*toy.KINDS, *OWN])
def test_logits_of_equal_the_modules_on_those_inputs(kind: str, backend: Backend) -> None:
    """Also where they are computed in pieces, and of nobody."""
    stack = toy.only_stack(toy.train(toy.population(kind, n=4, backend=backend), rounds=1))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, *stack.view.shape[1:], generator=g, dtype=torch.float64)
    member, row = torch.tensor([2, 0, 0, 3, 2, 1]), torch.tensor([1, 1, 0, 2, 2, 0])
    with torch.no_grad():
        pairs = zip(member.tolist(), row.tolist(), strict=True)
        expected = torch.stack([toy.module_of(stack, m)(x[r]) for m, r in pairs])
    for at_once in (stack.at_once, 2 * x[0].numel()):
        stack.at_once = at_once
        toy.close(stack.logits_of(member, x, row), expected)
    for inputs in (x, x[:0]):
        assert stack.logits_of(member[:0], inputs, row[:0]).shape == (0, 5, toy.CLASSES)
