"""What must hold of every weighting."""

import torch
from torch import Tensor

from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals.base import Memory, Weighting


def learned(weighting: Weighting, *refreshes: Evidence, nodes: range | None = None) -> Memory:
    """Its memory after these refreshes."""
    memory = weighting.start(refreshes[0], nodes or range(len(refreshes[0].mask)))
    for k, evidence in enumerate(refreshes):
        memory = weighting.refresh(memory, evidence, first=k == 0)
    return memory


def alpha_of(weighting: Weighting, *refreshes: Evidence) -> Tensor:
    """α over the closed neighbourhood after these refreshes."""
    last = refreshes[-1]
    return weighting.weights(learned(weighting, *refreshes), last, last.mask)


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
        parts = [e.at(i) for e in refreshes]
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
