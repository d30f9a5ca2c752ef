"""Quotas, breakers and duplicate names, with a test for a clock."""

from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lntrust.fleet.peers.limits import Breaker, DuplicateNames, Quota, State

steps = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 30)), min_size=1, max_size=40)


@given(steps, st.floats(0.5, 20), st.integers(1, 25), st.booleans())
def test_no_more_than_the_rate_and_one_burst_and_who_waits_as_long_as_told_is_served(
    steps: list[tuple[float, int]], rate: float, burst: int, patient: bool
) -> None:
    quota, now, taken = Quota(rate, burst), 0.0, 0
    for wait, examples in steps:
        now += wait
        left = quota.take(examples, now)
        assert (left == inf) == (examples > burst)
        if patient and 0 < left < inf:
            now += left + 1e-6
            left = quota.take(examples, now)
            assert left == 0
        taken += 0 if left else examples
        assert taken <= burst + rate * now + 1e-6


def test_a_clock_that_goes_back_gives_nothing() -> None:
    quota = Quota(rate=1, burst=2)
    assert quota.take(2, 100.0) == 0
    assert quota.take(1, 50.0) == pytest.approx(1)
    assert quota.take(1, 100.0) == pytest.approx(1)
    assert quota.take(1, 101.0) == 0


def test_a_breaker_opens_tries_and_closes() -> None:
    breaker = Breaker(failures=3, pause=1, longest=3)
    for now, well in enumerate([False, False, True] * 5):
        breaker.tell(well, now / 100)
    assert breaker.state(0.1) is State.CLOSED, "failures not in a row"
    for now in (0.2, 0.21, 0.22):
        assert breaker.admits(now)
        breaker.tell(False, now)
    breaker.tell(False, 1.1)  # was asked before it opened, and prolongs nothing
    assert (breaker.state(1.2), breaker.admits(1.2)) == (State.OPEN, False)
    assert breaker.state(1.22) is State.HALF_OPEN
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(breaker.admits, [1.25] * 8)) == 1, "one may try, and nobody else meanwhile"
    breaker.tell(None, 1.26)  # was not asked after all
    assert breaker.admits(1.27)
    breaker.tell(False, 1.3)
    assert (breaker.state(3.2), breaker.state(3.3)) == (State.OPEN, State.HALF_OPEN), "twice as long"
    assert breaker.admits(3.3)
    breaker.tell(False, 3.3)
    assert (breaker.state(6.2), breaker.state(6.3)) == (State.OPEN, State.HALF_OPEN), "but not for ever"
    assert breaker.admits(6.3)
    breaker.tell(True, 6.3)
    assert breaker.state(6.3) is State.CLOSED
    breaker.tell(False, 6.4)
    assert breaker.admits(6.4), "as if nothing had been"


def test_a_pause_goes_on_growing_while_it_comes_and_goes() -> None:
    breaker = Breaker(failures=1, pause=1, longest=60)
    breaker.tell(False, 0.0)
    assert breaker.admits(0.5, 1)
    breaker.tell(False, 0.5)  # two seconds now
    assert not breaker.admits(2.4, 3)
    assert breaker.admits(2.6, 3)
    breaker.tell(False, 2.6)
    assert breaker.admits(61.0, 5)  # four seconds have long passed, and it is tried as ever
    breaker.tell(False, 61.0)
    assert breaker.admits(61.5, 7), "a minute after the last time"
    assert not breaker.admits(61.5, 7), "one question"


def test_two_sessions_that_speak_in_turn_are_two_nodes() -> None:
    names = DuplicateNames()
    assert names.count("b", 0.0) == 0
    for now, session in enumerate(["one", "one", "two", "two"]):
        names.add("b", session, float(now))
    assert names.count("b", 4.0) == 1, "started again"
    names.add("b", "one", 5.0)
    assert names.count("b", 5.0) == 2
    assert names.count("c", 5.0) == 0
    assert names.count("b", 5000.0) == 0, "long ago"
    for number in range(2000):
        names.add("b", str(number % 1000), 6.0 + number // 1000)
    assert names.count("b", 7.0) <= 16, "sessions without end fill no memory"
