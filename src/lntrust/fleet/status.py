"""What a running node tells. HTTP and the command line need to know no more."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.fleet.settings import NodeSettings

Which = Literal["ensemble", "self"]


@dataclass(frozen=True)
class Prediction:
    """An answer, and who is behind it.

    A node that asks one after another (trust.certainty) asks not everybody about every input: a weight is
    then the mean over all inputs, 0 for those that somebody was not asked about.
    """

    probabilities: Float[ndarray, "m C"]
    weights: dict[str, float]  # of all who answered, the node itself included; they sum to 1
    versions: dict[str, int]  # of their models
    silent: dict[str, str]  # who was asked and did not answer in time, and why


class Service(Protocol):
    """A node, as its clients see it."""

    settings: NodeSettings

    @property
    def version(self) -> int:
        """Of the node's own model."""

    @property
    def failing(self) -> bool:
        """Whether it cannot train just now, though it may answer; `status` says why."""

    def predict(self, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> Prediction:
        """The answer to inputs of the shape and dtype in the settings; LNTrustError for others."""

    def status(self) -> dict[str, Any]:
        """What stands behind /status, /metrics and `lntrust node status`; `Node.status` has the fields."""
