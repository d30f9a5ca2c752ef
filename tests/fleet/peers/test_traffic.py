"""A node's books: what was booked stands there, by neighbour, also after a restart among others."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lntrust.fleet.peers.traffic import COUNTED, TrafficCounters, size_of
from lntrust.network.codec import Kind, Message, Size, encode

NAMES = ("b", "c", "d")
entries = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(NAMES),
        st.sampled_from(["probe", "distil", "deploy", "served", "hello", "retry"]),
        st.sampled_from(["query", "reply"]),
        st.builds(Size, st.integers(0, 10**12), st.integers(0, 10**4)),
    )
)
Entry = tuple[bool, str, str, Kind, Size]


def booked(entries: list[Entry]) -> TrafficCounters:
    books = TrafficCounters(NAMES)
    for out, name, phase, kind, size in entries:
        (books.sent if out else books.received)(name, phase, kind, size)
    return books


@given(entries)
def test_traffic_is_what_was_booked(entries: list[Entry]) -> None:
    expected = {way: Counter({"query": 0, "reply": 0, "framing": 0}) for way in ("out", "in")}
    for out, _, _, kind, size in entries:
        way = "out" if out else "in"
        expected[way] += Counter({kind: size.payload, "framing": size.framing})
    got = booked(entries).traffic()
    assert {way: {k: v for k, v in each.items() if v} for way, each in got.items()} == {
        way: {k: v for k, v in each.items() if v} for way, each in expected.items()
    }
    assert all(list(each) == ["query", "reply", "framing"] for each in got.values())


@given(entries, st.permutations([*NAMES, "new"]), st.integers(0, 4))
def test_after_a_restart_everybody_has_what_was_theirs(
    entries: list[Entry], order: list[str], left: int
) -> None:
    kept = booked(entries)
    kept.count("retries", "b", 3)
    others = order[:left]
    again = TrafficCounters(others)
    again.load(*kept.state(), NAMES)
    expected = TrafficCounters(others)
    for out, name, phase, kind, size in entries:
        if name in others:
            (expected.sent if out else expected.received)(name, phase, kind, size)
    assert again.traffic() == expected.traffic()
    for _, _, book in expected.ledger:
        assert book.dtype == np.int64
    for name in others:
        e = others.index(name)
        for edge in (e, len(others) + e):
            np.testing.assert_array_equal(again.ledger.payload()[edge], expected.ledger.payload()[edge])
    assert again.counted("retries") == {"b": 3}


def test_counts_are_kept_and_those_of_an_older_node_too() -> None:
    books = TrafficCounters(NAMES)
    for number, what in enumerate(COUNTED):
        books.count(what, "z")
        books.count(what, "a", number)
    tensors, counters = books.state()
    again = TrafficCounters(NAMES)
    again.load(tensors, {"queries in": counters["queries in"]}, NAMES)
    assert again.counted("queries in") == books.counted("queries in")
    assert list(books.counted("clients")) == ["a", "z"], "in order, so that a page of them reads the same"
    assert again.counted("clients") == {}


def test_several_threads_write_and_nothing_is_lost() -> None:
    books, each = TrafficCounters(NAMES), 300

    def write(number: int) -> None:
        for k in range(each):
            books.sent(NAMES[k % 3], "probe", "query", Size(1, 2))
            books.received(NAMES[k % 3], f"phase {number}", "reply", Size(3, 4))
            books.count("failures", "silent")
            books.traffic()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(write, number) for number in range(4)]:
            future.result(60)
    assert books.traffic() == {
        "out": {"query": 4 * each, "reply": 0, "framing": 8 * each},
        "in": {"query": 0, "reply": 12 * each, "framing": 16 * each},
    }
    assert books.counted("failures") == {"silent": 4 * each}


def test_a_message_weighs_what_it_weighs() -> None:
    message = Message("query", {"a": np.zeros((3, 5), np.float32), "b": np.zeros(0, np.uint8)})
    data = encode(message)
    got = size_of(message, data)
    assert (got.payload, got.total) == (60, len(data))


def test_nobody_else_has_a_page() -> None:
    with pytest.raises(KeyError):
        TrafficCounters(NAMES).sent("stranger", "probe", "query", Size(1, 1))
