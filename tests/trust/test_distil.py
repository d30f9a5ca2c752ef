"""The confidence filter, ω, and the two losses against PyTorch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import generator, simplex
from torch.nn import functional as F  # noqa: N812

from lntrust.trust.distil import confidence_filter, hard_loss, importance_weights, soft_loss, threshold

seeds = st.integers(0, 10_000)


def test_the_papers_thresholds() -> None:
    assert threshold(10, 0.2, 0.1) == 0.2
    assert threshold(100, 0.2, 0.1) == 0.2  # the floor
    assert threshold(4, 0.2, 0.1) == 0.35  # the margin


@settings(deadline=None, max_examples=30)
@given(seeds, st.floats(0.2, 0.95))
def test_the_filter_keeps_what_is_strictly_above(seed: int, tau: float) -> None:
    p = simplex(3, 8, 4, g=generator(seed))
    kept, predicted = confidence_filter(p, tau)
    assert kept.tolist() == [[max(row) > tau for row in rows] for rows in p.tolist()]
    assert predicted.tolist() == [[row.index(max(row)) for row in rows] for rows in p.tolist()]
    assert not confidence_filter(torch.full((1, 1, 4), 0.25), 0.25)[0].any()


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_importance(seed: int) -> None:
    g = generator(seed)
    w = simplex(4, 5, g=g)
    predicted = torch.randint(0, 5, (4, 12), generator=g)
    kept = torch.rand(4, 12, generator=g) < 0.5
    kept[0] = False
    paper, off, mean_one = (importance_weights(k, w, predicted, kept) for k in ("paper", "off", "mean_one"))  # type: ignore[arg-type]
    assert torch.equal(off, kept.double())
    for i in range(4):
        expected = [
            5 * float(w[i, c]) if keep else 0.0
            for c, keep in zip(predicted[i].tolist(), kept[i].tolist(), strict=True)
        ]
        assert paper[i].tolist() == pytest.approx(expected)
        if kept[i].any():
            assert float(mean_one[i][kept[i]].mean()) == pytest.approx(1.0)
            torch.testing.assert_close(mean_one[i] * paper[i].sum() / kept[i].sum(), paper[i])
        assert (mean_one[i][~kept[i]] == 0).all()


def test_importance_of_classes_that_the_node_does_not_have() -> None:
    w, kept = torch.tensor([[1.0, 0.0]]), torch.ones(1, 2, dtype=torch.bool)
    assert importance_weights("mean_one", w, torch.tensor([[1, 1]]), kept).tolist() == [[0.0, 0.0]]
    assert importance_weights("mean_one", w, torch.tensor([[0, 1]]), kept).tolist() == [[2.0, 0.0]]


def some(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    g = generator(seed)
    logits = 3 * torch.randn(3, 7, 4, generator=g, dtype=torch.float64)
    omega = torch.rand(3, 7, generator=g, dtype=torch.float64) * (torch.rand(3, 7, generator=g) < 0.7)
    return logits, simplex(3, 7, 4, g=g), omega, torch.rand(3, generator=g, dtype=torch.float64)


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_losses_equal_pytorchs(seed: int) -> None:
    logits, p_bar, omega, scale = some(seed)
    predicted = p_bar.argmax(-1)
    hard, soft = hard_loss(logits, predicted, omega, scale), soft_loss(logits, p_bar, omega, scale)
    for i in range(3):
        each = F.cross_entropy(logits[i], predicted[i], reduction="none")
        torch.testing.assert_close(hard[i], scale[i] * (omega[i] * each).sum())
        each = F.kl_div(logits[i].log_softmax(-1), p_bar[i], reduction="none").sum(-1)
        torch.testing.assert_close(soft[i], scale[i] * (omega[i] * each).sum())
