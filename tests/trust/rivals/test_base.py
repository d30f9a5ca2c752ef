"""The protocol's defaults: nothing remembered, and votes that are α itself."""

import torch
from random_evidence import evidence
from torch import Tensor

from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals import Weighting
from lntrust.trust.rivals.base import Memory


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
