"""A node's status as Prometheus reads it. Nothing is counted here: every number is one of the status's."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.limits import State

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(status: Mapping[str, Any]) -> bytes:
    """The text behind /metrics, from the dictionary behind /status (see `lntrust.fleet.status`)."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise LNTrustError("live nodes need the extra fleet: pip install 'lntrust[fleet]'") from None
    registry = CollectorRegistry()  # of its own: nothing of the process's, nothing left from before
    registry.register(_Collector(status))
    return generate_latest(registry)


class _Collector:
    """The metrics of one status."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator["Metric"]:
        for part in (_node, _ensemble, _neighbours, _traffic, _safety):
            yield from part(self._status)


def _node(s: Mapping[str, Any]) -> Iterator["Metric"]:
    yield _gauge(
        "node_info", "The node, the software's version and the phase it is in.",
        {s["name"]: {s["lntrust"]: {s["phase"]: 1}}}, "name", "version", "phase",
    )  # fmt: skip
    yield _gauge("uptime_seconds", "Seconds since the node started.", s["uptime"])
    yield _gauge("round", "Rounds of training that are done.", s["round"])
    yield _gauge("rounds", "Rounds of training in all.", s["rounds"])
    failing = "1 if the last try to train or to probe has failed; /status says why."
    yield _gauge("training_failing", failing, s["error"] is not None)
    yield _counter("training_failures", "Times that training has failed.", s["training_failures"])
    answered = "Requests of clients that were answered, by model."
    yield _counter("client_requests", answered, s["clients"], "model")


def _ensemble(s: Mapping[str, Any]) -> Iterator["Metric"]:
    strength = "Weight of distillation after the training gate; absent before the first probe."
    yield _gauge("strength", strength, s["strength"])
    together = "The deployment gate: 1 if clients are answered with the ensemble, 0 if alone."
    yield _gauge("together", together, s["together"])
    trust = "Weight of a member in the deployed ensemble, the node itself included."
    yield _gauge("trust", trust, s["trust"], "member")
    accuracy = "Accuracy on the node's own validation part: self and ensemble."
    yield _gauge("validation_accuracy", accuracy, s["validation"], "model")
    versions = {s["name"]: s["model_version"]}
    versions |= {name: each["version"] for name, each in s["neighbours"].items()}
    yield _gauge(
        "model_version", "Version of a member's model, of a neighbour by its last reply.", versions, "member"
    )


def _neighbours(s: Mapping[str, Any]) -> Iterator["Metric"]:
    def each(name: str, what: str, values: Mapping[str, float | None]) -> "Metric":
        return _gauge(name, what, values, "neighbour")

    def field(name: str) -> dict[str, Any]:
        return {neighbour: known[name] for neighbour, known in s["neighbours"].items()}

    yield each("neighbour_present", "1 if the neighbour is there.", field("present"))
    yield each("neighbour_probed", "1 if it answered the last probe.", field("probed"))
    refused = {name: why is not None for name, why in field("refused").items()}
    yield each("neighbour_refused", "1 if it cannot be asked at all; /status says why.", refused)
    instances = "Nodes heard under this name lately; more than 1 is a second certificate, or a copied key."
    yield each("neighbour_instances", instances, field("instances"))
    yield each("neighbour_reply_age_seconds", "Seconds since its last reply.", field("age"))
    trip = "Seconds until it replies, a running mean."
    yield each("neighbour_round_trip_seconds", trip, field("round_trip"))
    states = {name: State[each.upper().replace(" ", "_")].value for name, each in field("state").items()}
    breaker = "The breaker: 0 closed (asked), 1 half open (tried), 2 open (left alone)."
    yield each("breaker_state", breaker, states)


def _traffic(s: Mapping[str, Any]) -> Iterator["Metric"]:
    queries = "Questions from neighbours (in) and to them (out)."
    yield _counter("queries", queries, s["queries"], "direction", "neighbour")
    traffic = "Bytes between nodes, by direction and kind."
    yield _counter("bytes", traffic, s["bytes"], "direction", "kind")
    yield _counter("retries", "Questions that were asked again.", s["retries"], "neighbour")
    refusals = "Neighbours' questions that were refused here, by reason."
    yield _counter("refusals", refusals, s["refusals"], "reason")
    failures = "Answers of neighbours that were not had, by reason."
    yield _counter("failures", failures, s["failures"], "reason")


def _safety(s: Mapping[str, Any]) -> Iterator["Metric"]:
    certificate, saved = s["certificate"], s["saved"]
    expires = _timestamp(certificate.get("expires"))
    yield _gauge(
        "certificate_expiry_timestamp_seconds", "When the node's certificate runs out, Unix time.", expires
    )
    left = "Seconds until then; negative once it has run out."
    yield _gauge("certificate_seconds_left", left, certificate.get("seconds_left"))
    yield _gauge("saved_round", "Round of the state that is on disk.", saved.get("round"))
    written = "When the state was last written to disk, Unix time."
    yield _gauge("saved_timestamp_seconds", written, _timestamp(saved.get("at")))
    yield _counter("save_failures", "Times the state could not be written to disk.", saved.get("failures"))


def _timestamp(when: str | None) -> float | None:
    """Unix time of an ISO 8601 date; one without a zone is in UTC."""
    if when is None:
        return None
    moment = datetime.fromisoformat(when)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _gauge(name: str, what: str, values: Any, *labels: str) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(f"lntrust_{name}", what, labels=labels), values)


def _counter(name: str, what: str, values: Any, *labels: str) -> "Metric":
    """Its samples end in _total, by the library."""
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(f"lntrust_{name}", what, labels=labels), values)


def _filled(family: Any, values: Any, labels: tuple[str, ...] = ()) -> "Metric":
    """With a number, or mappings from the labels' values to numbers, one in another; none is left out."""
    if isinstance(values, Mapping):
        for label, inner in values.items():
            _filled(family, inner, (*labels, label))
    elif values is not None:
        family.add_metric(labels, float(values))
    return family  # type: ignore[no-any-return]
