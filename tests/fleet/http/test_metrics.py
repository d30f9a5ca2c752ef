"""Metrics, as Prometheus parses them."""

from typing import Any

import pytest
from http_service import STATUS
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from lntrust.fleet.http.metrics import exposition

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(status: Any) -> Samples:
    families = text_string_to_metric_families(exposition(status).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(samples: Samples, name: str, /, **labels: str) -> float | None:
    return samples.get((f"lntrust_{name}", frozenset(labels.items())))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("node_info", {"name": "a", "version": "0.1.0", "phase": "stage 2"}, 1),
        ("uptime_seconds", {}, 12.5),
        ("round", {}, 5),
        ("rounds", {}, 40),
        ("training_failing", {}, 0),
        ("training_failures_total", {}, 2),
        ("client_requests_total", {"model": "ensemble"}, 9),
        ("strength", {}, 0.5),
        ("together", {}, 1),
        ("trust", {"member": "a"}, 0.75),
        ("trust", {"member": "c"}, 0),
        ("validation_accuracy", {"model": "ensemble"}, 0.875),
        ("model_version", {"member": "a"}, 7),
        ("model_version", {"member": "b"}, 6),
        ("model_version", {"member": "c"}, None),
        ("neighbour_present", {"neighbour": "b"}, 1),
        ("neighbour_present", {"neighbour": "c"}, 0),
        ("neighbour_probed", {"neighbour": "b"}, 1),
        ("neighbour_refused", {"neighbour": "b"}, 0),
        ("neighbour_instances", {"neighbour": "b"}, 2),
        ("neighbour_instances", {"neighbour": "c"}, 0),
        ("neighbour_refused", {"neighbour": "c"}, 1),
        ("neighbour_reply_age_seconds", {"neighbour": "b"}, 1.5),
        ("neighbour_reply_age_seconds", {"neighbour": "c"}, None),
        ("neighbour_round_trip_seconds", {"neighbour": "b"}, 0.004),
        ("breaker_state", {"neighbour": "b"}, 0),
        ("breaker_state", {"neighbour": "d"}, 1),
        ("breaker_state", {"neighbour": "c"}, 2),
        ("queries_total", {"direction": "in", "neighbour": "b"}, 3),
        ("queries_total", {"direction": "out", "neighbour": "c"}, 2),
        ("bytes_total", {"direction": "in", "kind": "framing"}, 10),
        ("bytes_total", {"direction": "out", "kind": "shard"}, 200),
        ("retries_total", {"neighbour": "c"}, 1),
        ("refusals_total", {"reason": "busy"}, 2),
        ("failures_total", {"reason": "no answer"}, 3),
        ("certificate_expiry_timestamp_seconds", {}, 1893456000),
        ("certificate_seconds_left", {}, 1000),
        ("saved_round", {}, 4),
        ("saved_timestamp_seconds", {}, 1861920000),
        ("save_failures_total", {}, 1),
    ],
)
def test_every_number_is_the_status_s(name: str, labels: dict[str, str], expected: float | None) -> None:
    assert value(parsed(STATUS), name, **labels) == expected


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
        "failures": {}, "clients": {},
        "certificate": {"expires": "2030-01-01T00:00:00+00:00", "seconds_left": -5},
        "saved": {"round": 0, "at": None, "failures": 0, "torn": None},
    }  # fmt: skip
    samples = parsed(young)
    assert value(samples, "strength") is None
    assert value(samples, "together") == 0
    assert value(samples, "training_failing") == 1
    assert value(samples, "saved_timestamp_seconds") is None
    assert value(samples, "certificate_seconds_left") == -5
    assert value(samples, "certificate_expiry_timestamp_seconds") == 1893456000


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**40)))
def test_any_reason_is_a_label(reasons: dict[str, int]) -> None:
    samples = parsed({**STATUS, "failures": reasons})
    got = {dict(key[1])["reason"]: n for key, n in samples.items() if key[0] == "lntrust_failures_total"}
    assert got == reasons
