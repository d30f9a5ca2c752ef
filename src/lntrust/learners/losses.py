"""Losses with a leading node axis: logits [n, B, C] give one number per node.

Both backends call them, with n nodes at once or with n = 1.
"""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

Loss = Callable[..., Float[Tensor, "n"]]


def softmax(logits: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
    """Probabilities, without a gradient. torch's own is five times slower on a CPU where classes are few."""
    if logits.is_cuda:
        return logits.softmax(-1)
    shifted = logits.detach() - logits.detach().amax(-1, keepdim=True)
    return shifted.exp_().div_(shifted.sum(-1, keepdim=True))


def cross_entropy(logits: Float[Tensor, "n B C"], labels: Int[Tensor, "n B"]) -> Float[Tensor, "n"]:
    """Mean negative log-probability of the labels."""
    chosen = logits.gather(-1, labels[..., None]).squeeze(-1)
    return (logits.logsumexp(-1) - chosen).mean(-1)
