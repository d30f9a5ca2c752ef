"""Models that are asked: under dropout without a step, about inputs that are no examples."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector
from toy import (
    BACKENDS,
    CLASSES,
    KINDS,
    LABELS,
    MIXED,
    Watched,
    batch_of,
    changed,
    ids_for,
    module_of,
    only_stack,
    population,
    snapshot,
    train,
)

from lntrust.learners.inference import Backend

OWN = ["own_models:Residual", "own_models:normalised", "own_models:frozen"]


@pytest.mark.parametrize("kind", [*KINDS, *OWN])
def test_flat_is_the_modules_parameter_vector_and_unflat_undoes_it(kind: str) -> None:
    """In PyTorch's own order of parameters; what its owner has frozen is not shared."""
    stack = only_stack(train(population(kind, n=3), rounds=1))
    flat = stack.flat()
    for i in range(3):
        shared = [p for name, p in module_of(stack, i).named_parameters() if name in stack.params]
        assert torch.equal(flat[i], parameters_to_vector(shared).detach())
    again = stack.unflat(flat)
    assert list(again) == list(stack.params)
    assert all(torch.equal(again[name], p) for name, p in stack.params.items())


# -- logits under dropout, without a step -------------------------------------------------------------


@BACKENDS
def test_noisy_logits_change_no_parameter_no_buffer_and_no_momentum(backend: Backend) -> None:
    """Batch normalisation would count every look at a batch if its buffers were handed over."""
    nodes = train(population(*MIXED, n=11, backend=backend), rounds=1)
    before = snapshot(nodes)
    noisy = nodes.noisy_logits("teacher", ids_for(nodes))
    assert not changed(nodes, before)
    assert noisy.shape == (11, 8, CLASSES)
    assert not noisy.requires_grad
    assert not noisy[1::5].any()  # forests have no logits
    assert noisy[0::5].any(-1).all()


@BACKENDS
@pytest.mark.parametrize("kind", [*KINDS, *OWN])
def test_noisy_logits_are_those_that_a_step_of_that_purpose_would_see(kind: str, backend: Backend) -> None:
    """The same masks, step after step; other purposes and other steps have others."""
    looking = population(kind, n=3, backend=backend)
    looking.step(batch_of(looking))
    stepping = population(kind, n=3, backend=backend, lr=1e-30)
    stepping.load({name: t.clone() for name, t in looking.state().items()})
    ids, seen = ids_for(looking), []
    for _ in range(2):
        watched = Watched()
        stepping.descend("teacher", ids, watched, (LABELS[ids],))
        seen.append(torch.stack(watched.logits))
    first, second = (looking.noisy_logits("teacher", ids) for _ in range(2))
    torch.testing.assert_close(first, seen[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(second, seen[1], rtol=0, atol=1e-12)
    assert not torch.allclose(first, second)
    assert not torch.allclose(looking.noisy_logits("pupil", ids), first)


# -- logits of inputs that are no examples ------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("kind", [*KINDS, *OWN])
def test_logits_of_equal_the_modules_on_those_inputs(kind: str, backend: Backend) -> None:
    """Also where they are computed in pieces, and of nobody."""
    stack = only_stack(train(population(kind, n=4, backend=backend), rounds=1))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, *stack.view.shape[1:], generator=g, dtype=torch.float64)
    member, row = torch.tensor([2, 0, 0, 3, 2, 1]), torch.tensor([1, 1, 0, 2, 2, 0])
    with torch.no_grad():
        pairs = zip(member.tolist(), row.tolist(), strict=True)
        expected = torch.stack([module_of(stack, m)(x[r]) for m, r in pairs])
    for at_once in (stack.at_once, 2 * x[0].numel()):
        stack.at_once = at_once
        torch.testing.assert_close(stack.logits_of(member, x, row), expected, rtol=0, atol=1e-12)
    for inputs in (x, x[:0]):
        assert stack.logits_of(member[:0], inputs, row[:0]).shape == (0, 5, CLASSES)


@BACKENDS
def test_logits_of_a_module_that_works_in_place_leave_the_inputs_alone(backend: Backend) -> None:
    stack = only_stack(population("own_models:InPlace", n=2, backend=backend))
    x = stack.view[:6].view(2, 3, 6).clone()
    before = x.clone()
    twice = [stack.logits_of(torch.tensor([0, 1, 1]), x, torch.tensor([0, 0, 1])) for _ in range(2)]
    assert torch.equal(x, before)
    assert torch.equal(*twice)
