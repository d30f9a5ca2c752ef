"""A node's status as Prometheus reads it. Nothing is counted here: every number is one of the status's."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.limits import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(status: Mapping[str, Any]) -> bytes:
    """The text behind /metrics, from the dictionary behind /status (see `lntrust.fleet.status`)."""
    try:
        from prometheus_client import generate_latest
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        raise LNTrustError("live nodes need the extra fleet: pip install 'lntrust[fleet]'") from None
    families = []
    for name, what, values, *labels in _metrics(status):
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"lntrust_{name}", what, labels=labels)
        for place, number in _numbers(values):
            family.add_metric(place, float(number))
        families.append(family)
    registry: Any = SimpleNamespace(collect=lambda: families)  # of its own: nothing of the process's
    return generate_latest(registry)


def _numbers(values: Any, labels: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Of a number, or of mappings from the labels' values to numbers, one in another; none is left out."""
    if isinstance(values, Mapping):
        for label, inner in values.items():
            yield from _numbers(inner, (*labels, label))
    elif values is not None:
        yield labels, values


def _metrics(s: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The name of each, what it says, its numbers, and the names of its labels. Counters end in _total."""
    who, known, saved, certificate = s["name"], s["neighbours"], s["saved"], s["certificate"]

    def field(name: str) -> dict[str, Any]:
        return {neighbour: each[name] for neighbour, each in known.items()}

    info = "The node, the software's version and the phase it is in."
    yield "node_info", info, {who: {s["lntrust"]: {s["phase"]: 1}}}, "name", "version", "phase"
    yield "uptime_seconds", "Seconds since the node started.", s["uptime"]
    yield "round", "Rounds of training that are done.", s["round"]
    yield "rounds", "Rounds of training in all.", s["rounds"]
    failing = "1 if the last try to train or to probe has failed; /status says why."
    yield "training_failing", failing, s["error"] is not None
    yield "training_failures_total", "Times that training has failed.", s["training_failures"]
    yield "client_requests_total", "Requests of clients that were answered, by model.", s["clients"], "model"

    strength = "Weight of distillation after the training gate; absent before the first probe."
    yield "strength", strength, s["strength"]
    together = "The deployment gate: 1 if clients are answered with the ensemble, 0 if alone."
    yield "together", together, s["together"]
    trust = "Weight of a member in the deployed ensemble, the node itself included."
    yield "trust", trust, s["trust"], "member"
    accuracy = "Accuracy on the node's own validation part: self and ensemble."
    yield "validation_accuracy", accuracy, s["validation"], "model"
    version = "Version of a member's model, of a neighbour by its last reply."
    yield "model_version", version, {who: s["model_version"], **field("version")}, "member"

    yield "neighbour_present", "1 if the neighbour is there.", field("present"), "neighbour"
    yield "neighbour_probed", "1 if it answered the last probe.", field("probed"), "neighbour"
    refused = {name: why is not None for name, why in field("refused").items()}
    yield "neighbour_refused", "1 if it cannot be asked at all; /status says why.", refused, "neighbour"
    instances = "Nodes heard under this name lately; more than 1 is a second certificate, or a copied key."
    yield "neighbour_instances", instances, field("instances"), "neighbour"
    yield "neighbour_reply_age_seconds", "Seconds since its last reply.", field("age"), "neighbour"
    trip = "Seconds until it replies, a running mean."
    yield "neighbour_round_trip_seconds", trip, field("round_trip"), "neighbour"
    states = {name: State[each.upper().replace(" ", "_")].value for name, each in field("state").items()}
    breaker = "The breaker: 0 closed (asked), 1 half open (tried), 2 open (left alone)."
    yield "breaker_state", breaker, states, "neighbour"

    queries = "Questions from neighbours (in) and to them (out)."
    yield "queries_total", queries, s["queries"], "direction", "neighbour"
    yield "bytes_total", "Bytes between nodes, by direction and kind.", s["bytes"], "direction", "kind"
    yield "retries_total", "Questions that were asked again.", s["retries"], "neighbour"
    refusals = "Neighbours' questions that were refused here, by reason."
    yield "refusals_total", refusals, s["refusals"], "reason"
    yield "failures_total", "Answers of neighbours that were not had, by reason.", s["failures"], "reason"

    expires, expiry = (
        _timestamp(certificate.get("expires")),
        "When the node's certificate runs out, Unix time.",
    )
    yield "certificate_expiry_timestamp_seconds", expiry, expires
    left = "Seconds until then; negative once it has run out."
    yield "certificate_seconds_left", left, certificate.get("seconds_left")
    yield "saved_round", "Round of the state that is on disk.", saved.get("round")
    written = "When the state was last written to disk, Unix time."
    yield "saved_timestamp_seconds", written, _timestamp(saved.get("at"))
    yield "save_failures_total", "Times the state could not be written to disk.", saved.get("failures")


def _timestamp(when: str | None) -> float | None:
    """Unix time of an ISO 8601 date; one without a zone is in UTC."""
    if when is None:
        return None
    moment = datetime.fromisoformat(when)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
