"""What a running node tells: its answers, and its status. HTTP and the command line need to know no more."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

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
    def ready(self) -> bool:
        """Whether it can answer: there is a model."""

    @property
    def failing(self) -> bool:
        """Whether it cannot train just now, though it may answer; `status` says why."""

    def predict(self, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> Prediction:
        """The answer to inputs of the shape and dtype in the settings; LNTrustError for others."""

    def status(self) -> dict[str, Any]:
        """A `Status`, as JSON has it."""


class NeighbourStatus(TypedDict):
    """What a node knows of a neighbour."""

    present: bool
    state: str  # of the breaker: closed, half open, open
    trust: float  # α_ij in the deployed ensemble; 0 before it has been probed
    probed: bool  # whether it answered the last probe
    version: int | None  # of its model, by its last reply
    age: float | None  # seconds since its last reply
    round_trip: float | None  # seconds, a running mean
    instances: int  # nodes that were heard under this name lately; more than 1: a second certificate
    refused: str | None  # why it cannot be asked at all, if so: another order of classes, say


class Status(TypedDict):
    """Behind /status, /metrics and `lntrust node status`."""

    name: str
    lntrust: str  # version of the software
    model_version: int
    phase: str  # stage 1, stage 2, deployed
    round: int
    rounds: int
    error: str | None  # why training fails, if it does; it is tried again
    training_failures: int  # since the node started
    uptime: float
    strength: float | None  # λ_eff, after the training gate; none before the first probe
    together: bool  # the deployment gate: whether clients are answered with the ensemble
    validation: dict[str, float]  # accuracy of `self` and of the `ensemble` on V_i
    trust: dict[str, float]  # α, the node itself included
    neighbours: dict[str, NeighbourStatus]
    queries: dict[str, dict[str, int]]  # in and out, by neighbour: messages
    bytes: dict[str, dict[str, int]]  # in and out, by kind, payload; and framing
    retries: dict[str, int]  # by neighbour
    refusals: dict[str, int]  # questions refused here, by reason
    failures: dict[str, int]  # answers not had, by reason
    clients: dict[str, int]  # requests answered, by model
    certificate: dict[str, Any]  # expires (ISO 8601), seconds_left
    saved: dict[str, Any]  # round, at (ISO 8601 or none), failures, torn (where a state that was is kept)
