"""A node's status as Prometheus reads it. Nothing is counted here: every number is one of the status's."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.limits import State

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Rows = Iterable[tuple[tuple[str, ...], float | None]]  # labels' values, and a number; none: leave it out


def exposition(status: Mapping[str, Any]) -> bytes:
    """The text behind /metrics, from the dictionary behind /status (see `lntrust.fleet.status`)."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise LNTrustError("live nodes need the extra fleet: pip install 'lntrust[fleet]'") from None
    registry = CollectorRegistry()  # of its own: nothing of the process's, nothing left from before
    registry.register(_Told(status))
    return generate_latest(registry)


class _Told:
    """A collector of one status."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator["Metric"]:
        for part in (_node, _ensemble, _neighbours, _traffic, _safety):
            yield from part(self._status)


def _node(s: Mapping[str, Any]) -> Iterator["Metric"]:
    software = ("name", "version", "phase")
    yield _gauge(
        "node_info",
        "The node, the software's version and the phase it is in.",
        software,
        [((s["name"], s["lntrust"], s["phase"]), 1)],
    )
    yield _one("uptime_seconds", "Seconds since the node started.", s["uptime"])
    yield _one("round", "Rounds of training that are done.", s["round"])
    yield _one("rounds", "Rounds of training in all.", s["rounds"])
    yield _one(
        "training_failing",
        "1 if the last try to train or to probe has failed; /status says why.",
        s["error"] is not None,
    )
    yield _counter("training_failures", "Times that training has failed.", (), [((), s["training_failures"])])
    yield _counter(
        "client_requests",
        "Requests of clients that were answered, by model.",
        ("model",),
        _by_one(s["clients"]),
    )


def _ensemble(s: Mapping[str, Any]) -> Iterator["Metric"]:
    yield _one(
        "strength",
        "Weight of distillation after the training gate; absent before the first probe.",
        s["strength"],
    )
    yield _one(
        "together",
        "The deployment gate: 1 if clients are answered with the ensemble, 0 if alone.",
        s["together"],
    )
    yield _gauge(
        "trust",
        "Weight of a member in the deployed ensemble, the node itself included.",
        ("member",),
        _by_one(s["trust"]),
    )
    yield _gauge(
        "validation_accuracy",
        "Accuracy on the node's own validation part: self and ensemble.",
        ("model",),
        _by_one(s["validation"]),
    )
    versions = {s["name"]: s["model_version"]}
    versions |= {name: each["version"] for name, each in s["neighbours"].items()}
    yield _gauge(
        "model_version",
        "Version of a member's model, of a neighbour by its last reply.",
        ("member",),
        _by_one(versions),
    )


def _neighbours(s: Mapping[str, Any]) -> Iterator["Metric"]:
    def each(field: str, number: Callable[[Any], float | None] = lambda value: value) -> Rows:
        return [((name,), number(neighbour[field])) for name, neighbour in s["neighbours"].items()]

    label = ("neighbour",)
    yield _gauge("neighbour_present", "1 if the neighbour is there.", label, each("present"))
    yield _gauge("neighbour_probed", "1 if it answered the last probe.", label, each("probed"))
    yield _gauge(
        "neighbour_refused",
        "1 if it cannot be asked at all; /status says why.",
        label,
        each("refused", lambda why: why is not None),
    )
    yield _gauge(
        "neighbour_instances",
        "Nodes heard under this name lately; more than 1 is a second certificate, or a copied key.",
        label,
        each("instances"),
    )
    yield _gauge("neighbour_reply_age_seconds", "Seconds since its last reply.", label, each("age"))
    yield _gauge(
        "neighbour_round_trip_seconds", "Seconds until it replies, a running mean.", label, each("round_trip")
    )
    yield _gauge(
        "breaker_state",
        "The breaker: 0 closed (asked), 1 half open (tried), 2 open (left alone).",
        label,
        each("state", _breaker),
    )


def _breaker(name: str) -> int:
    """closed, half open or open, as a number."""
    return State[name.upper().replace(" ", "_")].value


def _traffic(s: Mapping[str, Any]) -> Iterator["Metric"]:
    yield _counter(
        "queries",
        "Questions from neighbours (in) and to them (out).",
        ("direction", "neighbour"),
        _by_two(s["queries"]),
    )
    yield _counter(
        "bytes", "Bytes between nodes, by direction and kind.", ("direction", "kind"), _by_two(s["bytes"])
    )
    yield _counter("retries", "Questions that were asked again.", ("neighbour",), _by_one(s["retries"]))
    yield _counter(
        "refusals",
        "Neighbours' questions that were refused here, by reason.",
        ("reason",),
        _by_one(s["refusals"]),
    )
    yield _counter(
        "failures", "Answers of neighbours that were not had, by reason.", ("reason",), _by_one(s["failures"])
    )


def _safety(s: Mapping[str, Any]) -> Iterator["Metric"]:
    certificate, saved = s["certificate"], s["saved"]
    yield _one(
        "certificate_expiry_timestamp_seconds",
        "When the node's certificate runs out, Unix time.",
        _timestamp(certificate.get("expires")),
    )
    yield _one(
        "certificate_seconds_left",
        "Seconds until then; negative once it has run out.",
        certificate.get("seconds_left"),
    )
    yield _one("saved_round", "Round of the state that is on disk.", saved.get("round"))
    yield _one(
        "saved_timestamp_seconds",
        "When the state was last written to disk, Unix time.",
        _timestamp(saved.get("at")),
    )
    yield _counter(
        "save_failures", "Times the state could not be written to disk.", (), [((), saved.get("failures"))]
    )


def _timestamp(when: str | None) -> float | None:
    """Unix time of an ISO 8601 date; one without a zone is in UTC."""
    if when is None:
        return None
    moment = datetime.fromisoformat(when)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _by_one(numbers: Mapping[str, float | None]) -> Rows:
    return [((name,), number) for name, number in numbers.items()]


def _by_two(numbers: Mapping[str, Mapping[str, float]]) -> Rows:
    return [((one, two), number) for one, inner in numbers.items() for two, number in inner.items()]


def _one(name: str, what: str, number: float | None) -> "Metric":
    return _gauge(name, what, (), [((), number)])


def _gauge(name: str, what: str, labels: tuple[str, ...], rows: Rows) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(f"lntrust_{name}", what, labels=labels), rows)


def _counter(name: str, what: str, labels: tuple[str, ...], rows: Rows) -> "Metric":
    """Its samples end in _total, by the library."""
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(f"lntrust_{name}", what, labels=labels), rows)


def _filled(family: Any, rows: Rows) -> "Metric":
    for labels, number in rows:
        if number is not None:
            family.add_metric(labels, float(number))
    return family  # type: ignore[no-any-return]
