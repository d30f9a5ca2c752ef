"""Anchors: synthetic examples that match the class means of random embeddings."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, TORCH, shared, study
from torch import Tensor

from lntrust.core.randomness import fold, stream_key
from lntrust.experiment import Run
from lntrust.learners.training import Stack
from lntrust.learners.views import Views
from lntrust.methods.anchors import Recipe, condense, normal

RECIPE = Recipe(per_class=4, steps=0, lr=1.0, momentum=0.5, width=16, examples=256)
SEED = 5


@pytest.fixture
def run(views64: Views) -> Run:
    return shared(views64, TORCH, FLOAT64, method="independent")


def anchors_of(run: Run, **changes: float) -> tuple[Tensor, Tensor]:
    """Those of the linear heads, nodes 0, 2 and 4."""
    recipe = replace(RECIPE, **changes)
    return condense(run.population.torch_stacks[0], run.labelled.lists, run.population.labels, recipe, SEED)


def real_ones(run: Run, node: int, c: int) -> Tensor:
    """A node's examples of one class."""
    ids = torch.from_numpy(run.labelled.lists[node].copy())
    stack: Stack = run.population.torch_stacks[0]
    return stack.view[ids[run.population.labels[ids] == c]].flatten(1)


def embedding(step: int, width: int = RECIPE.width) -> Tensor:
    """The random map R that every node draws at a step."""
    key = fold(fold(stream_key(SEED, "anchors"), 1), step)
    return normal(key, 64 * width).view(64, width) / math.sqrt(64)


def gap(real: Tensor, anchors: Tensor, R: Tensor) -> Tensor:
    """‖mean f_R(real) − mean f_R(anchors)‖²."""
    return ((real @ R).relu().mean(0) - (anchors @ R).relu().mean(0)).square().sum()


class TestNormal:
    @given(st.integers(-(2**62), 2**62))
    def test_a_pure_function_of_the_key(self, word: int) -> None:
        key = torch.tensor(word)
        before = torch.random.get_rng_state()
        assert torch.equal(normal(key, 9), normal(key.clone(), 9))
        assert torch.equal(torch.random.get_rng_state(), before)
        assert not torch.equal(normal(key, 9), normal(key + 1, 9))

    @given(st.integers(0, 1000))
    def test_standard_within_the_error_of_a_sample(self, word: int) -> None:
        """Five standard errors: of the mean 1/√n, of the variance √(2/n), of the third moment √(15/n)."""
        n = 20_000
        x = normal(fold(torch.tensor(0), word), n)
        assert abs(float(x.mean())) < 5 / math.sqrt(n)
        assert abs(float(x.square().mean()) - 1) < 5 * math.sqrt(2 / n)
        assert abs(float(x.pow(3).mean())) < 5 * math.sqrt(15 / n)

    def test_as_often_small_as_a_normal_number(self) -> None:
        """Against the distribution function at a few places, not the moments alone."""
        x, n = normal(torch.tensor(3), 50_000), 50_000
        for z in (-2.0, -1.0, 0.0, 0.5, 2.5):
            share = 0.5 * (1 + math.erf(z / math.sqrt(2)))
            assert abs(float((x < z).double().mean()) - share) < 5 * math.sqrt(share * (1 - share) / n)

    @given(st.integers(0, 100), st.integers(0, 51))
    def test_as_many_as_asked_for_and_all_finite(self, word: int, count: int) -> None:
        x = normal(torch.tensor(word), count)
        assert x.shape == (count,)
        assert x.isfinite().all()
        assert len(x.unique()) == count


class TestStart:
    def test_noise_of_the_mean_and_spread_of_the_nodes_inputs(self, run: Run) -> None:
        """Where the inputs do not vary, nor do the anchors; elsewhere they are standard normal, rescaled."""
        anchors, _ = anchors_of(run, per_class=50)
        stack = run.population.torch_stacks[0]
        for k, i in enumerate(stack.nodes.tolist()):
            x = stack.view[torch.from_numpy(run.labelled.lists[i].copy())].flatten(1)
            flat, spread = anchors[k].flatten(0, 1), x.std(0, unbiased=False)
            still = spread == 0
            torch.testing.assert_close(flat[:, still], x.mean(0)[still].expand(len(flat), -1))
            z = (flat - x.mean(0))[:, ~still] / spread[~still]
            assert abs(float(z.mean())) < 5 / math.sqrt(z.numel())
            assert abs(float(z.square().mean()) - 1) < 5 * math.sqrt(2 / z.numel())

    def test_every_node_has_noise_of_its_own(self, run: Run) -> None:
        anchors, _ = anchors_of(run)
        varied = anchors.std((1, 2)) > 0
        both = varied[0] & varied[1]
        z = [(a[..., both] - a[..., both].mean((0, 1))) / a[..., both].std((0, 1)) for a in anchors[:2]]
        n = z[0].numel()
        assert abs(float((z[0] * z[1]).mean())) < 5 / math.sqrt(n)


class TestMatching:
    def test_it_lowers_the_distance_under_embeddings_it_has_not_seen(self, run: Run) -> None:
        before, has = anchors_of(run)
        after, _ = anchors_of(run, steps=60)
        draw = torch.Generator().manual_seed(0)
        R = torch.randn(64, 256, generator=draw, dtype=torch.float64) / 8
        for k, c in torch.nonzero(has).tolist():
            real = real_ones(run, int(run.population.torch_stacks[0].nodes[k]), c)
            assert gap(real, after[k, c], R) < gap(real, before[k, c], R)

    @pytest.mark.parametrize("steps", [1, 3])
    def test_its_steps_are_those_of_autograd(self, run: Run, steps: int) -> None:
        start, has = anchors_of(run)
        end, _ = anchors_of(run, steps=steps, lr=0.7)
        nodes = run.population.torch_stacks[0].nodes.tolist()
        x, velocity = start.clone(), torch.zeros_like(start)
        for step in range(steps):
            leaf = x.clone().requires_grad_()
            R = embedding(step)
            loss = sum(
                gap(real_ones(run, nodes[k], c), leaf[k, c], R) for k, c in torch.nonzero(has).tolist()
            )
            assert isinstance(loss, Tensor)
            (gradient,) = torch.autograd.grad(loss, leaf)
            velocity = RECIPE.momentum * velocity + gradient
            x = x - 0.7 * velocity
        assert not torch.allclose(x, start)
        torch.testing.assert_close(end, x, rtol=0, atol=1e-10)

    def test_classes_without_examples(self, run: Run) -> None:
        """They have no anchors, and nothing draws their noise anywhere."""
        start, has = anchors_of(run)
        end, has_after = anchors_of(run, steps=5)
        stack = run.population.torch_stacks[0]
        expected = [[len(real_ones(run, i, c)) > 0 for c in range(10)] for i in stack.nodes.tolist()]
        assert has.tolist() == has_after.tolist() == expected
        assert not has.all()
        assert torch.equal(start[~has], end[~has])
        assert (start[has] != end[has]).flatten(1).any(1).all()

    def test_at_most_so_many_real_ones(self, run: Run) -> None:
        """With one per class, one of the class's examples explains the step, and no mean of several does."""
        start, has = anchors_of(run)
        end, _ = anchors_of(run, steps=1, examples=1)
        whole, _ = anchors_of(run, steps=1)
        nodes = run.population.torch_stacks[0].nodes.tolist()
        several = 0
        for k, c in torch.nonzero(has).tolist():
            real = real_ones(run, nodes[k], c)
            fits = []
            for one in real:
                leaf = start[k, c].clone().requires_grad_()
                (gradient,) = torch.autograd.grad(gap(one[None], leaf, embedding(0)), leaf)
                fits.append(torch.allclose(start[k, c] - gradient, end[k, c], rtol=0, atol=1e-10))
            assert sum(fits) == 1
            several += len(real) > 1
            assert torch.allclose(end[k, c], whole[k, c]) == (len(real) == 1)
        assert several > 0

    def test_a_limit_that_is_not_reached_changes_nothing(self, run: Run) -> None:
        most = max(np.bincount(run.world.labels[ids]).max() for ids in run.labelled.lists)
        enough, more = (anchors_of(run, steps=2, examples=int(e))[0] for e in (most, 10 * most))
        assert torch.equal(enough, more)

    @pytest.mark.parametrize("learner", [0, 1])
    def test_one_node_at_a_time_is_the_same(self, views64: Views, learner: int) -> None:
        made = []
        for backend in ("batched", "loop"):
            one = Run(study(TORCH, FLOAT64), "independent", 0, views64, backend=backend)
            stack = one.population.torch_stacks[learner]
            recipe = replace(RECIPE, steps=5)
            made.append(condense(stack, one.labelled.lists, one.population.labels, recipe, SEED))
        torch.testing.assert_close(made[0][0], made[1][0], rtol=0, atol=1e-10)
        assert torch.equal(made[0][1], made[1][1])
