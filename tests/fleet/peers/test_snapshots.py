"""Which model answers a question: the one of now, or in lockstep the one of its round."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.training.learner import Snapshot


def snapshot(version: int) -> Snapshot:
    return Snapshot(version, lambda x: x, lambda x: np.asarray(x))  # type: ignore[arg-type, return-value]


def stored(*rounds: int | None, patience: float = 0.05, lockstep: bool = True) -> SnapshotStore:
    """Versions 0, 1, 2, … of these rounds."""
    store = SnapshotStore(lockstep, patience)
    for version, round_ in enumerate(rounds):
        store.put(snapshot(version), round_)
    return store


@pytest.mark.parametrize("lockstep", [False, True])
def test_before_there_is_a_model(lockstep: bool) -> None:
    store = stored(lockstep=lockstep)
    assert store.empty
    with pytest.raises(LNTrustError, match="there is no model yet"):
        store.at(-1)


@pytest.mark.parametrize("asked", [-1, 0, 1, 100])
def test_on_its_own_clock_now_is_now(asked: int) -> None:
    store = stored(0, None, 1, lockstep=False)
    assert store.at(asked).version == store.latest.version == 2
    assert not store.empty


def test_in_lockstep_a_round_has_its_model_and_a_client_the_last() -> None:
    store = stored(0, 1, None, 2, None)
    assert [store.at(r).version for r in (0, 1, 2)] == [0, 1, 3]
    assert store.at(-1).version == store.latest.version == 4


def test_in_lockstep_a_round_that_is_to_come_is_waited_for() -> None:
    store = stored(0, patience=60)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(store.at, round_) for round_ in (2, 2, 3)]
        store.put(snapshot(1), 1)
        store.put(snapshot(2), 2)
        assert [each.result(60).version for each in waiting[:2]] == [2, 2]
        store.put(snapshot(9))  # belongs to no round, and changes none
        store.put(snapshot(3), 3)
        assert waiting[2].result(60).version == 3


def test_in_lockstep_what_is_long_over_is_forgotten_at_once() -> None:
    store = stored(*range(1000), patience=600)  # a test that waits for the past does not end
    with pytest.raises(LNTrustError, match="round 0 is over and forgotten; the last one is 999"):
        store.at(0)
    assert [store.at(round_).version for round_ in range(744, 1000)] == list(range(744, 1000))
    with pytest.raises(LNTrustError, match="round 743 is over"):
        store.at(743)
