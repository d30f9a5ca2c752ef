"""Every weighting by name: rows on the simplex, and the same for all nodes at once as for one alone."""

import pytest
import torch
from random_evidence import evidence, learned
from torch import Tensor

from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals import WEIGHTINGS, make_weighting
from lntrust.trust.weights import Memory, Weighting


def assert_on_the_simplex(weighting: Weighting, *refreshes: Evidence) -> None:
    """Rows sum to one over the options, and are 0 elsewhere and where there are no options."""
    memory, last = learned(weighting, *refreshes), refreshes[-1]
    some = last.mask.clone()
    some[0] = False
    some[:, 1] = False
    for options in (last.mask, last.open, some, torch.zeros_like(some)):
        alpha = weighting.weights(memory, last, options)
        assert (alpha >= 0).all()
        assert (alpha[~options] == 0).all()
        torch.testing.assert_close(alpha.sum(-1), options.any(-1).to(alpha.dtype))
        votes = weighting.votes(memory, last, options)
        assert votes.isfinite().all()
        assert (votes >= 0).all()
        assert (votes[~options] == 0).all()


def assert_one_at_a_time(weighting: Weighting, *refreshes: Evidence) -> None:
    """All nodes at once give what each gives alone."""
    memory, last = learned(weighting, *refreshes), refreshes[-1]
    alpha = weighting.weights(memory, last, last.mask)
    votes = weighting.votes(memory, last, last.open)
    for i in range(len(alpha)):
        parts = [e.at(slice(i, i + 1)) for e in refreshes]
        alone = learned(weighting, *parts, nodes=range(i, i + 1))
        assert set(alone) == set(memory)
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor, memory[name][i : i + 1], rtol=0, atol=1e-8)
        part = parts[-1]
        torch.testing.assert_close(
            weighting.weights(alone, part, part.mask), alpha[i : i + 1], rtol=0, atol=1e-8
        )
        torch.testing.assert_close(
            weighting.votes(alone, part, part.open), votes[i : i + 1], rtol=0, atol=1e-8
        )


def test_the_rivals() -> None:
    assert set(WEIGHTINGS) == {
        "trust", "simplex_erm", "hedge", "weighted_majority", "linucb", "uniform", "best_single", "fedfomo",
    }  # fmt: skip
    for name, kind in WEIGHTINGS.items():
        assert isinstance(make_weighting(name, 3), kind)
        assert make_weighting(name, 3).seed == 3
        assert kind.about


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_on_the_simplex(name: str, seed: int) -> None:
    assert_on_the_simplex(make_weighting(name, seed), evidence(seed), evidence(seed + 10))


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_without_an_unlabelled_pool(name: str) -> None:
    assert_on_the_simplex(make_weighting(name, 0), evidence(0, pool=False))


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_one_member_alone(name: str) -> None:
    assert_on_the_simplex(make_weighting(name, 0), evidence(0, D=2, n=1))


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_all_at_once_equals_one_at_a_time(name: str, seed: int) -> None:
    assert_one_at_a_time(make_weighting(name, seed), evidence(seed), evidence(seed + 20))


def test_the_base_must_be_filled_in() -> None:
    e = evidence(0)
    with pytest.raises(NotImplementedError):
        Weighting().weights({}, e, e.mask)


class SelfOnly(Weighting):
    def weights(self, memory: Memory, evidence: Evidence, options: Tensor) -> Tensor:
        alpha = torch.zeros_like(evidence.phi[..., 0])
        alpha[:, 0] = 1.0
        return alpha * options


def test_defaults() -> None:
    e, one = evidence(0), SelfOnly()
    memory = one.start(e, range(5))
    assert memory == {}
    assert one.refresh({"a": e.w}, e, first=True)["a"] is e.w
    assert torch.equal(one.votes(memory, e, e.mask), one.weights(memory, e, e.mask))
