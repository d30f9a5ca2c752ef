"""What a node counts stands there by neighbour, also after a restart among others."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lntrust.fleet.peers.traffic import COUNTED, TrafficCounters
from lntrust.network.codec import Kind, Size

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


def counted(entries: list[Entry]) -> TrafficCounters:
    traffic = TrafficCounters(NAMES)
    for out, name, phase, kind, size in entries:
        (traffic.sent if out else traffic.received)(name, phase, kind, size)
    return traffic


@given(entries, st.permutations([*NAMES, "new"]), st.integers(0, 4))
def test_after_a_restart_everybody_has_what_was_theirs(
    entries: list[Entry], order: list[str], left: int
) -> None:
    """Among others, too; all bytes are those that were counted."""
    kept, again = counted(entries), TrafficCounters(order[:left])
    again.load(*kept.state(), NAMES)
    for traffic, names in ((kept, [*NAMES]), (again, order[:left])):
        expected = {way: dict.fromkeys(("query", "reply", "framing"), 0) for way in ("out", "in")}
        payload = np.zeros(2 * len(names), dtype=np.int64)
        for out, name, _, kind, size in entries:
            if name in names:
                expected["out" if out else "in"][kind] += size.payload
                expected["out" if out else "in"]["framing"] += size.framing
                payload[names.index(name) + (0 if out else len(names))] += size.payload
        assert json.dumps(traffic.bytes_by_kind()) == json.dumps(expected), "in this order"
        np.testing.assert_array_equal(traffic.ledger.payload(), payload)


def test_counts_are_kept_and_those_of_an_older_node_too() -> None:
    traffic = TrafficCounters(NAMES)
    for number, what in enumerate(COUNTED):
        traffic.count(what, "z")
        traffic.count(what, "a", number)
    tensors, counters = traffic.state()
    again = TrafficCounters(NAMES)
    again.load(tensors, {"queries in": counters["queries in"]}, NAMES)
    assert again.counted("queries in") == traffic.counted("queries in")
    assert list(traffic.counted("clients")) == ["a", "z"], "in order, so that a page of them reads the same"
    assert again.counted("clients") == {}


def test_several_threads_write_and_nothing_is_lost() -> None:
    traffic, each = TrafficCounters(NAMES), 300

    def write(number: int) -> None:
        for k in range(each):
            traffic.sent(NAMES[k % 3], "probe", "query", Size(1, 2))
            traffic.received(NAMES[k % 3], f"phase {number}", "reply", Size(3, 4))
            traffic.count("failures", "silent")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert traffic.bytes_by_kind() == {
        "out": {"query": 4 * each, "reply": 0, "framing": 8 * each},
        "in": {"query": 0, "reply": 12 * each, "framing": 16 * each},
    }
    assert traffic.counted("failures") == {"silent": 4 * each}
