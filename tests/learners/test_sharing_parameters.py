"""What a method does with parameters: read them, set them, answer with others', and start from the same."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector
from toy import CLASSES, CPU, DATASET, LABELS, everything, learner, lists, population, training

from lntrust.learners import Batch, Population
from lntrust.learners import inference as models
from lntrust.learners.inference import Backend
from lntrust.learners.modules import build
from lntrust.learners.training import Stack
from lntrust.learners.views import Views

KINDS = ["linear", "mlp", "cnn1d", "cnn2d"]
OWN = ["own_models:residual", "own_models:normalised", "own_models:frozen"]
MIXED = ["mlp", "forest", "linear", "own_models:normalised", "cnn2d"]
BACKENDS = pytest.mark.parametrize("backend", ["batched", "loop"])


def module_of(stack: Stack, i: int) -> nn.Module:
    """The i-th node of a stack as an ordinary module that answers."""
    module: nn.Module = build(stack.learner, tuple(stack.view.shape[1:]), CLASSES).double()
    module.load_state_dict({name: t[i] for name, t in {**stack.params, **stack.buffers}.items()})
    return module.eval()


def by_name(nodes: Population) -> dict[str, Stack]:
    return {stack.learner.name: stack for stack in nodes.torch_stacks}


def snapshot(nodes: Population) -> dict[str, Tensor]:
    """Parameters, buffers and momentum, but not how often which step was taken."""
    return {name: t.clone() for name, t in nodes.state().items() if not name.startswith("steps/")}


def changed(nodes: Population, before: dict[str, Tensor]) -> set[str]:
    return {name for name, t in snapshot(nodes).items() if not torch.equal(t, before[name])}


def other_parameters(nodes: Population, seed: int = 5) -> dict[str, Tensor]:
    """Random rows for every architecture, as another node might hand in."""
    g = torch.Generator().manual_seed(seed)
    return {
        stack.learner.name: torch.randn(nodes.n, stack.flat().shape[1], generator=g, dtype=torch.float64)
        for stack in nodes.torch_stacks
    }


def ids_for(nodes: Population, count: int = 8) -> Tensor:
    return (torch.arange(count) + 3 * torch.arange(nodes.n)[:, None]) % len(LABELS)


def batch_of(nodes: Population) -> Batch:
    ids = ids_for(nodes)
    return Batch(ids, LABELS[ids])


def trained(nodes: Population) -> Population:
    """A little, so that nobody stands where they began."""
    nodes.refit(lists(nodes.n))
    for _ in range(3):
        nodes.step(batch_of(nodes))
    return nodes


class Watched:
    """A loss that keeps the logits it was given, piece by piece."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        self.logits.append(logits.detach().clone())
        first = logits[:, : labels.shape[1]]
        return cross_entropy(first.transpose(1, 2), labels, reduction="none").mean(1)


# -- reading and setting ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *OWN])
def test_flat_is_the_modules_parameter_vector_and_unflat_undoes_it(kind: str) -> None:
    """In PyTorch's own order of parameters; what its owner has frozen is not shared."""
    (stack,) = trained(population(kind, n=3)).torch_stacks
    flat = stack.flat()
    for i in range(3):
        shared = [p for name, p in module_of(stack, i).named_parameters() if name in stack.params]
        assert torch.equal(flat[i], parameters_to_vector(shared).detach())
    again = stack.unflat(flat)
    assert list(again) == list(stack.params)
    assert all(torch.equal(again[name], p) for name, p in stack.params.items())


@BACKENDS
def test_parameters_are_those_of_one_architecture_and_0_for_everybody_else(backend: Backend) -> None:
    nodes = population(*MIXED, n=11, backend=backend)
    for stack in nodes.torch_stacks:
        rows = nodes.parameters(stack)
        assert torch.equal(rows[stack.nodes], stack.flat())
        others = torch.ones(11, dtype=torch.bool)
        others[stack.nodes] = False
        assert not rows[others].any()
        before = snapshot(nodes)
        rows.fill_(7.0)  # a copy: nobody's model is within reach
        assert not changed(nodes, before)


@BACKENDS
def test_setting_parameters_touches_one_architecture_and_nothing_else_of_it(backend: Backend) -> None:
    nodes = trained(population(*MIXED, n=11, backend=backend))
    forests = nodes.predict_all(everything())[1::5]
    for name, rows in other_parameters(nodes).items():
        before, stack = snapshot(nodes), by_name(nodes)[name]
        nodes.set_parameters(stack, rows)
        assert changed(nodes, before) == {f"{name}/param/{p}" for p in stack.params}
        assert torch.equal(stack.flat(), rows[stack.nodes])
        rows.zero_()  # what was handed in is not held
        assert stack.flat().all()
    assert torch.equal(nodes.predict_all(everything())[1::5], forests)


def test_a_node_with_anothers_parameters_answers_as_the_other() -> None:
    nodes = trained(population("mlp", "linear", n=6))
    stack = by_name(nodes)["mlp"]
    theta = nodes.parameters(stack)
    theta[2] = theta[4]
    nodes.set_parameters(stack, theta)
    answers = nodes.predict_all(everything())
    assert torch.equal(answers[2], answers[4])
    assert not torch.allclose(answers[0], answers[4])


# -- answering with other parameters ------------------------------------------------------------------


@BACKENDS
def test_using_answers_with_the_other_parameters_and_restores_its_own(backend: Backend) -> None:
    nodes = trained(population(*MIXED, n=11, backend=backend))
    set_ = trained(population(*MIXED, n=11, backend=backend))
    others = other_parameters(nodes)
    for name, stack in by_name(set_).items():
        set_.set_parameters(stack, others[name])
    ids, before, own = everything(), snapshot(nodes), nodes.predict_all(everything())
    pairs = torch.tensor([4, 0, 0, 2, 8]), torch.tensor([9, 9, 1, 0, 3])
    with nodes.using(others):
        assert torch.equal(nodes.predict_all(ids), set_.predict_all(ids))
        assert torch.equal(nodes.predict(*pairs), set_.predict(*pairs))
        noisy = nodes.noisy_logits("teacher", ids_for(nodes))
        assert torch.equal(noisy, set_.noisy_logits("teacher", ids_for(nodes)))
    assert not torch.allclose(set_.predict_all(ids)[0], own[0])
    assert not changed(nodes, before)
    assert torch.equal(nodes.predict_all(ids), own)


def test_learners_that_are_not_named_keep_their_own() -> None:
    nodes = trained(population("mlp", "linear", "forest", n=6))
    own, others = nodes.predict_all(everything()), other_parameters(nodes)
    with nodes.using({"mlp": others["mlp"]}):
        with nodes.using({"linear": others["linear"]}):
            both = nodes.predict_all(everything())
        inner = nodes.predict_all(everything())
    with nodes.using({}):
        assert torch.equal(nodes.predict_all(everything()), own)
    assert torch.equal(both[2::3], own[2::3])
    assert torch.equal(inner[1::3], own[1::3])
    assert torch.equal(inner[0::3], both[0::3])
    assert not torch.allclose(both[1::3], own[1::3])
    assert not torch.allclose(both[0::3], own[0::3])


def test_own_parameters_come_back_after_an_exception_and_train_on() -> None:
    """The very tensors, not copies: steps afterwards go where momentum and checkpoints look."""
    nodes, undisturbed = trained(population("mlp", n=3)), trained(population("mlp", n=3))
    (stack,) = nodes.torch_stacks
    own = stack.params
    with pytest.raises(ZeroDivisionError), nodes.using(other_parameters(nodes)):
        raise ZeroDivisionError
    assert stack.params is own
    for each in (nodes, undisturbed):
        each.step(batch_of(each))
    assert not changed(nodes, snapshot(undisturbed))


# -- logits under dropout, without a step -------------------------------------------------------------


@BACKENDS
def test_noisy_logits_change_no_parameter_no_buffer_and_no_momentum(backend: Backend) -> None:
    """Batch normalisation would count every look at a batch if its buffers were handed over."""
    nodes = trained(population(*MIXED, n=11, backend=backend))
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
    looking = trained(population(kind, n=3, backend=backend))
    stepping = population(kind, n=3, backend=backend, lr=1e-30)
    stepping.load({name: t.clone() for name, t in looking.state().items()})
    ids, seen = ids_for(looking), []
    for _ in range(2):
        watched = Watched()
        stepping.descend("teacher", ids, watched, (LABELS[ids],))
        seen.append(torch.cat(watched.logits))
    first, second = (looking.noisy_logits("teacher", ids) for _ in range(2))
    torch.testing.assert_close(first, seen[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(second, seen[1], rtol=0, atol=1e-12)
    assert not torch.allclose(first, second)
    assert not torch.allclose(looking.noisy_logits("pupil", ids), first)


@pytest.mark.parametrize("kind", [*KINDS, *OWN])
def test_noisy_logits_are_equal_in_both_backends(kind: str) -> None:
    both = [population(kind, "linear", n=6, backend=backend) for backend in ("batched", "loop")]  # type: ignore[arg-type]
    for _ in range(2):
        batched, loop = (nodes.noisy_logits("teacher", ids_for(nodes)) for nodes in both)
        torch.testing.assert_close(batched, loop, rtol=0, atol=1e-12)


def test_noisy_logits_leave_the_masks_of_other_steps_alone() -> None:
    looking, not_looking = population("mlp", n=3), population("mlp", n=3)
    looking.noisy_logits("teacher", ids_for(looking))
    for nodes in (looking, not_looking):
        nodes.step(batch_of(nodes))
    assert not changed(looking, snapshot(not_looking))


def test_noisy_logits_count_as_steps_of_the_active_alone() -> None:
    """A resting node has the same masks again: its count has stood still."""
    nodes = population("mlp", n=3)
    active = torch.tensor([True, False, True])
    first = nodes.noisy_logits("teacher", ids_for(nodes), active)
    assert nodes.steps_taken("teacher").tolist() == [1, 0, 1]
    second = nodes.noisy_logits("teacher", ids_for(nodes), active)
    assert torch.equal(first[1], second[1])
    assert not torch.allclose(first[0], second[0])


# -- logits of inputs that are no examples ------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("kind", [*KINDS, *OWN])
def test_logits_of_equal_the_modules_on_those_inputs(
    kind: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are computed in pieces."""
    (stack,) = trained(population(kind, n=4, backend=backend)).torch_stacks
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, *stack.view.shape[1:], generator=g, dtype=torch.float64)
    member, row = torch.tensor([2, 0, 0, 3, 2, 1]), torch.tensor([1, 1, 0, 2, 2, 0])
    got = stack.logits_of(member, x, row)
    with torch.no_grad():
        pairs = zip(member.tolist(), row.tolist(), strict=True)
        expected = torch.stack([module_of(stack, m)(x[r]) for m, r in pairs])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    monkeypatch.setattr(models, "_ANSWERED_AT_ONCE", 2 * x[0].numel())
    torch.testing.assert_close(stack.logits_of(member, x, row), expected, rtol=0, atol=1e-12)


@BACKENDS
@pytest.mark.parametrize("kind", [*KINDS, "own_models:normalised"])
def test_logits_of_nobody(kind: str, backend: Backend) -> None:
    (stack,) = population(kind, n=2, backend=backend).torch_stacks
    nobody = torch.zeros(0, dtype=torch.int64)
    x = torch.zeros(3, 5, *stack.view.shape[1:], dtype=torch.float64)
    assert stack.logits_of(nobody, x, nobody).shape == (0, 5, CLASSES)
    assert stack.logits_of(nobody, x[:0], nobody).shape == (0, 5, CLASSES)


@BACKENDS
def test_logits_of_a_module_that_works_in_place_leave_the_inputs_alone(backend: Backend) -> None:
    (stack,) = population("own_models:in_place", n=2, backend=backend).torch_stacks
    x = stack.view[:6].view(2, 3, 6).clone()
    kept = x.clone()
    twice = [stack.logits_of(torch.tensor([0, 1, 1]), x, torch.tensor([0, 0, 1])) for _ in range(2)]
    assert torch.equal(x, kept)
    assert torch.equal(*twice)


# -- who takes steps, and the same start --------------------------------------------------------------


def test_who_takes_steps() -> None:
    assert population(*MIXED, n=7).takes_steps.tolist() == [True, False, True, True, True, True, False]
    assert not population("forest", n=2).takes_steps.any()


def test_steps_are_counted_by_purpose_and_node() -> None:
    nodes = population("linear", "forest", n=3)
    ids, active = ids_for(nodes), torch.tensor([False, True, True])
    assert nodes.steps_taken("mutual").tolist() == [0, 0, 0]
    nodes.descend("mutual", ids, Watched(), (LABELS[ids],))
    nodes.descend("mutual", ids, Watched(), (LABELS[ids],), active=active)
    nodes.step(batch_of(nodes))
    assert nodes.steps_taken("mutual").tolist() == [1, 2, 2]
    assert nodes.steps_taken("supervised").tolist() == [1, 1, 1]
    nodes.steps_taken("mutual").zero_()  # a copy
    assert nodes.steps_taken("mutual").tolist() == [1, 2, 2]


def started(*kinds: str, n: int, common_start: bool, backend: Any = "batched") -> Population:
    chosen = [learner(kind) for kind in kinds]
    views, of_node = Views(DATASET, CPU, torch.float64), np.arange(n) % len(chosen)
    return Population(chosen, of_node, views, LABELS, CLASSES, training(), 0, backend, common_start)


@BACKENDS
def test_a_common_start_is_the_first_nodes_own_in_each_architecture(backend: Backend) -> None:
    """So a node's start does not depend on whether others share it; frozen layers are shared too."""
    kinds = ("mlp", "linear", "cnn2d", "own_models:frozen")
    common = started(*kinds, n=10, common_start=True, backend=backend)
    apart = started(*kinds, n=10, common_start=False, backend=backend)
    for together, single in zip(common.torch_stacks, apart.torch_stacks, strict=True):
        for table, own in ((together.params, single.params), (together.buffers, single.buffers)):
            for name, p in table.items():
                assert torch.equal(p, own[name][:1].expand_as(p)), name
        assert not torch.equal(single.flat()[0], single.flat()[1])


def test_a_common_start_shares_values_and_no_memory() -> None:
    """Each node trains on its own data from there."""
    nodes = started("mlp", n=3, common_start=True)
    nodes.step(batch_of(nodes))
    assert len(torch.unique(nodes.torch_stacks[0].flat(), dim=0)) == 3
