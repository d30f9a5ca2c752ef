"""What a node tells about itself: one dictionary, behind /status, /metrics and `lntrust node status`."""

from typing import Any, TypedDict


class NeighbourStatus(TypedDict):
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
