"""The trust model: one network per node, fitted at once, each with its lowest state; and its priors."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from random_evidence import alpha_of, evidence, generator, learned, simplex

from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.trust import fit
from lntrust.trust.evidence import Evidence
from lntrust.trust.fit import Fit, TrustModel, TrustNetwork, fresh_model, permutation_importance, scores
from lntrust.trust.weights import renormalised, trust_weights

CPU = torch.device("cpu")


def fresh(n: int, seed: int = 0) -> TrustModel:
    return fresh_model(seed, range(n), torch.float64, CPU)


def alpha_with(psi: TrustModel, e: Evidence) -> torch.Tensor:
    return trust_weights(scores(psi, e.phi), e.mask)


def loss_of(psi: TrustModel, e: Evidence) -> torch.Tensor:
    return fit.trust_loss(e.p_true, alpha_with(psi, e), e.offsets)


def apart(seed: int, n: int, D: int) -> Evidence:
    """Members that the features tell apart, all of them there."""
    e = evidence(seed, n=n, D=D, most=6, least=6)
    phi = torch.rand(n, D, 6, generator=generator(seed), dtype=torch.float64)
    return replace(e, mask=torch.ones_like(e.mask), phi=phi)


class TestFresh:
    def test_a_node_s_start_depends_on_seed_and_node_only(self) -> None:
        torch.manual_seed(5)
        together, drawn = fresh(4), torch.rand(1)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(1), drawn)  # torch's own generator is left alone
        alone = fresh_model(0, range(2, 3), torch.float64, CPU)
        for name, p in together.items():
            assert torch.equal(p[2:3], alone[name])
            assert not torch.equal(p[2], p[1])
            assert not torch.equal(p, fresh(4, seed=1)[name])

    def test_scores_equal_a_plain_network(self) -> None:
        psi, phi = fresh(3), torch.randn(3, 4, 6, generator=generator(0), dtype=torch.float64)
        assert [tuple(p.shape[1:]) for p in psi.values()] == [(32, 6), (32,), (32, 32), (32,), (1, 32), (1,)]
        out = scores(psi, phi)
        for i in range(3):
            for j in range(4):
                x = phi[i, j]
                for k in range(3):
                    x = psi[f"weight {k}"][i] @ x + psi[f"bias {k}"][i]
                    x = x.relu() if k < 2 else x
                torch.testing.assert_close(out[i, j], x[0])


def interpolating(phi: torch.Tensor, values: torch.Tensor) -> TrustModel:
    """A trust model with g_ψ(φ_j) = values_j, of one node with d members, d − 1 ≤ 32 hidden units.

    It looks along one direction, on which values are joined by lines: f + Σ_k c_k max(0, s − s_k).
    """
    d, psi = len(phi), {name: torch.zeros_like(p) for name, p in fresh(1).items()}
    along = torch.randn(6, generator=generator(0), dtype=torch.float64)
    s, order = (phi @ along).sort()
    rise = values[order].diff() / s.diff()
    bend = torch.cat([rise[:1], rise.diff()])
    above = float(values.abs().max()) + 1.0  # so that the second layer is never cut off at 0
    psi["weight 0"][0, : d - 1], psi["bias 0"][0, : d - 1] = along, -s[:-1]
    psi["weight 1"][0, 0, : d - 1], psi["bias 1"][0, 0] = bend, values[order[0]] + above
    psi["weight 2"][0, 0, 0], psi["bias 2"][0, 0] = 1.0, -above
    return psi


class TestDensity:
    """Proposition "Trust-class density": distinct features can be given any weights."""

    @pytest.mark.parametrize("d", [2, 8, 33])
    @pytest.mark.parametrize("rho", [0.5, 0.01, 1e-4])
    def test_up_to_33_members_a_model_comes_as_near_to_a_corner_as_stated(self, d: int, rho: float) -> None:
        """As near as 2ρ in ℓ1, with weights (1 − ρ)α + ρu inside the simplex that it meets exactly."""
        phi = torch.rand(1, d, 6, generator=generator(d), dtype=torch.float64)
        members = torch.ones(1, d, dtype=torch.bool)
        for j in (0, d - 1):
            corner = torch.nn.functional.one_hot(torch.tensor([j]), d).double()
            inside = (1 - rho) * corner + rho / d
            alpha = trust_weights(scores(interpolating(phi[0], inside[0].log()), phi), members)
            torch.testing.assert_close(alpha, inside, rtol=1e-6, atol=1e-12)
            assert float((alpha - corner).abs().sum()) <= 2 * rho

    @pytest.mark.parametrize("d", [2, 6, 33])
    def test_the_fit_finds_them_where_features_differ(self, d: int) -> None:
        """A prior alone, since all are sure: its loss is the cross-entropy to it."""
        e, target = apart(d, 3, d), simplex(3, d, g=generator(d))
        sure = torch.ones(*e.probabilities.shape[:2], 1, dtype=torch.float64)
        e = replace(e, probabilities=sure, labels=torch.zeros_like(e.labels))
        e = replace(e, phi=e.phi + torch.arange(d)[:, None] / d)
        psi, _ = Fit()(fresh(3, d), e, 700, prior=target)
        assert ((alpha_with(psi, e) - target).abs().sum(-1) < 0.05).all()


class TestFit:
    @settings(max_examples=10)
    @given(st.integers(0, 10_000), st.integers(0, 12), st.sampled_from([0.01, 3.0]))
    def test_the_loss_never_ends_above_its_start(self, seed: int, steps: int, lr: float) -> None:
        e, psi = evidence(seed), fresh(5, seed)
        before = {name: p.clone() for name, p in psi.items()}
        best, lowest = Fit()(psi, e, steps, lr)
        assert (lowest <= loss_of(psi, e)).all()
        torch.testing.assert_close(loss_of(best, e), lowest)  # and the state returned has that loss
        assert not any(p.requires_grad for p in best.values())
        for name, p in psi.items():
            assert torch.equal(p, before[name])
            assert steps or torch.equal(p, best[name])

    def test_each_node_keeps_its_own_lowest_state(self) -> None:
        e, psi = evidence(2, least=2), fresh(5)
        # A rate that jumps about: the lowest loss is passed at different steps.
        path = [Fit()(psi, e, steps, lr=0.5) for steps in range(15)]
        lowest = torch.stack([loss for _, loss in path])
        assert (lowest.diff(dim=0) <= 0).all()
        when = [int((lowest[:, i] == lowest[-1, i]).nonzero()[0]) for i in range(5)]
        assert len(set(when)) > 1
        for i, step in enumerate(when):
            for name, p in path[-1][0].items():
                assert torch.equal(p[i], path[step][0][name][i])

    def test_equal_features_cannot_be_told_apart(self) -> None:
        e = evidence(0, least=3)
        e = replace(e, phi=torch.ones_like(e.phi))
        psi, _ = Fit()(fresh(5), e, 20)
        torch.testing.assert_close(alpha_with(psi, e), e.mask.double() / e.mask.sum(-1, keepdim=True))

    def test_a_node_without_validation_examples_stays_as_it_is(self) -> None:
        psi = fresh(5)
        best, loss = Fit()(psi, evidence(0, most=0), 5)
        assert loss.tolist() == [0.0] * 5
        assert all(torch.equal(p, psi[name]) for name, p in best.items())


def test_importance_equals_a_loop_and_a_feature_that_is_not_used_has_none() -> None:
    e, psi, g = evidence(2, least=2), fresh(5), generator(0)
    psi["weight 0"][..., 2] = 0.0
    orders = torch.stack([torch.randperm(4, generator=g) for _ in range(10)]).view(2, 5, 4)
    out = permutation_importance(psi, e, orders)
    for r in range(2):
        for f in range(6):
            phi = e.phi.clone()
            for i in range(5):
                phi[i, :, f] = e.phi[i, orders[r, i], f]
            rise = loss_of(psi, replace(e, phi=phi)) - loss_of(psi, e)
            torch.testing.assert_close(out[r, :, f], rise)
    assert (out[..., 2] == 0).all()
    assert (out[..., 1].abs() > 0).any()


def test_two_hundred_steps_and_then_fifty() -> None:
    first, second = evidence(0), evidence(1)
    psi = fresh(5, 7)
    for e, steps in ((first, 200), (second, 50)):
        psi, _ = Fit()(psi, e, steps)
    memory = learned(TrustNetwork(7), first, second)
    assert set(memory) == set(psi)
    assert all(torch.equal(memory[name], p) for name, p in psi.items())
    expected = trust_weights(scores(psi, second.phi), second.open)
    assert torch.equal(TrustNetwork(7).weights(memory, second, second.open), expected)


class TestPrior:
    """What α is drawn to, and how far."""

    e = evidence(4, least=3, most=6)

    @pytest.mark.parametrize("prior", ["self", "uniform", "accuracy"])
    def test_the_more_examples_it_counts_as_the_closer_it_draws(self, prior: str) -> None:
        """Of the farthest node; very many examples decide."""
        pull = {"uniform": torch.ones(5, 4).double(), "accuracy": self.e.accuracy + 1e-3}
        pull["self"] = torch.nn.functional.one_hot(torch.zeros(5, dtype=torch.int64), 4).double()
        target, far = renormalised(pull[prior], self.e.mask), []
        for examples in (1e5, 5.0, 0.1):
            one = TrustNetwork(0, prior, examples)
            one.first_steps = 500  # the prior is what is asked about, not how fast Adam is
            far.append(float((alpha_of(one, self.e) - target).abs().sum(-1).max()))
            drawn = one.drawn_to(self.e)
            assert drawn is not None
            torch.testing.assert_close(drawn.sum(-1), examples / self.e.offsets.diff().double())
            assert (drawn[~self.e.mask] == 0).all()
        assert far == sorted(far)
        assert far[0] < min(0.05, 0.2 * far[-1])

    def test_without_one_the_fit_is_the_published_one_bit_for_bit(self) -> None:
        published, none = (learned(TrustNetwork(7, *more), self.e) for more in ((), ("none", 1e6)))
        assert all(torch.equal(published[name], tensor) for name, tensor in none.items())

    def test_without_validation_examples_the_prior_is_all_there_is(self) -> None:
        e = evidence(4, most=0)
        alpha = alpha_of(TrustNetwork(0, "self", 10.0), e)
        assert (alpha[:, 0] > 0.95).all()
        assert not (alpha_of(TrustNetwork(0), e)[:, 0] > 0.95).all()

    @pytest.mark.parametrize("weighting", ["uniform", "weighted_majority"])
    def test_other_weightings_have_none(self, weighting: str) -> None:
        with pytest.raises(ValidationError, match=f"prior = self needs weighting = trust, not {weighting}"):
            LNTrustSettings(weighting=weighting, prior="self")


def test_the_loss_is_clipped() -> None:
    p, alone, offsets = torch.tensor([[0.0], [1.0]]).double(), torch.ones(1, 1).double(), torch.tensor([0, 2])
    assert float(fit.trust_loss(p, alone, offsets)) == pytest.approx(-math.log(1e-8) / 2)
