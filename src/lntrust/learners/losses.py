"""Losses with a leading node axis: logits [n, B, C] give one number per node.

Both backends call them, with n nodes at once or with n = 1.
"""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

Loss = Callable[..., Float[Tensor, "n"]]


def cross_entropy(logits: Float[Tensor, "n B C"], labels: Int[Tensor, "n B"]) -> Float[Tensor, "n"]:
    """Mean negative log-probability of the labels."""
    chosen = logits.gather(-1, labels[..., None]).squeeze(-1)
    return (logits.logsumexp(-1) - chosen).mean(-1)
