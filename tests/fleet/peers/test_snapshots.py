"""Which model answers a question: the one of now, or in lockstep the one of its round."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.training.learner import Snapshot


def snapshot(version: int) -> Snapshot:
    return Snapshot(version, lambda x: x, lambda x: np.asarray(x))  # type: ignore[arg-type, return-value]


def test_before_there_is_a_model() -> None:
    for lockstep in (False, True):
        shelf = SnapshotStore(lockstep, 0.05)
        assert shelf.empty
        with pytest.raises(LNTrustError, match="there is no model yet"):
            shelf.at(-1)
        with pytest.raises(LNTrustError, match="there is no model yet"):
            _ = shelf.latest


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=1), st.integers(-1, 100))
def test_on_its_own_clock_now_is_now(rounds: list[int | None], asked: int) -> None:
    shelf = SnapshotStore(False, 0.0)
    for version, round_ in enumerate(rounds):
        shelf.put(snapshot(version), round_)
    assert shelf.at(asked).version == shelf.latest.version == len(rounds) - 1
    assert not shelf.empty


def test_in_lockstep_a_round_has_its_model_and_a_client_the_last() -> None:
    shelf = SnapshotStore(True, 0.05)
    for version, round_ in enumerate([0, 1, None, 2, None]):
        shelf.put(snapshot(version), round_)
    assert [shelf.at(r).version for r in (0, 1, 2)] == [0, 1, 3]
    assert shelf.at(-1).version == shelf.latest.version == 4


def test_in_lockstep_the_future_is_waited_for() -> None:
    shelf = SnapshotStore(True, 30)
    shelf.put(snapshot(0), 0)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(shelf.at, round_) for round_ in (2, 2, 3)]
        shelf.put(snapshot(1), 1)
        for each in waiting:
            with pytest.raises(FutureTimeoutError):
                each.result(0.1)
        shelf.put(snapshot(2), 2)
        assert [each.result(10).version for each in waiting[:2]] == [2, 2]
        shelf.put(snapshot(9))  # belongs to no round, and changes none
        shelf.put(snapshot(3), 3)
        assert waiting[2].result(10).version == 3


def test_in_lockstep_the_wait_has_an_end_whatever_else_happens() -> None:
    shelf, over = SnapshotStore(True, 0.3), threading.Event()

    def chatter() -> None:
        while not over.wait(0.01):
            shelf.put(snapshot(1))

    with ThreadPoolExecutor(1) as pool:
        shelf.put(snapshot(0), 4)
        pool.submit(chatter)
        begun = time.monotonic()
        with pytest.raises(LNTrustError, match="round 5 has not come; the last one is 4"):
            shelf.at(5)
        over.set()
    assert 0.3 <= time.monotonic() - begun < 10


def test_in_lockstep_what_is_long_over_is_forgotten_at_once() -> None:
    shelf = SnapshotStore(True, 600)
    for round_ in range(1000):
        shelf.put(snapshot(round_), round_)
    begun = time.monotonic()
    with pytest.raises(LNTrustError, match="round 0 is over and forgotten; the last one is 999"):
        shelf.at(0)
    assert time.monotonic() - begun < 60, "nobody waits for the past"
    remembered = [r for r in range(1000) if answers(shelf, r)]
    assert remembered == list(range(1000 - len(remembered), 1000))
    assert 10 < len(remembered) < 1000
    assert shelf.at(remembered[0]).version == remembered[0]


def answers(shelf: SnapshotStore, round_: int) -> bool:
    try:
        return shelf.at(round_).version == round_
    except LNTrustError:
        return False
