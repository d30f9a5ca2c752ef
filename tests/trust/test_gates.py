"""How much to learn from neighbours, and whether to answer with them."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_evidence import evidence, generator, simplex

from lntrust.core.segments import segment_mean
from lntrust.trust import blend, gates
from lntrust.trust.evidence import Evidence

share = st.floats(0, 1)


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@given(st.floats(0, 2), share, share)
def test_the_training_gate_s_formula(strength: float, a_ens: float, a_self: float) -> None:
    expected = strength * min(1.0, a_ens / (a_self + 1e-8))
    assert float(gates.training_gate(strength, one(a_ens), one(a_self))) == pytest.approx(expected)


def test_ensemble_accuracy_is_the_members_mean() -> None:
    e = evidence(1)
    alpha = torch.rand(e.mask.shape, generator=generator(2), dtype=torch.float64)
    expected = torch.einsum("nd,nc,ndc->n", alpha, e.w, e.rho)
    torch.testing.assert_close(gates.ensemble_accuracy(alpha, e.accuracy), expected)


class TestDeployment:
    """Node by node against the definitions, on random evidence with ties and empty validation sets."""

    def together(self, e: Evidence, kind: str, **more: float) -> tuple[torch.Tensor, ...]:
        closed = simplex(*e.mask.shape, g=generator(1)) * e.mask
        closed = closed / closed.sum(-1, keepdim=True)
        q = blend.mixed(e.probabilities, closed, e.offsets)
        out, validated = gates.deployment_gate(kind, e, closed, closed, **more)  # type: ignore[arg-type]
        return out, validated, closed, q

    @pytest.mark.parametrize("seed", range(6))
    def test_each_looks_at_its_own_measure(self, seed: int) -> None:
        e = evidence(seed)
        some = e.offsets.diff() > 0
        out, validated, closed, q = self.together(e, "members")
        assert torch.equal(out, some & (gates.ensemble_accuracy(closed, e.accuracy) >= e.accuracy[:, 0]))
        own = e.probabilities[:, 0]
        right = [blend.validation_accuracy(p, e.labels, e.offsets) for p in (own, q)]
        assert torch.equal(validated, torch.stack(right, 1))
        assert torch.equal(self.together(e, "ensemble")[0], some & (right[1] >= right[0]))
        loss = [
            -torch.stack([p[t, e.labels[t]].clamp(min=1e-8).log() for t in range(len(p))]) for p in (own, q)
        ]
        means = [segment_mean(each, e.offsets) for each in loss]
        assert torch.equal(self.together(e, "loss")[0], some & (means[1] <= means[0]))
        assert torch.equal(self.together(e, "off")[0], some)

    @given(st.integers(0, 1000), st.floats(0.05, 0.95), st.floats(0, 2))
    def test_evidence_is_a_sign_test_with_wins_in_advance(
        self, seed: int, level: float, prior_wins: float
    ) -> None:
        e = evidence(seed)
        out, _, closed, q = self.together(e, "evidence", level=level, prior_wins=prior_wins)
        ours, theirs = (p.argmax(-1) == e.labels for p in (q, e.probabilities[:, 0]))
        chance = gates.better(ours, theirs, e.offsets, prior_wins * gates.effective(closed[:, 1:]))
        assert torch.equal(out, (chance >= level) & (e.offsets.diff() > 0))


answers = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=9)  # who was right: ours, theirs


@given(st.lists(st.tuples(answers, st.floats(0, 3)), min_size=1, max_size=4))
def test_better_is_a_sign_test_of_who_alone_was_right(nodes: list[tuple[Any, float]]) -> None:
    """Node by node, with wins in advance."""
    pairs = [pair for node, _ in nodes for pair in node]
    ours, theirs = torch.tensor(pairs, dtype=torch.bool).reshape(-1, 2).unbind(1)
    offsets = torch.tensor([0, *np.cumsum([len(node) for node, _ in nodes])])
    found = gates.better(
        ours, theirs, offsets, torch.tensor([wins for _, wins in nodes], dtype=torch.float64)
    )
    counts = [(node.count((True, False)) + wins, node.count((False, True))) for node, wins in nodes]
    expected = [scipy.stats.beta.sf(0.5, 1 + won, 1 + lost) for won, lost in counts]
    assert found.tolist() == pytest.approx(expected)


class TestSignTest:
    @given(st.lists(st.tuples(st.floats(0, 2000), st.integers(0, 2000)), min_size=1, max_size=20))
    def test_it_is_a_tail_of_the_beta_distribution(self, counts: list[tuple[float, int]]) -> None:
        won, lost = torch.tensor(counts, dtype=torch.float64).unbind(1)
        expected = scipy.stats.beta.sf(0.5, 1 + won.numpy(), 1 + lost.numpy())
        found = gates.sign_test(won, lost)
        torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-9)
        assert (found >= 0).all()
        single = [gates.sign_test(a[None], b[None]) for a, b in zip(won, lost, strict=True)]
        assert torch.equal(found, torch.cat(single))

    def test_a_draw_is_undecided_to_the_last_bit(self) -> None:
        """A gate at ½ would otherwise be open or closed by rounding."""
        count = torch.arange(500, dtype=torch.float64)
        assert (gates.sign_test(count, count) == 0.5).all()


class TestEffective:
    @given(st.integers(1, 9), st.floats(0.01, 1.0))
    def test_as_many_as_are_alike_whatever_their_sum(self, many: int, each: float) -> None:
        weights = torch.zeros(1, 9, dtype=torch.float64)
        weights[:, :many] = each
        assert float(gates.effective(weights)) == pytest.approx(many)

    def test_nobody(self) -> None:
        assert gates.effective(torch.zeros(2, 3)).tolist() == [0.0, 0.0]
        assert gates.effective(torch.zeros(2, 0)).tolist() == [0.0, 0.0]
