"""The paper's weighting: 200 steps first, 50 more from the last state at each refresh."""

import torch
from random_evidence import evidence
from rivals import alpha_of, learned

from lntrust.trust.ensemble import validation_loss
from lntrust.trust.model import Fit, fresh_model, scores
from lntrust.trust.weights import trust_weights
from lntrust.weighting.mlp import TrustNetwork


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
