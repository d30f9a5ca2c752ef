"""The deployed answer: pooling, those who keep silent, asking in turn; in torch and numpy alike."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator, parts, simplex
from torch import Tensor

from lntrust.trust import blend as deployed
from lntrust.trust.fit import trust_loss
from lntrust.trust.weights import trust_weights

seeds = st.integers(0, 10_000)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """α [m, D] with the neighbours by falling weight, p [m, D, C]; ties and zeros are frequent."""
    m, D, C = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    g = generator(draw(st.integers(0, 10_000)))
    sharp = draw(st.sampled_from([0.3, 2.0, 8.0]))
    alpha = parts(m, D, g=g, sharp=sharp)
    alpha[:, 1:] = alpha[:, 1:].sort(dim=1, descending=True).values
    return alpha, parts(m, D, C, g=g, sharp=sharp)


def asked_in_turn(alpha: Tensor, p: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """Σ α p of those who were asked, and how many neighbours that were; numpy says the same."""
    found = []
    for a, q in ((alpha, p), (alpha.numpy(), p.numpy())):
        answer, count = deployed.AskInTurn(a[:, 0, None] * q[:, 0], a[:, 0], kappa), 0 * (a[:, 0] > 0)
        for k in range(1, a.shape[1]):
            asked = answer.asking & (a[:, k] > 0)
            count = count + asked
            answer.hear((asked * a[:, k])[:, None] * q[:, k], a[:, k])
        found.append((answer.blend, count))
    (blend, count), (in_numpy, count_in_numpy) = found
    assert np.array_equal(blend.numpy(), in_numpy)
    assert np.array_equal(count.numpy(), count_in_numpy)
    return blend, count


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
        found = deployed.typical_margin(e, alpha)
        for i in range(len(alpha)):
            rows = e.probabilities[e.offsets[i] : e.offsets[i + 1]]
            weight = total = 0.0
            for j in range(1, alpha.shape[1]):
                if len(rows) and e.mask[i, j]:
                    first, second = rows[:, j].sort(-1, descending=True).values[:, :2].unbind(-1)
                    total += float(alpha[i, j]) * float((first - second).mean())
                    weight += float(alpha[i, j])
            assert float(found[i]) == pytest.approx(total / weight if weight else 1.0)

    @pytest.mark.parametrize(("sure", "lead"), [(True, 1.0), (False, 0.0)])
    def test_who_is_always_sure_or_never(self, sure: bool, lead: float) -> None:
        """Even chances for all classes are an answer, too; and nobody to ask is as good as sure."""
        e = evidence(3, least=1)
        best = torch.nn.functional.one_hot(e.probabilities.argmax(-1), 3).double()
        said = best if sure else torch.full_like(best, 1 / 3)
        e = replace(e, mask=torch.ones_like(e.mask), probabilities=said)
        torch.testing.assert_close(
            deployed.typical_margin(e, e.mask.double()), torch.full((5,), lead).double()
        )
        alone = torch.zeros(5, 4, dtype=torch.float64)
        assert (deployed.typical_margin(e, alone) == 1).all()


class TestSilence:
    @given(seeds, st.booleans())
    def test_others_weights_make_up_for_who_keeps_silent(self, seed: int, by_class: bool) -> None:
        g = generator(seed)
        p, present = simplex(3, 4, 5, g=g), torch.rand(3, 4, generator=g) < 0.6
        alpha = simplex(3, 5, 4, g=g).transpose(1, 2) if by_class else simplex(3, 4, 1, g=g)
        heard = alpha * present[..., None]
        left, blend = heard.sum(1), (heard * p).sum(1)
        expected = torch.where(left > 0, blend / left.clamp(min=1e-300), 0.0)
        torch.testing.assert_close(deployed.made_up(blend, left), expected)
        torch.testing.assert_close(torch.from_numpy(deployed.made_up(blend.numpy(), left.numpy())), expected)

    def test_where_nobody_of_weight_answers_the_node_does(self) -> None:
        blend, own = torch.tensor([[0.0, 0.0], [0.1, 0.3]]), torch.tensor([[0.6, 0.4], [0.9, 0.1]])
        expected = [[0.6, 0.4], [0.1, 0.3]]
        torch.testing.assert_close(deployed.or_alone(blend, own), torch.tensor(expected))
        np.testing.assert_allclose(deployed.or_alone(blend.numpy(), own.numpy()), expected, rtol=1e-6)

    def test_without_a_certainty_everybody_is_asked(self) -> None:
        answer = deployed.AskInTurn(torch.tensor([[1.0, 0.0]]), 1.0, None)
        assert answer.asking.all()


@settings(max_examples=30)
@given(seeds)
def test_equal_loops(seed: int) -> None:
    e = evidence(seed)
    n, D = e.mask.shape
    alpha = trust_weights(torch.randn(n, D, generator=generator(seed), dtype=torch.float64), e.mask)
    q = deployed.mixed(e.probabilities, alpha, e.offsets)
    loss = trust_loss(e.p_true, alpha, e.offsets)
    accuracy = deployed.validation_accuracy(q, e.labels, e.offsets)
    for i in range(n):
        rows = slice(int(e.offsets[i]), int(e.offsets[i + 1]))
        m, y = max(1, rows.stop - rows.start), e.labels[rows]
        torch.testing.assert_close(q[rows], (alpha[i, :, None] * e.probabilities[rows]).sum(1))
        losses = -q[rows].gather(1, y[:, None]).clamp(min=1e-8).log()
        assert float(loss[i]) == pytest.approx(float(losses.sum()) / m)
        assert float(accuracy[i]) == pytest.approx(int((q[rows].argmax(1) == y).sum()) / m)
