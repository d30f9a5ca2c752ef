"""The ledger's books add up."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lntrust.network import Ledger, Size
from lntrust.network.codec import KINDS, Kind

EDGES = np.array([[0, 1], [0, 2], [1, 0], [2, 0]])
PHASES, BYTES = st.sampled_from(["stage 1", "probe", "a/b"]), st.integers(0, 10**9)
ENTRIES = st.lists(st.tuples(st.integers(0, 3), PHASES, st.sampled_from(KINDS), BYTES, BYTES), max_size=30)
Entry = tuple[int, str, Kind, int, int]


def filled(entries: list[Entry]) -> Ledger:
    ledger = Ledger(EDGES)
    for edge, phase, kind, payload, framing in entries:
        ledger.book(np.array([edge]), phase, kind, Size(payload, framing))
    return ledger


@given(ENTRIES)
def test_every_byte_is_in_every_total_once(entries: list[Entry]) -> None:
    ledger = filled(entries)
    summary = ledger.summary()
    assert summary["total"] == sum(e[3] + e[4] for e in entries)
    assert summary["framing"] == sum(e[4] for e in entries)
    for kind in KINDS:
        assert summary[kind] == sum(e[3] for e in entries if e[2] == kind)
        assert summary["framing_by_kind"][kind] == sum(e[4] for e in entries if e[2] == kind)
        per_edge = [sum(e[3] for e in entries if (e[0], e[2]) == (edge, kind)) for edge in range(4)]
        assert ledger.payload(kind).tolist() == per_edge
    probed = [sum(e[3] for e in entries if (e[0], e[1]) == (edge, "probe")) for edge in range(4)]
    assert ledger.payload(phase="probe").tolist() == probed
    assert int(ledger.payload().sum()) + summary["framing"] == summary["total"]
    phases = summary["by_phase"].values()
    for column in (*KINDS, "framing"):
        assert sum(phase[column] for phase in phases) == summary[column]
    assert sum(phase["messages"] for phase in phases) == len(entries)


@given(ENTRIES, ENTRIES)
def test_a_loaded_ledger_goes_on_counting(first: list[Entry], second: list[Entry]) -> None:
    loaded, state = filled(second), filled(first).state()
    loaded.load(state)
    assert loaded.summary() == filled(first).summary()
    assert loaded.payload().tolist() == filled(first).payload().tolist()
    for edge, phase, kind, payload, framing in second:
        loaded.book(np.array([edge]), phase, kind, Size(payload, framing))
    assert loaded.summary() == filled(first + second).summary()
    for name, counts in filled(first).state().items():
        assert torch.equal(state[name], counts)  # what was saved is a copy


def test_one_edge_may_carry_several_messages_at_once_or_one_by_one() -> None:
    ledger, other = Ledger(EDGES), Ledger(EDGES)
    ledger.book(np.array([2, 2, 0]), "probe", "query", Size(5, 1))
    assert ledger.payload("query", "probe").tolist() == [5, 0, 10, 0]
    assert ledger.summary()["by_phase"]["probe"]["messages"] == 3
    for edge in (2, 2, 0):
        other.book_one(edge, "probe", "query", Size(5, 1))
    assert other.summary() == ledger.summary()
    assert ledger.total() == 18
    assert ledger.total(slice(1, None)) == 12
