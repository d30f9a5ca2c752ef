"""The population answers in order, keeps its kinds of steps apart, and hands out parameters."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
import torch
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lntrust.learners import Population
from lntrust.learners.inference import Backend
from lntrust.learners.training import Stack


@cache
def mixed() -> Population:
    """Made once, and never trained further."""
    return toy.train(toy.population(*toy.MIXED, n=11), rounds=2)


# -- answering ----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, toy.EXAMPLES - 1)), max_size=60))
def test_pairs_are_answered_in_order_as_everybody_answers_everything(pairs: list[tuple[int, int]]) -> None:
    node, example = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    answers = mixed().asked(node, example)()
    assert answers.shape == (len(pairs), toy.CLASSES)
    toy.close(answers, mixed().predict_all(toy.everything())[node, example])
    twice = mixed().asked(node.repeat(2), example.repeat(2))()
    assert torch.equal(twice, answers.repeat(2, 1))


@toy.BACKENDS
@pytest.mark.parametrize("kind", [*toy.MIXED, "cnn1d"])
def test_nothing_asked_nothing_answered(kind: str, backend: Backend) -> None:
    nodes = toy.train(toy.population(kind, n=3, backend=backend), rounds=1)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert nodes.predict_all(nothing).shape == (3, 0, toy.CLASSES)
    assert nodes.asked(nothing, nothing)().shape == (0, toy.CLASSES)


def test_answers_do_not_depend_on_how_they_are_cut_up() -> None:
    nodes, generator = toy.train(toy.population(*toy.MIXED, n=11), rounds=2), torch.Generator().manual_seed(0)
    node = torch.randint(0, 11, (500,), generator=generator)
    example = torch.randint(0, toy.EXAMPLES, (500,), generator=generator)
    whole = nodes.predict_all(toy.everything()), nodes.asked(node, example)()
    for stack in nodes.torch_stacks:
        stack.at_once, stack.block = 50, 3
    toy.close(nodes.predict_all(toy.everything()), whole[0])
    toy.close(nodes.asked(node, example)(), whole[1])


@toy.BACKENDS
@pytest.mark.parametrize("kinds", [toy.MIXED, ["cnn2d", "linear"]])
def test_every_way_to_ask_gives_the_same_answers(kinds: list[str], backend: Backend) -> None:
    nodes = toy.train(toy.population(*kinds, n=11, backend=backend), rounds=1)
    ids, node, whole = toy.ids_for(nodes), torch.arange(11)[:, None], nodes.predict_all(toy.everything())
    toy.close(nodes.predict_own(ids), whole[node, ids])
    assert torch.equal(nodes.labels_of(node.expand_as(ids), ids), toy.LABELS[ids])


def test_what_heads_see_makes_their_logits() -> None:
    nodes = toy.train(toy.population("linear", "mlp", n=5), rounds=1)
    ids = toy.ids_for(nodes)
    ((stack, x),) = nodes.head_inputs("teacher", ids)
    by_hand = x @ stack.params["2.weight"].transpose(1, 2) + stack.params["2.bias"][:, None]
    toy.close(nodes.noisy_logits("teacher", ids)[stack.nodes], by_hand)


def test_kinds_without_nodes_are_left_out() -> None:
    nodes = toy.population("linear", "mlp", "forest", kinds=[1, 1, 0])
    assert [stack.learner.name for stack in nodes.stacks] == ["linear", "mlp"]
    assert [stack.nodes.tolist() for stack in nodes.stacks] == [[2], [0, 1]]


# -- steps --------------------------------------------------------------------------------------------


def nothing_loss(logits: Tensor, _: Tensor) -> Tensor:
    """A loss that moves nothing; without momentum such a step leaves the parameters alone."""
    return 0 * logits.sum((1, 2))


def test_one_kind_of_step_never_moves_the_masks_of_another() -> None:
    quiet, busy = (toy.population("mlp", momentum=0.0) for _ in range(2))
    ids = torch.arange(6).expand(5, 6)
    for t in range(2):
        for batch in toy.labelled(quiet).round(t):
            busy.descend("distil", ids, nothing_loss, (ids,))
            busy.noisy_logits("teacher", ids)
            assert torch.equal(quiet.step(batch), busy.step(batch))
    assert not toy.changed(quiet, toy.snapshot(busy))
    assert busy.calls == {"supervised": 10, "distil": 10, "teacher": 10}
    assert quiet.calls == {"supervised": 10}


def test_a_resting_node_does_not_use_up_masks() -> None:
    """Masks count the node's own steps, not the population's; looks under dropout count as steps."""
    ids = torch.arange(8).expand(5, 8)
    always, sometimes = toy.population("linear", lr=1e-30), toy.population("linear", lr=1e-30)
    first = [always.descend("supervised", ids, toy.mean_loss, (toy.LABELS[ids],)) for _ in range(2)]
    turn = torch.tensor([True, False, True, False, True])
    sometimes.descend("supervised", ids, toy.mean_loss, (toy.LABELS[ids],), active=turn)
    second = sometimes.descend("supervised", ids, toy.mean_loss, (toy.LABELS[ids],))
    torch.testing.assert_close(second, torch.where(turn, first[1], first[0]))
    looks = [always.noisy_logits("teacher", ids, turn) for _ in range(2)]
    assert always.steps_taken("mutual").tolist() == [0] * 5
    always.steps_taken("teacher").zero_()  # a copy
    assert always.steps_taken("teacher").tolist() == [2, 0, 2, 0, 2]
    assert [torch.equal(a, b) for a, b in zip(*looks, strict=True)] == (~turn).tolist()


def test_who_takes_steps() -> None:
    assert torch.nonzero(~toy.population(*toy.MIXED, n=7).takes_steps).flatten().tolist() == [1, 6]
    assert not toy.population("forest", n=2).takes_steps.any()


def test_losses_are_those_before_the_step_and_nan_for_who_takes_none() -> None:
    nodes = toy.population(toy.learner("linear", dropout=0.0), "forest", n=4)
    nodes.refit(toy.labelled(nodes).lists)
    batch = next(toy.labelled(nodes).round(0))
    before = nodes.predict_all(toy.everything())
    losses = nodes.step(batch)
    assert losses.isnan().tolist() == [False, True, False, True]
    for i in (0, 2):
        chosen = before[i, batch.examples[i], batch.labels[i]]
        torch.testing.assert_close(losses[i], -chosen.log().mean())
    active = torch.tensor([False, True, True, True])
    losses = nodes.descend("supervised", batch.examples, toy.mean_loss, (batch.labels,), active=active)
    assert losses.isnan().tolist() == [True, True, False, True]
    torch.testing.assert_close(nodes.last_loss["supervised"], losses, equal_nan=True)


def test_l2_is_for_supervised_steps_and_momentum_for_all() -> None:
    """A pure L2 step shrinks every parameter, biases included; another step goes on as that began."""
    nodes = toy.population("linear", l2=0.5, lr=0.1, momentum=0.9)
    stack, batch = toy.only_stack(nodes), next(toy.labelled(nodes).round(0))
    before = stack.flat()
    nodes.descend("distil", batch.examples, nothing_loss, (batch.labels,))
    assert torch.equal(stack.flat(), before)
    nodes.step(batch, nothing_loss)
    toy.close(stack.flat(), before * (1 - 0.1 * 0.5))
    nodes.descend("distil", batch.examples, nothing_loss, (batch.labels,))
    toy.close(stack.flat(), before * (1 - 0.1 * 0.5 * 1.9))


# -- parameters ---------------------------------------------------------------------------------------


def by_name(nodes: Population) -> dict[str, Stack]:
    return {stack.learner.name: stack for stack in nodes.torch_stacks}


def trained(nodes: Population) -> Population:
    """A little, so that nobody stands where they began."""
    nodes.refit(toy.lists(nodes.n))
    for _ in range(3):
        nodes.step(toy.batch_of(nodes))
    return nodes


def other_parameters(nodes: Population) -> dict[str, Tensor]:
    """Random rows for every architecture, as another node might hand in."""
    g = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(nodes.n, stack.flat().shape[1], generator=g, dtype=torch.float64)
        for name, stack in by_name(nodes).items()
    }


@toy.BACKENDS
def test_setting_parameters_touches_one_architecture_and_nothing_else_of_it(backend: Backend) -> None:
    nodes = trained(toy.population(*toy.MIXED, n=11, backend=backend))
    forests = nodes.predict_all(toy.everything())[1::5]
    for name, rows in other_parameters(nodes).items():
        before, stack = toy.snapshot(nodes), by_name(nodes)[name]
        nodes.set_parameters(stack, rows)
        assert toy.changed(nodes, before) == {f"{name}/param/{p}" for p in stack.params}
        assert torch.equal(stack.flat(), rows[stack.nodes])
        rows.zero_()  # what was handed in is not held
        assert stack.flat().all()
        handed_out = nodes.parameters(stack)
        assert torch.equal(handed_out[stack.nodes], stack.flat())
        assert not handed_out.any(1).index_fill(0, stack.nodes, False).any()  # 0 for everybody else
        handed_out.zero_()  # nor what is handed out
        assert stack.flat().all()
    assert torch.equal(nodes.predict_all(toy.everything())[1::5], forests)


@toy.BACKENDS
def test_using_answers_with_the_other_parameters_and_restores_its_own(backend: Backend) -> None:
    nodes, set_ = (trained(toy.population(*toy.MIXED, n=11, backend=backend)) for _ in range(2))
    others = other_parameters(nodes)
    for name, stack in by_name(set_).items():
        set_.set_parameters(stack, others[name])
    ids, before, own = toy.everything(), toy.snapshot(nodes), nodes.predict_all(toy.everything())
    pairs = torch.tensor([4, 0, 0, 2, 8]), torch.tensor([9, 9, 1, 0, 3])
    tensors = [stack.params for stack in nodes.torch_stacks]
    with suppress(ZeroDivisionError), nodes.using(others):
        assert torch.equal(nodes.predict_all(ids), set_.predict_all(ids))
        assert torch.equal(nodes.asked(*pairs)(), set_.asked(*pairs)())
        noisy = nodes.noisy_logits("teacher", toy.ids_for(nodes))
        assert torch.equal(noisy, set_.noisy_logits("teacher", toy.ids_for(nodes)))
        raise ZeroDivisionError
    # The very tensors, not copies: steps afterwards go where momentum and checkpoints look.
    assert all(stack.params is own for stack, own in zip(nodes.torch_stacks, tensors, strict=True))
    assert not torch.allclose(set_.predict_all(ids)[0], own[0])
    assert not toy.changed(nodes, before)
    assert torch.equal(nodes.predict_all(ids), own)


def test_learners_that_are_not_named_keep_their_own() -> None:
    nodes = trained(toy.population("mlp", "linear", "forest", n=6))
    own, others = nodes.predict_all(toy.everything()), other_parameters(nodes)
    with nodes.using({"mlp": others["mlp"]}):
        with nodes.using({"linear": others["linear"]}):
            both = nodes.predict_all(toy.everything())
        inner = nodes.predict_all(toy.everything())
    assert torch.equal(both[2::3], own[2::3])
    assert torch.equal(inner[1::3], own[1::3])
    assert torch.equal(inner[0::3], both[0::3])
    assert not torch.allclose(both[1::3], own[1::3])
    assert not torch.allclose(both[0::3], own[0::3])


@toy.BACKENDS
def test_a_common_start_is_the_first_nodes_own_in_each_architecture(backend: Backend) -> None:
    """So a node's start does not depend on whether others share it; frozen layers are shared too."""
    kinds = ("mlp", "linear", "cnn2d", "own_models:frozen")
    common = toy.population(*kinds, n=10, common_start=True, backend=backend)
    apart = toy.population(*kinds, n=10, backend=backend)
    for together, single in zip(common.torch_stacks, apart.torch_stacks, strict=True):
        for table, own in ((together.params, single.params), (together.buffers, single.buffers)):
            for name, p in table.items():
                assert torch.equal(p, own[name][:1].expand_as(p)), name
        assert not torch.equal(single.flat()[0], single.flat()[1])
    common.step(toy.batch_of(common))  # they share values, and no memory
    assert len(torch.unique(common.torch_stacks[0].flat(), dim=0)) == 3


# -- keeping, and others of the same making -----------------------------------------------------------


def test_a_loaded_population_answers_and_goes_on_the_same() -> None:
    saved = {name: t.clone() for name, t in mixed().state().items()}
    fresh, other = (toy.population(*toy.MIXED, n=11) for _ in range(2))
    for each in (fresh, other):
        each.load(saved)
    assert torch.equal(fresh.predict_all(toy.everything()), mixed().predict_all(toy.everything()))
    batch = next(toy.labelled(fresh).round(2))
    toy.close(fresh.step(batch), other.step(batch), 0)
    assert fresh.state()["steps/supervised"].tolist() == [11] * 11


@pytest.mark.parametrize("common_start", [True, False])
def test_a_twin_is_what_the_population_was(common_start: bool) -> None:
    """Of the same factory, too, wherever that came from."""
    made: list[str] = []

    def build(own: object, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        made.append("module")
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0], classes))

    def fresh() -> Population:
        return toy.population("linear", n=3, common_start=common_start, build=build, lr=0.3)

    nodes = trained(fresh())
    made.clear()
    twin = replace(nodes)
    assert made
    assert not toy.changed(twin, toy.snapshot(fresh()))
    single, alone = nodes.one_of_each(nodes.training, 0), toy.population("linear", n=1, build=build)
    assert torch.equal(toy.only_stack(single).flat(), toy.only_stack(alone).flat())
    twin.load(nodes.state())
    for each in (nodes, twin):
        each.step(toy.batch_of(each))
    assert not toy.changed(twin, toy.snapshot(nodes))
