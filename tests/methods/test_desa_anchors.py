"""DeSA's anchors: synthetic examples that match the class means of random embeddings."""

import math
from typing import Any

import pytest
import torch
from small_runs import TORCH, shared
from torch import Tensor

from lntrust.core.randomness import fold, normal, stream_key
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.desa import DeSASettings, condense

FEW = {"per_class": 4, "condense_steps": 0, "condense_width": 16}
SEED = 5


@pytest.fixture
def run(views64: Views) -> Run:
    return shared(views64, TORCH, method="independent")


def condensed(run: Run, learner: int = 0, **changes: Any) -> tuple[Tensor, Tensor]:
    """Anchors of the linear heads, nodes 0, 2 and 4, or of the others."""
    s, stack = DeSASettings(**(FEW | changes)), run.population.torch_stacks[learner]
    return condense(stack, run.labelled.lists, run.population.labels, s, SEED)


def real_ones(run: Run, node: int, c: int) -> Tensor:
    """A node's examples of one class."""
    ids = torch.from_numpy(run.labelled.lists[node].copy())
    return run.population.torch_stacks[0].view[ids[run.population.labels[ids] == c]].flatten(1)


def embedding(step: int) -> Tensor:
    """The random map R that every node draws at a step."""
    key = fold(fold(stream_key(SEED, "anchors"), 1), step)
    return normal(key, 64 * 16).view(64, 16) / math.sqrt(64)


def gap(real: Tensor, anchors: Tensor, R: Tensor) -> Tensor:
    """‖mean f_R(real) − mean f_R(anchors)‖²."""
    return ((real @ R).relu().mean(0) - (anchors @ R).relu().mean(0)).square().sum()


def test_anchors_begin_with_noise_of_the_mean_and_spread_of_the_nodes_inputs(run: Run) -> None:
    """Where the inputs do not vary, nor do the anchors; elsewhere they are standard normal, rescaled."""
    anchors, _ = condensed(run, per_class=50)
    stack = run.population.torch_stacks[0]
    for k, i in enumerate(stack.nodes.tolist()):
        x = stack.view[torch.from_numpy(run.labelled.lists[i].copy())].flatten(1)
        flat, spread = anchors[k].flatten(0, 1), x.std(0, unbiased=False)
        still = spread == 0
        torch.testing.assert_close(flat[:, still], x.mean(0)[still].expand(len(flat), -1))
        z = (flat - x.mean(0))[:, ~still] / spread[~still]
        assert abs(float(z.mean())) < 5 / math.sqrt(z.numel())
        assert abs(float(z.square().mean()) - 1) < 5 * math.sqrt(2 / z.numel())
    assert not torch.equal(anchors[0], anchors[1])  # of its own


class TestMatching:
    def test_its_steps_are_those_of_autograd(self, run: Run) -> None:
        start, has = condensed(run)
        end, _ = condensed(run, condense_steps=3, condense_lr=0.7)
        nodes = run.population.torch_stacks[0].nodes.tolist()
        x, velocity = start.clone(), torch.zeros_like(start)
        for step in range(3):
            leaf = x.clone().requires_grad_()
            R = embedding(step)
            loss = sum(
                gap(real_ones(run, nodes[k], c), leaf[k, c], R) for k, c in torch.nonzero(has).tolist()
            )
            assert isinstance(loss, Tensor)
            (gradient,) = torch.autograd.grad(loss, leaf)
            velocity = 0.5 * velocity + gradient
            x = x - 0.7 * velocity
        assert not torch.allclose(x, start)
        torch.testing.assert_close(end, x, rtol=0, atol=1e-10)

    def test_classes_without_examples(self, run: Run) -> None:
        """They have no anchors, and nothing draws their noise anywhere."""
        start, has = condensed(run)
        end, has_after = condensed(run, condense_steps=5)
        stack = run.population.torch_stacks[0]
        expected = [[len(real_ones(run, i, c)) > 0 for c in range(10)] for i in stack.nodes.tolist()]
        assert has.tolist() == has_after.tolist() == expected
        assert not has.all()
        assert torch.equal(start[~has], end[~has])
        assert (start[has] != end[has]).flatten(1).any(1).all()

    def test_at_most_so_many_real_ones(self, run: Run) -> None:
        """With one per class a step is another where there are several."""
        _, has = condensed(run)
        few, whole = (condensed(run, condense_steps=1, condense_examples=most)[0] for most in (1, 256))
        nodes = run.population.torch_stacks[0].nodes.tolist()
        count = {(k, c): len(real_ones(run, nodes[k], c)) for k, c in torch.nonzero(has).tolist()}
        assert len(set(count.values())) > 1
        for (k, c), several in count.items():
            assert torch.allclose(few[k, c], whole[k, c]) == (several == 1)
