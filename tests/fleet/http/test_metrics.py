"""Metrics, as Prometheus parses them."""

from typing import Any

from http_service import STATUS
from prometheus_client.parser import text_string_to_metric_families

from lntrust.fleet.http.metrics import exposition

KNOWN = (
    'node_info{name="a",phase="stage 2",version="0.1.0"} 1.0', "uptime_seconds 12.5", "round 5.0",
    "rounds 40.0", "training_failing 0.0", "training_failures_total 2.0",
    'client_requests_total{model="ensemble"} 9.0', "strength 0.5", "together 1.0", 'trust{member="a"} 0.75',
    'trust{member="c"} 0.0', 'validation_accuracy{model="ensemble"} 0.875', 'model_version{member="a"} 7.0',
    'model_version{member="b"} 6.0', 'neighbour_present{neighbour="b"} 1.0',
    'neighbour_present{neighbour="c"} 0.0', 'neighbour_probed{neighbour="b"} 1.0',
    'neighbour_refused{neighbour="b"} 0.0', 'neighbour_refused{neighbour="c"} 1.0',
    'neighbour_instances{neighbour="b"} 2.0', 'neighbour_instances{neighbour="c"} 0.0',
    'neighbour_reply_age_seconds{neighbour="b"} 1.5', 'neighbour_round_trip_seconds{neighbour="b"} 0.004',
    'breaker_state{neighbour="b"} 0.0', 'breaker_state{neighbour="d"} 1.0',
    'breaker_state{neighbour="c"} 2.0', 'queries_total{direction="in",neighbour="b"} 3.0',
    'queries_total{direction="out",neighbour="c"} 2.0', 'bytes_total{direction="in",kind="framing"} 10.0',
    'bytes_total{direction="out",kind="shard"} 200.0', 'retries_total{neighbour="c"} 1.0',
    'refusals_total{reason="busy"} 2.0', 'failures_total{reason="no answer"} 3.0',
    "certificate_expiry_timestamp_seconds 1.893456e+09", "certificate_seconds_left 1000.0",
    "saved_round 4.0", "saved_timestamp_seconds 1.86192e+09", "save_failures_total 1.0",
)  # fmt: skip
ABSENT = ('model_version{member="c"}', 'neighbour_reply_age_seconds{neighbour="c"}')


def samples(status: Any) -> list[str]:
    lines = exposition(status).decode().splitlines()
    return [line.removeprefix("lntrust_") for line in lines if not line.startswith("#")]


def test_every_number_is_the_status_s() -> None:
    got = samples(STATUS)
    assert set(KNOWN) <= set(got)
    assert not [line for line in got if line.startswith(ABSENT)]


def test_every_metric_has_a_prefix_a_help_and_a_type() -> None:
    families = list(text_string_to_metric_families(exposition(STATUS).decode()))
    assert len(families) == 29
    for family in families:
        assert family.name.startswith("lntrust_")
        assert family.documentation.endswith(".")
        assert family.type in ("gauge", "counter")
        assert all(s.name.endswith("_total") == (family.type == "counter") for s in family.samples)


def test_a_node_that_has_just_begun() -> None:
    young: Any = {
        **STATUS, "error": "OSError: no such camera",
        "strength": None, "together": False, "validation": {}, "trust": {}, "neighbours": {},
        "queries": {"in": {}, "out": {}}, "bytes": {"in": {}, "out": {}}, "retries": {}, "refusals": {},
        "failures": {}, "clients": {}, "certificate": {"expires": None, "seconds_left": None},
        "saved": {"round": None, "at": None, "failures": 0, "torn": None},
    }  # fmt: skip
    got = samples(young)
    assert {"together 0.0", "training_failing 1.0", "save_failures_total 0.0"} <= set(got)
    assert not [line for line in got if line.startswith(("strength", "saved", "certificate"))]
