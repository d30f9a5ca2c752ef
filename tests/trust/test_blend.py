"""The ensemble on the node's own validation set, against loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator

from lntrust.trust.blend import mixed, true_class, validation_accuracy, validation_loss
from lntrust.trust.weights import trust_weights

seeds = st.integers(0, 10_000)


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_equal_loops(seed: int) -> None:
    e = evidence(seed)
    n, D = e.mask.shape
    alpha = trust_weights(torch.randn(n, D, generator=generator(seed), dtype=torch.float64), e.mask)
    q = mixed(e.probabilities, alpha, e.offsets)
    loss = validation_loss(true_class(e.probabilities, e.labels), alpha, e.offsets)
    accuracy = validation_accuracy(q, e.labels, e.offsets)
    for i in range(n):
        losses, right = [], []
        for t in range(int(e.offsets[i]), int(e.offsets[i + 1])):
            blend = sum(float(alpha[i, j]) * e.probabilities[t, j] for j in range(D))
            torch.testing.assert_close(q[t], blend)
            y = int(e.labels[t])
            losses.append(-math.log(max(float(q[t, y]), 1e-8)))
            right.append(int(q[t].argmax()) == y)
        assert float(loss[i]) == pytest.approx(sum(losses) / len(losses) if losses else 0.0)
        assert float(accuracy[i]) == pytest.approx(sum(right) / len(right) if right else 0.0)


def test_true_class_picks_the_label_s_column() -> None:
    e = evidence(3)
    p = true_class(e.probabilities, e.labels)
    for t, y in enumerate(e.labels.tolist()):
        assert torch.equal(p[t], e.probabilities[t, :, y])


def test_the_loss_is_clipped() -> None:
    p, alone, offsets = torch.tensor([[0.0], [1.0]]).double(), torch.ones(1, 1).double(), torch.tensor([0, 2])
    assert float(validation_loss(p, alone, offsets)) == pytest.approx(-math.log(1e-8) / 2)
    assert float(validation_loss(p, alone, offsets, clip=0.5)) == pytest.approx(math.log(2) / 2)


def test_gradients() -> None:
    e = evidence(5)
    scores = torch.randn(e.mask.shape, generator=generator(5), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda s: validation_loss(e.p_true, trust_weights(s, e.mask), e.offsets), (scores,)
    )
