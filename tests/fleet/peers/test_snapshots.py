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


def test_a_round_has_its_model_and_now_is_the_last() -> None:
    """In lockstep, that is; on its own clock now is now, whatever is asked for."""
    for lockstep, of_rounds in ((True, [0, 1, 3]), (False, [4, 4, 4])):
        store = stored(lockstep=lockstep)
        assert store.version == 0
        with pytest.raises(LNTrustError, match="there is no model yet"):
            store.at(-1)
        store = stored(0, 1, None, 2, None, lockstep=lockstep)
        assert [store.at(round_).version for round_ in range(3)] == of_rounds
        assert store.at(-1).version == store.latest.version == store.version == 4


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
