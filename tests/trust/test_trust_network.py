"""Learned trust as a weighting: 200 steps first, 50 more from the last state at each refresh; its priors."""

import pytest
import torch
from pydantic import ValidationError
from random_evidence import alpha_of, evidence, learned

from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.trust.blend import validation_loss
from lntrust.trust.fit import PRIORS, Fit, TrustNetwork, fresh_model, scores
from lntrust.trust.rivals import make_weighting
from lntrust.trust.weights import renormalised, trust_weights


def test_two_hundred_steps_and_then_fifty() -> None:
    first, second = evidence(0), evidence(1)
    psi = fresh_model(7, range(5), torch.float64, torch.device("cpu"))
    for e, steps in ((first, 200), (second, 50)):
        psi, _ = Fit()(psi, e.phi, e.mask, e.p_true, e.offsets, steps)
    memory = learned(TrustNetwork(7), first, second)
    assert set(memory) == set(psi)
    assert all(torch.equal(memory[name], p) for name, p in psi.items())
    expected = trust_weights(scores(psi, second.phi), second.open)
    assert torch.equal(TrustNetwork(7).weights(memory, second, second.open), expected)


def test_it_beats_its_start() -> None:
    e = evidence(2, least=4)
    one = TrustNetwork(0)
    before = one.weights(one.start(e, range(5)), e, e.mask)
    after = alpha_of(one, e)
    several = e.mask.sum(-1) > 1
    losses = [validation_loss(e.p_true, alpha, e.offsets)[several] for alpha in (before, after)]
    assert (losses[1] < losses[0]).all()


class TestPrior:
    """What α is drawn to, and how far."""

    # Members that the features tell apart, so that any α can be reached.
    e = evidence(4, least=3, most=6)

    def target(self, prior: str) -> torch.Tensor:
        pull = {
            "self": torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(5, 4).double(),
            "uniform": torch.ones(5, 4).double(),
            "accuracy": self.e.accuracy + 1e-3,
        }[prior]
        return renormalised(pull, self.e.mask)

    def distance(self, prior: str, examples: float) -> float:
        """How far α is from what it is drawn to, of the farthest node."""
        many = TrustNetwork(0, prior, examples)
        many.first_steps = 500  # the prior is what is asked about, not how fast Adam is
        return float((alpha_of(many, self.e) - self.target(prior)).abs().sum(-1).max())

    @pytest.mark.parametrize("prior", ["self", "uniform", "accuracy"])
    def test_a_prior_of_very_many_examples_decides(self, prior: str) -> None:
        decided = self.distance(prior, 1e5)
        assert decided < 0.05
        assert decided < 0.2 * self.distance(prior, 1e-3)

    @pytest.mark.parametrize("prior", ["self", "uniform", "accuracy"])
    def test_more_of_it_draws_closer(self, prior: str) -> None:
        little, some, much = (self.distance(prior, examples) for examples in (0.1, 5.0, 500.0))
        assert much < some < little

    def test_without_one_the_fit_is_the_published_one_bit_for_bit(self) -> None:
        published, none = (learned(TrustNetwork(7, *more), self.e) for more in ((), ("none", 1e6)))
        assert all(torch.equal(published[name], tensor) for name, tensor in none.items())

    @pytest.mark.parametrize("prior", ["self", "uniform", "accuracy"])
    def test_it_counts_as_so_many_validation_examples(self, prior: str) -> None:
        drawn = TrustNetwork(0, prior, 12.0)._drawn_to(self.e)
        assert drawn is not None
        torch.testing.assert_close(drawn.sum(-1), 12.0 / self.e.offsets.diff().double())
        assert (drawn[~self.e.mask] == 0).all()

    def test_without_validation_examples_the_prior_is_all_there_is(self) -> None:
        e = evidence(4, most=0)
        alpha = alpha_of(TrustNetwork(0, "self", 10.0), e)
        assert (alpha[:, 0] > 0.95).all()
        assert not (alpha_of(TrustNetwork(0), e)[:, 0] > 0.95).all()

    def test_all_at_once_equals_one_at_a_time(self) -> None:
        together = alpha_of(TrustNetwork(0, "accuracy"), self.e)
        for i in range(5):
            one, part = TrustNetwork(0, "accuracy"), self.e.at(slice(i, i + 1))
            alone = one.weights(learned(one, part, nodes=range(i, i + 1)), part, part.mask)
            torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-8)

    @pytest.mark.parametrize("weighting", ["uniform", "linucb", "weighted_majority"])
    def test_other_weightings_have_none(self, weighting: str) -> None:
        with pytest.raises(ValidationError, match=f"prior = self needs weighting = trust, not {weighting}"):
            LNTrustSettings(weighting=weighting, prior="self")
        assert LNTrustSettings(weighting=weighting).prior == "none"

    def test_every_name_of_a_prior_is_made(self) -> None:
        for prior in PRIORS:
            weighting = make_weighting("trust", 0, LNTrustSettings(prior=prior).prior, 5.0)
            alpha = alpha_of(weighting, self.e)
            torch.testing.assert_close(alpha.sum(-1), torch.ones(5).double())
