"""Asking one neighbour after another: never another answer where none may be, and no more than needed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_evidence import evidence, generator, simplex
from torch import Tensor

from lntrust.trust.asking import in_turn, typical_margin

PARTS = 64  # weights and probabilities are multiples of 1/64: sums of their products are exact


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """α [m, D] with the neighbours by falling weight, p [m, D, C]; ties and zeros are frequent."""
    m, D, C = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    g = generator(draw(st.integers(0, 10_000)))
    sharp = draw(st.sampled_from([0.3, 2.0, 8.0]))

    def parts(*shape: int) -> Tensor:
        chance = (sharp * torch.randn(*shape, generator=g)).softmax(-1).reshape(-1, shape[-1])
        drawn = torch.multinomial(chance, PARTS, replacement=True, generator=g)
        counts = torch.zeros_like(chance).scatter_add(1, drawn, torch.ones(drawn.shape))
        return (counts / PARTS).double().view(*shape)

    alpha = parts(m, D)
    alpha[:, 1:] = alpha[:, 1:].sort(dim=1, descending=True).values
    return alpha, parts(m, D, C)


def asked_in_turn(alpha: Tensor, p: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    turns = [(alpha[:, k], p[:, k]) for k in range(alpha.shape[1])]
    return in_turn(turns, kappa)


def whole(alpha: Tensor, p: Tensor) -> Tensor:
    return (alpha[..., None] * p).sum(1)


class TestInTurn:
    @given(cases())
    def test_asking_until_nobody_could_change_it_changes_nothing(self, case: tuple[Tensor, Tensor]) -> None:
        alpha, p = case
        blend, asked = asked_in_turn(alpha, p, 1.0)
        assert torch.equal(blend.argmax(-1), whole(alpha, p).argmax(-1))
        assert (asked <= (alpha[:, 1:] > 0).sum(1)).all()

    @given(cases())
    def test_at_no_certainty_only_a_tie_makes_a_node_ask(self, case: tuple[Tensor, Tensor]) -> None:
        alpha, p = case
        blend, asked = asked_in_turn(alpha, p, 0.0)
        own = alpha[:, 0, None] * p[:, 0]
        best = own.topk(2, dim=-1).values
        decided = best[:, 0] > best[:, 1]
        assert (asked[decided] == 0).all()
        assert torch.equal(blend[decided], own[decided])
        some = (alpha[:, 1:] > 0).any(1)
        assert (asked[~decided & some] > 0).all()

    @given(cases(), st.floats(0, 1), st.floats(0, 1))
    def test_who_must_be_surer_never_asks_fewer(
        self, case: tuple[Tensor, Tensor], a: float, b: float
    ) -> None:
        less, more = (asked_in_turn(*case, kappa)[1] for kappa in sorted((a, b)))
        assert (less <= more).all()

    @given(cases(), st.floats(0, 1))
    def test_the_blend_is_of_those_who_were_asked(self, case: tuple[Tensor, Tensor], kappa: float) -> None:
        alpha, p = case
        blend, asked = asked_in_turn(alpha, p, kappa)
        for i, count in enumerate(asked.tolist()):
            assert torch.equal(blend[i], whole(alpha[i : i + 1, : count + 1], p[i : i + 1, : count + 1])[0])

    def test_by_hand(self) -> None:
        """Own lead 0.4·0.6 = 0.24; first neighbour adds 0.3·(−1): lead 0.06 of the other class."""
        alpha = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
        p = torch.tensor([[[0.8, 0.2], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]], dtype=torch.float64)
        asked = {kappa: int(asked_in_turn(alpha, p, kappa)[1]) for kappa in (0.3, 0.5, 0.1, 1.0)}
        # 0.24 > 0.3·0.6; not > 0.5·0.6, and then 0.06 < 0.5·0.3 but, one later, 0.06 > 0.5·0.1
        assert asked == {0.1: 0, 0.3: 0, 0.5: 2, 1.0: 3}

    def test_nobody_without_weight_is_asked(self) -> None:
        alpha = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        p = torch.tensor([[0.5, 0.5]]).expand(3, 3, 2)  # nobody is ever sure of anything
        assert asked_in_turn(alpha, p, 1.0)[1].tolist() == [1, 0, 1]

    def test_one_class_only(self) -> None:
        alpha, p = torch.tensor([[0.6, 0.4]]), torch.ones(1, 2, 1)
        assert asked_in_turn(alpha, p, 1.0)[1].tolist() == [0]


class TestUsualLead:
    @given(st.integers(0, 10_000))
    def test_one_neighbour_after_another(self, seed: int) -> None:
        e = evidence(seed)
        alpha = simplex(*e.mask.shape, g=generator(seed)) * e.mask
        found = typical_margin(e, alpha)
        for i in range(len(alpha)):
            rows = e.probabilities[e.offsets[i] : e.offsets[i + 1]]
            weight = total = 0.0
            for j in range(1, alpha.shape[1]):
                if len(rows) and e.mask[i, j]:
                    first, second = rows[:, j].sort(-1, descending=True).values[:, :2].unbind(-1)
                    total += float(alpha[i, j]) * float((first - second).mean())
                    weight += float(alpha[i, j])
            assert float(found[i]) == pytest.approx(total / weight if weight else 1.0)

    def test_nobody_to_ask(self) -> None:
        e = evidence(1)
        alpha = torch.zeros_like(e.mask, dtype=torch.float64)
        alpha[:, 0] = 1.0
        assert (typical_margin(e, alpha) == 1).all()

    def test_who_says_nothing_adds_nothing(self) -> None:
        """Even chances for all classes are an answer, too."""
        e = evidence(3, least=1)
        e = replace(e, mask=torch.ones_like(e.mask), probabilities=torch.full_like(e.probabilities, 1 / 3))
        torch.testing.assert_close(typical_margin(e, e.mask.double()), torch.zeros(len(e.mask)).double())

    def test_who_is_always_sure_could_add_all_its_weight(self) -> None:
        e = evidence(2)
        sure = torch.nn.functional.one_hot(e.probabilities.argmax(-1), e.probabilities.shape[-1])
        of_row = torch.repeat_interleave(e.mask, e.offsets.diff(), dim=0)[..., None]
        e = replace(e, probabilities=(sure * of_row).to(e.probabilities.dtype))
        torch.testing.assert_close(typical_margin(e, e.mask.double()), torch.ones(len(e.mask)).double())
