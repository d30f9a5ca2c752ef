"""A supervised step that sees more than its batch: further examples, inputs of another kind, embeddings."""

import pytest
import torch
import toy
from torch import Tensor

from lntrust.learners import Population
from lntrust.learners.inference import Backend
from lntrust.learners.training import Stack


def more_for(nodes: Population, count: int = 3) -> Tensor:
    return torch.arange(count) + 11 * torch.arange(nodes.n)[:, None]


def inputs_for(stack: Stack, count: int = 2) -> Tensor:
    g = torch.Generator().manual_seed(3)
    shape = (len(stack.nodes), count, *stack.view.shape[1:])
    return torch.randn(*shape, generator=g, dtype=torch.float64)


@toy.BACKENDS
@pytest.mark.parametrize("kind", toy.KINDS)
def test_the_loss_is_given_batch_more_and_inputs_then_targets_then_embeddings(
    kind: str, backend: Backend
) -> None:
    """An embedding is what the last linear layer sees. A head has none: nothing trained makes it."""
    nodes, plain = (toy.population(toy.learner(kind, dropout=0.0), n=3, backend=backend) for _ in range(2))
    stack, batch, more = toy.only_stack(nodes), toy.batch_of(nodes), more_for(nodes)
    inputs, target = inputs_for(stack), torch.arange(3.0)
    modules, watched = [toy.module_of(stack, i) for i in range(3)], toy.Watched()
    nodes.step(batch, watched, (target,), more=more, inputs={kind: inputs}, embed=True)
    assert torch.equal(torch.cat([given for given, _ in watched.extras if given is not None]), target)
    embeddings = [e for _, some in watched.extras if some is not None for e in some]
    assert len(watched.logits) == 3
    assert len(embeddings) == (0 if kind == "linear" else 3)
    with torch.no_grad():
        for i, module in enumerate(modules):
            x = torch.cat([stack.view[batch.examples[i]], stack.view[more[i]], inputs[i]])
            toy.close(watched.logits[i], module(x))
            if embeddings:
                toy.close(embeddings[i], module[:-1](x))
    plain.step(batch, toy.Watched(), more=more, inputs={kind: inputs})
    toy.close(toy.only_stack(plain).flat(), stack.flat())


@toy.BACKENDS
@pytest.mark.parametrize("kind", [*toy.KINDS, "own_models:Residual"])
def test_the_batch_keeps_its_dropout_masks_whatever_comes_behind(kind: str, backend: Backend) -> None:
    """So a term of weight 0 on further examples leaves a step as it is."""
    plain, longer = (toy.population(kind, n=3, backend=backend) for _ in range(2))
    stack = toy.only_stack(longer)
    batch, seen, without = toy.batch_of(plain), toy.Watched(), toy.Watched()
    B = batch.examples.shape[1]
    # The batch's own first examples again, so that only their masks can differ.
    more = batch.examples[:, :2]
    again = {kind: stack.view[batch.examples[:, :2]]}
    losses = plain.step(batch, without), longer.step(batch, seen, more=more, inputs=again)
    toy.close(*losses)
    for short, long in zip(without.logits, seen.logits, strict=True):
        toy.close(long[:B], short)
        assert not torch.allclose(long[B : B + 2], short[:2])
        assert not torch.allclose(long[B + 2 :], long[B : B + 2])
    for name, value in plain.state().items():
        toy.close(longer.state()[name], value, msg=name)


@toy.BACKENDS
def test_inputs_go_to_the_learner_they_are_named_for(backend: Backend) -> None:
    nodes = toy.population("linear", "mlp", "forest", n=6, backend=backend)
    named = {stack.learner.name: stack for stack in nodes.torch_stacks}
    watched, batch, more = toy.Watched(), toy.batch_of(nodes), more_for(nodes)
    losses = nodes.step(batch, watched, more=more, inputs={"mlp": inputs_for(named["mlp"])})
    B = batch.examples.shape[1]
    # Who comes first is left to the threads.
    assert sorted(len(one) for one in watched.logits) == [B + 3] * 2 + [B + 3 + 2] * 2
    assert losses.isnan().tolist() == [False, False, True] * 2


def pulled(logits: Tensor, labels: Tensor, embedding: Tensor) -> Tensor:
    """A loss on the embedding alone."""
    return embedding.square().mean((1, 2))


@toy.BACKENDS
@pytest.mark.parametrize(("kind", "last"), [("mlp", "4"), ("cnn2d", "7")])
def test_gradients_flow_through_the_embedding(kind: str, last: str, backend: Backend) -> None:
    """They reach what makes it and not what comes behind it."""
    nodes = toy.population(toy.learner(kind, dropout=0.0), n=3, backend=backend, l2=0.0)
    stack = toy.only_stack(nodes)
    before = {name: p.clone() for name, p in stack.params.items()}
    nodes.step(toy.batch_of(nodes), pulled, embed=True)
    moved = {name for name, p in stack.params.items() if not torch.equal(p, before[name])}
    assert moved == {name for name in stack.params if not name.startswith(f"{last}.")}


@pytest.mark.parametrize("kind", ["mlp", "cnn1d", "cnn2d", "own_models:Residual", "own_models:normalised"])
def test_both_backends_make_the_same_step_of_it_all(kind: str) -> None:
    def loss(logits: Tensor, labels: Tensor, embedding: Tensor) -> Tensor:
        B = labels.shape[1]
        consistency = logits[:, B:].softmax(-1).square().mean((1, 2))
        return toy.mean_loss(logits[:, :B], labels) + consistency + 0.1 * embedding.square().mean((1, 2))

    both = [toy.population(kind, n=4, backend=backend) for backend in ("batched", "loop")]  # type: ignore[arg-type]
    for _ in range(3):
        losses = []
        for nodes in both:
            inputs = {kind: inputs_for(nodes.torch_stacks[0])}
            losses.append(
                nodes.step(toy.batch_of(nodes), loss, more=more_for(nodes), inputs=inputs, embed=True)
            )
        toy.close(*losses)
    for name, value in both[0].state().items():
        toy.close(both[1].state()[name], value, 1e-10, msg=name)
