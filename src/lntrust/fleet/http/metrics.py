"""A node's status as Prometheus reads it. Nothing is counted here: every number is one of the status's."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from lntrust.fleet.peers.limits import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(status: Mapping[str, Any]) -> bytes:
    """The text behind /metrics, from the dictionary behind /status (see `Node.status`)."""
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
    """Of a number, a time, or mappings from the labels' values to these, one in another; none is left out."""
    if isinstance(values, Mapping):
        for label, inner in values.items():
            yield from _numbers(inner, (*labels, label))
    elif isinstance(values, str):
        yield labels, datetime.fromisoformat(values).timestamp()
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

    yield "strength", "Weight of distillation after the training gate, once it has probed.", s["strength"]
    yield "together", "Deployment gate: 1 if clients get the ensemble's answer, 0 if alone.", s["together"]
    yield "trust", "Weight of a member in the deployed ensemble, itself included.", s["trust"], "member"
    yield "validation_accuracy", "Accuracy on its own validation part, by model.", s["validation"], "model"
    versions = {who: s["model_version"], **field("version")}
    yield "model_version", "Version of a member's model, a neighbour's by its last reply.", versions, "member"

    yield "neighbour_present", "1 if the neighbour is there.", field("present"), "neighbour"
    yield "neighbour_probed", "1 if it answered the last probe.", field("probed"), "neighbour"
    refused = {name: why is not None for name, why in field("refused").items()}
    yield "neighbour_refused", "1 if it cannot be asked at all; /status says why.", refused, "neighbour"
    instances = "Nodes heard under this name lately; more than 1 is a second certificate, or a copied key."
    yield "neighbour_instances", instances, field("instances"), "neighbour"
    yield "neighbour_reply_age_seconds", "Seconds since its last reply.", field("age"), "neighbour"
    trip = field("round_trip")
    yield "neighbour_round_trip_seconds", "Seconds until it replies, a running mean.", trip, "neighbour"
    states = {name: [*State].index(each) for name, each in field("state").items()}
    yield "breaker_state", "0 closed (asked), 1 half open (tried), 2 open (left alone).", states, "neighbour"

    queries = "Questions from neighbours (in) and to them (out)."
    yield "queries_total", queries, s["queries"], "direction", "neighbour"
    yield "bytes_total", "Bytes between nodes, by direction and kind.", s["bytes"], "direction", "kind"
    yield "retries_total", "Questions that were asked again.", s["retries"], "neighbour"
    yield "refusals_total", "Neighbours' questions that were refused, by reason.", s["refusals"], "reason"
    yield "failures_total", "Answers of neighbours that were not had, by reason.", s["failures"], "reason"

    ends = "When the certificate runs out, Unix time."
    yield "certificate_expiry_timestamp_seconds", ends, certificate["expires"]
    left = "Seconds until then; negative once it has run out."
    yield "certificate_seconds_left", left, certificate["seconds_left"]
    yield "saved_round", "Round of the state that is on disk.", saved["round"]
    yield "saved_timestamp_seconds", "When the state was last written to disk, Unix time.", saved["at"]
    yield "save_failures_total", "Times the state could not be written to disk.", saved["failures"]
