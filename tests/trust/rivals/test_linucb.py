"""LinUCB: a ridge model per node, all weight on the highest upper bound."""

import numpy as np
import pytest
import torch
from random_evidence import alpha_of, evidence, learned

from lntrust.trust.rivals.linucb import LinUCB


@pytest.mark.parametrize("seed", range(4))
def test_bounds_equal_a_loop(seed: int) -> None:
    rounds = [evidence(seed), evidence(seed + 1)]
    one, last = LinUCB(), rounds[-1]
    bounds = one.bounds(learned(one, *rounds), last)
    for i in range(len(bounds)):
        A, b = np.eye(6), np.zeros(6)
        for e in rounds:
            for j in range(e.mask.shape[1]):
                if e.mask[i, j]:
                    phi = e.phi[i, j].numpy()
                    A += np.outer(phi, phi)
                    b += phi * float(e.accuracy[i, j] - e.accuracy[i, 0])
        for j in range(last.mask.shape[1]):
            phi = last.phi[i, j].numpy()
            inverse = np.linalg.inv(A)
            expected = phi @ inverse @ b + np.sqrt(phi @ inverse @ phi)
            assert float(bounds[i, j]) == pytest.approx(expected, abs=1e-9)


def test_all_weight_on_the_highest_bound() -> None:
    e = evidence(5)
    one = LinUCB()
    bounds = one.bounds(learned(one, e), e).masked_fill(~e.mask, -torch.inf)
    alpha = alpha_of(one, e)
    assert torch.equal(alpha.argmax(-1), bounds.argmax(-1))
    assert sorted(alpha.unique().tolist()) == [0.0, 1.0]
    assert (alpha.sum(-1) == 1).all()
