"""The population answers in order, whoever computes, and keeps its kinds of steps apart."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy import CLASSES, EXAMPLES, LABELS, everything, labelled, learner, population, train

from lntrust.learners import Population
from lntrust.learners import inference as models

MIXED = ["mlp", "forest", "linear", "own_models:normalised", "cnn2d"]


@pytest.fixture(scope="module")
def mixed() -> Population:
    return train(population(*MIXED, n=11), rounds=2)


# -- answering ----------------------------------------------------------------------------------------


def test_answers_are_probabilities(mixed: Population) -> None:
    answers = mixed.predict_all(everything())
    assert answers.shape == (11, EXAMPLES, CLASSES)
    assert (answers >= 0).all()
    torch.testing.assert_close(answers.sum(-1), torch.ones(11, EXAMPLES, dtype=torch.float64))
    assert len(torch.unique(answers[:, 0], dim=0)) == 11  # nobody's answers are another's


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, EXAMPLES - 1)), max_size=60))
def test_pairs_are_answered_in_order_as_everybody_answers_everything(pairs: list[tuple[int, int]]) -> None:
    nodes = _trained()
    table = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    node, example = table[:, 0], table[:, 1]
    answers = nodes.predict(node, example)
    assert answers.shape == (len(pairs), CLASSES)
    torch.testing.assert_close(answers, nodes.predict_all(everything())[node, example], rtol=0, atol=1e-12)
    twice = nodes.predict(node.repeat(2), example.repeat(2))
    assert torch.equal(twice, answers.repeat(2, 1))


_kept: list[Population] = []


def _trained() -> Population:
    """Made once: hypothesis does not take fixtures of smaller scope."""
    if not _kept:
        _kept.append(train(population(*MIXED, n=11), rounds=2))
    return _kept[0]


@pytest.mark.parametrize("kind", [*MIXED, "cnn1d"])
@pytest.mark.parametrize("backend", ["batched", "loop"])
def test_nothing_asked_nothing_answered(kind: str, backend: models.Backend) -> None:
    nodes = train(population(kind, n=3, backend=backend), rounds=1)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert nodes.predict_all(nothing).shape == (3, 0, CLASSES)
    assert nodes.predict(nothing, nothing).shape == (0, CLASSES)


def test_answers_do_not_depend_on_how_they_are_cut_up(
    mixed: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    node = torch.randint(0, 11, (500,), generator=generator)
    example = torch.randint(0, EXAMPLES, (500,), generator=generator)
    whole = mixed.predict_all(everything()), mixed.predict(node, example)
    monkeypatch.setattr(models, "_ANSWERED_AT_ONCE", 50)
    monkeypatch.setattr(models, "_BLOCK", 3)
    torch.testing.assert_close(mixed.predict_all(everything()), whole[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(mixed.predict(node, example), whole[1], rtol=0, atol=1e-12)


def test_kinds_without_nodes_are_left_out() -> None:
    nodes = population("linear", "mlp", "forest", kinds=[1, 1, 0])
    assert [stack.learner.name for stack in nodes.stacks] == ["linear", "mlp"]
    assert [stack.nodes.tolist() for stack in nodes.stacks] == [[2], [0, 1]]


# -- steps --------------------------------------------------------------------------------------------


def nothing_loss(logits: Tensor, _: Tensor) -> Tensor:
    """A loss that moves nothing; without momentum such a step leaves the parameters alone."""
    return 0 * logits.sum((1, 2))


def test_one_kind_of_step_never_moves_the_masks_of_another() -> None:
    quiet = population("mlp", momentum=0.0)
    busy = population("mlp", momentum=0.0)
    ids = torch.arange(6).expand(5, 6)
    for t in range(2):
        for a, b in zip(labelled(quiet).round(t), labelled(busy).round(t), strict=True):
            busy.descend("distil", ids, nothing_loss, (ids,))
            busy.descend("trust", ids, nothing_loss, (ids,))
            ours, theirs = quiet.step(a), busy.step(b)
            assert torch.equal(ours, theirs)
    for name, p in quiet.torch_stacks[0].params.items():
        assert torch.equal(p, busy.torch_stacks[0].params[name])
    assert busy.calls == {"supervised": 10, "distil": 10, "trust": 10}
    assert quiet.calls == {"supervised": 10}


def test_masks_follow_purpose_node_and_number_of_steps() -> None:
    """With a step size of about zero, losses on one batch differ by their masks only."""
    ids = torch.arange(8).expand(5, 8)

    def losses(purpose: str, steps: int, seed: int = 0) -> Tensor:
        nodes = population("linear", lr=1e-30, seed=seed)
        out = [nodes.descend(purpose, ids, cross_entropy, (LABELS[ids],)) for _ in range(steps)]
        return torch.stack(out)

    supervised = losses("supervised", 4)
    assert torch.equal(supervised, losses("supervised", 4))
    assert not torch.isclose(supervised, losses("distil", 4)).any()
    assert all(len(set(column)) == 4 for column in supervised.T.tolist())


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, labels[..., None]).mean((1, 2))


def test_a_resting_node_does_not_use_up_masks() -> None:
    """Masks count the node's own steps, not the population's."""
    ids = torch.arange(8).expand(5, 8)
    always, sometimes = population("linear", lr=1e-30), population("linear", lr=1e-30)
    first = [always.descend("supervised", ids, cross_entropy, (LABELS[ids],)) for _ in range(2)]
    turn = torch.tensor([True, False, True, False, True])
    sometimes.descend("supervised", ids, cross_entropy, (LABELS[ids],), active=turn)
    second = sometimes.descend("supervised", ids, cross_entropy, (LABELS[ids],))
    torch.testing.assert_close(second, torch.where(turn, first[1], first[0]))


def test_losses_are_those_before_the_step_and_nan_for_who_takes_none() -> None:
    nodes = population(learner("linear", dropout=0.0), "forest", n=4)
    nodes.refit(labelled(nodes).lists)
    batch = next(labelled(nodes).round(0))
    before = nodes.predict_all(everything())
    losses = nodes.step(batch)
    assert losses.isnan().tolist() == [False, True, False, True]
    for i in (0, 2):
        chosen = before[i, batch.examples[i], batch.labels[i]]
        torch.testing.assert_close(losses[i], -chosen.log().mean())
    active = torch.tensor([False, True, True, True])
    losses = nodes.descend("supervised", batch.examples, cross_entropy, (batch.labels,), active=active)
    assert losses.isnan().tolist() == [True, True, False, True]
    torch.testing.assert_close(nodes.last_loss["supervised"], losses, equal_nan=True)


def test_l2_is_for_supervised_steps() -> None:
    """A pure L2 step shrinks every parameter, biases included; other steps do not."""
    nodes = population("linear", l2=0.5, lr=0.1, momentum=0.0)
    before = {name: p.clone() for name, p in nodes.torch_stacks[0].params.items()}
    batch = next(labelled(nodes).round(0))
    nodes.descend("distil", batch.examples, nothing_loss, (batch.labels,))
    for name, p in nodes.torch_stacks[0].params.items():
        assert torch.equal(p, before[name])
    nodes.step(batch, nothing_loss)
    for name, p in nodes.torch_stacks[0].params.items():
        torch.testing.assert_close(p, before[name] * (1 - 0.1 * 0.5))


def test_momentum_is_shared_by_all_kinds_of_steps() -> None:
    nodes = population("linear", l2=0.0)
    batch = next(labelled(nodes).round(0))
    nodes.step(batch)
    weight = nodes.torch_stacks[0].params["2.weight"]
    before, v = weight.clone(), nodes.torch_stacks[0].momentum["2.weight"].clone()
    nodes.descend("distil", batch.examples, nothing_loss, (batch.labels,))
    torch.testing.assert_close(weight, before - 0.05 * 0.9 * v)


# -- keeping ------------------------------------------------------------------------------------------


def test_a_loaded_population_answers_and_goes_on_the_same(mixed: Population) -> None:
    saved = {name: t.clone() for name, t in mixed.state().items()}
    fresh = population(*MIXED, n=11)
    fresh.load(saved)
    assert torch.equal(fresh.predict_all(everything()), mixed.predict_all(everything()))
    other = population(*MIXED, n=11)
    other.load(saved)
    batch = next(labelled(fresh).round(2))
    torch.testing.assert_close(fresh.step(batch), other.step(batch), rtol=0, atol=0, equal_nan=True)
    assert fresh.state()["steps/supervised"].tolist() == [11] * 11
