"""Temperatures: found again where they were put in, and 1 where nothing is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_evidence import generator, simplex
from torch import Tensor

from lntrust.core.losses import tempered
from lntrust.trust.calibration import _HIGHEST, _LOWEST, _STEPS, temperatures

STEP = (_HIGHEST / _LOWEST) ** (1 / (_STEPS - 1))  # from one temperature of the grid to the next


def drawn(p: Tensor, g: torch.Generator) -> Tensor:
    """Labels that follow these probabilities."""
    return torch.multinomial(p, 1, generator=g)[:, 0]


class TestFitted:
    @pytest.mark.parametrize("truth", [0.4, 0.7, 1.0, 1.6, 3.0])
    def test_a_known_temperature_is_found_again(self, truth: float) -> None:
        g = generator(1)
        p = simplex(20_000, 5, g=g)
        labels = drawn(tempered(p, torch.full((len(p),), truth)), g)
        (found,) = temperatures(p, labels, torch.tensor([0, len(p)])).tolist()
        assert truth / STEP**1.5 < found < truth * STEP**1.5

    def test_each_node_its_own(self) -> None:
        g = generator(2)
        truth, m = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64), 8000
        p = simplex(3 * m, 4, g=g)
        labels = drawn(tempered(p, truth.repeat_interleave(m)), g)
        offsets = torch.arange(4) * m
        found = temperatures(p, labels, offsets)
        assert ((found / truth).log().abs() < 1.5 * torch.tensor(STEP).log()).all()
        for i in range(3):
            part = slice(i * m, (i + 1) * m)
            assert temperatures(p[part], labels[part], torch.tensor([0, m])) == found[i]

    def test_without_examples_answers_stay_as_they_are(self) -> None:
        found = temperatures(
            torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
        )
        torch.testing.assert_close(found, torch.ones(3))

    def test_a_single_mistake_does_not_go_to_the_end_of_the_grid(self) -> None:
        p, wrong = torch.tensor([[0.7, 0.3]]), torch.tensor([1])
        (found,) = temperatures(p, wrong, torch.tensor([0, 1])).tolist()
        assert 1 < found < _HIGHEST

    def test_certain_and_wrong(self) -> None:
        """A probability of 0 for the truth must not make the loss infinite at every temperature."""
        found = temperatures(torch.tensor([[1.0, 0.0]] * 3), torch.tensor([1, 1, 1]), torch.tensor([0, 3]))
        assert found.tolist() == [pytest.approx(_HIGHEST)]


class TestTempered:
    @given(st.integers(0, 10_000), st.floats(0.25, 4.0))
    def test_the_likeliest_class_stays(self, seed: int, T: float) -> None:
        p = simplex(20, 6, g=generator(seed))
        out = tempered(p, torch.full((20,), T, dtype=torch.float64))
        assert torch.equal(out.argmax(-1), p.argmax(-1))
        torch.testing.assert_close(out.sum(-1), torch.ones(20, dtype=torch.float64))

    @given(st.integers(0, 10_000))
    def test_one_changes_nothing_and_more_is_less_sure(self, seed: int) -> None:
        p = simplex(20, 6, g=generator(seed))
        torch.testing.assert_close(tempered(p, torch.ones(20)), p, rtol=0, atol=1e-9)
        warm, hot = (tempered(p, torch.full((20,), T)).amax(-1) for T in (1.5, 3.0))
        assert (hot <= warm).all()
        assert (warm <= p.amax(-1) + 1e-12).all()

    @given(st.integers(0, 10_000))
    def test_it_is_the_softmax_of_scaled_logits(self, seed: int) -> None:
        logits = 2 * torch.randn(7, 5, generator=generator(seed), dtype=torch.float64)
        expected = (logits / 1.7).softmax(-1)
        out = tempered(logits.softmax(-1), torch.full((7,), 1.7, dtype=torch.float64))
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
