"""All nodes in one tensor, or one node at a time: the same numbers."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from toy import BACKENDS, CLASSES, batch_of, close, everything, learner, mean_loss, population, train

from lntrust.learners import Population
from lntrust.learners.inference import Backend

TORCH_KINDS = ["linear", "mlp", "cnn1d", "cnn2d", "own_models:Residual"]
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
SCHEDULES = pytest.mark.parametrize("schedule", ["every_node", "random_node"])


def both(kinds: Sequence[str], **options: Any) -> tuple[Population, Population]:
    learners = [learner(kind) for kind in kinds]
    stacked = population(*learners, backend="batched", **options)
    looped = population(*learners, backend="loop", **options)
    assert not any(stack.looped for stack in stacked.torch_stacks)
    assert all(stack.looped for stack in looped.torch_stacks)
    return stacked, looped


def assert_equal(a: Population, b: Population, tolerance: float) -> None:
    ours, theirs = a.state(), b.state()
    assert ours.keys() == theirs.keys()
    for name in ours:
        close(ours[name], theirs[name], tolerance, msg=name)
    p, q = a.predict_all(everything()), b.predict_all(everything())
    close(p, q, tolerance)


def moved(nodes: Population, fresh: Population) -> bool:
    """Whether every node's parameters have left their initial values."""
    pairs = zip(nodes.torch_stacks, fresh.torch_stacks, strict=True)
    return all(
        bool(((now.params[name] - then.params[name]).abs().flatten(1).amax(1) > 1e-3).all())
        for now, then in pairs
        for name in now.params
    )


@PRECISIONS
@SCHEDULES
def test_backends_agree_after_five_rounds_with_dropout(schedule: str, dtype: torch.dtype) -> None:
    kinds = [*TORCH_KINDS, "forest"]
    stacked, looped = (train(nodes) for nodes in both(kinds, n=14, schedule=schedule, dtype=dtype))
    assert moved(stacked, population(*map(learner, kinds), n=14, dtype=dtype))
    assert_equal(stacked, looped, TOLERANCE[dtype])


def soft_loss(logits: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """A distillation loss with a target per example and a weight per node."""
    return weight * -(targets * logits.log_softmax(-1)).sum(-1).mean(-1)


@pytest.mark.parametrize("kind", TORCH_KINDS)
def test_backends_agree_on_other_steps_and_on_losses(kind: str) -> None:
    stacked, looped = both([kind])
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        ids = torch.randint(0, 120, (5, 9), generator=generator)
        targets = torch.rand(5, 9, CLASSES, generator=generator, dtype=torch.float64).softmax(-1)
        weight = torch.rand(5, generator=generator, dtype=torch.float64)
        active = torch.rand(5, generator=generator) < 0.6
        losses = [
            nodes.descend("distil", ids, soft_loss, (targets, weight), active=active)
            for nodes in (stacked, looped)
        ]
        assert torch.equal(losses[0].isnan(), ~active)
        close(*losses, 1e-8)
    assert_equal(stacked, looped, 1e-8)


@BACKENDS
def test_who_is_not_active_does_not_move(backend: Backend) -> None:
    nodes = train(population("mlp", backend=backend), rounds=1)  # momentum is under way
    before = {name: t.clone() for name, t in nodes.state().items()}
    batch = batch_of(nodes)
    active = torch.tensor([True, False, True, False, False])
    nodes.descend("supervised", batch.examples, mean_loss, (batch.labels,), l2=0.1, active=active)
    for name, now in nodes.state().items():
        changed = (now != before[name]).flatten(1).any(1) if now.ndim > 1 else now != before[name]
        assert torch.equal(changed, active), name


def test_a_node_learns_the_same_whoever_else_exists() -> None:
    """Node 0 of 2 and node 0 of 6 with the same data end at the same parameters."""
    few = train(population("mlp", n=2))
    many = train(population("mlp", n=6))
    for one, other in zip(few.torch_stacks, many.torch_stacks, strict=True):
        for name in one.params:
            close(one.params[name], other.params[name][:2], 1e-10)
