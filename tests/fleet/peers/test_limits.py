"""Quotas, breakers and duplicate names, with a test for a clock."""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lntrust.fleet.peers.limits import Breaker, DuplicateNames, Flood, Quota, State

steps = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 30)), min_size=1, max_size=40)


@given(steps, st.floats(0.5, 20), st.integers(1, 25))
def test_no_more_than_the_rate_and_one_burst(steps: list[tuple[float, int]], rate: float, burst: int) -> None:
    quota, now, taken = Quota(rate, burst), 0.0, 0
    for wait, examples in steps:
        now += wait
        if quota.take(examples, now) == 0:
            taken += examples
        assert taken <= burst + rate * now + 1e-6


@given(steps, st.floats(0.5, 20), st.integers(1, 25))
def test_who_waits_as_long_as_told_is_served(steps: list[tuple[float, int]], rate: float, burst: int) -> None:
    quota, now = Quota(rate, burst), 0.0
    for wait, examples in steps:
        now += wait
        left = quota.take(examples, now)
        if examples > burst:
            assert left == float("inf")
        else:
            assert quota.take(examples, now + left + 1e-6) == 0 or left == 0
            now += left + 1e-6


def test_a_clock_that_goes_back_gives_nothing() -> None:
    quota = Quota(rate=1, burst=2)
    assert quota.take(2, 100.0) == 0
    assert quota.take(1, 50.0) == pytest.approx(1)
    assert quota.take(1, 100.0) == pytest.approx(1)
    assert quota.take(1, 101.0) == 0


def test_a_rate_of_nothing_is_one_burst_for_ever() -> None:
    quota = Quota(rate=0, burst=3)
    assert quota.take(3, 0) == 0
    assert quota.take(1, 1e9) == float("inf")


def test_a_flood_is_many_refusals_in_a_short_time() -> None:
    flood = Flood(most=3, within=2.0)
    assert [flood.rises(now) for now in (0, 1, 2, 4.5, 5, 6)] == [False] * 6
    assert [flood.rises(now) for now in (6.1, 6.2)] == [True, False], "and then counting begins anew"


def test_a_breaker_opens_tries_and_closes() -> None:
    breaker = Breaker(failures=3, pause=1, longest=3)
    for now in (0.0, 0.1):
        assert breaker.admits(now)
        breaker.failed(now)
    assert breaker.state(0.2) is State.CLOSED
    breaker.failed(0.2)
    assert (breaker.state(0.3), breaker.admits(0.3)) == (State.OPEN, False)
    assert breaker.state(1.2) is State.HALF_OPEN
    assert breaker.admits(1.2), "one may try"
    assert not breaker.admits(1.2), "and nobody else meanwhile"
    breaker.failed(1.3)
    assert (breaker.state(3.2), breaker.state(3.3)) == (State.OPEN, State.HALF_OPEN), "twice as long"
    assert breaker.admits(3.3)
    breaker.failed(3.3)
    assert (breaker.state(6.2), breaker.state(6.3)) == (State.OPEN, State.HALF_OPEN), "but not for ever"
    assert breaker.admits(6.3)
    breaker.succeeded()
    assert breaker.state(6.3) is State.CLOSED
    breaker.failed(6.4)
    assert breaker.admits(6.4), "as if nothing had been"


def test_failures_that_are_not_in_a_row() -> None:
    breaker = Breaker(failures=2)
    for now in range(10):
        breaker.failed(now)
        breaker.succeeded()
    assert breaker.state(10) is State.CLOSED


def test_late_failures_do_not_prolong_the_pause() -> None:
    breaker = Breaker(failures=1, pause=1)
    breaker.failed(0)
    breaker.failed(0.9)  # was asked before it opened
    assert breaker.state(1.0) is State.HALF_OPEN


def test_a_pause_goes_on_growing_over_appearances() -> None:
    breaker = Breaker(failures=1, pause=1, longest=60)
    breaker.failed(0.0)
    breaker.appeared(0.5)
    assert breaker.admits(0.5)
    breaker.failed(0.5)  # two seconds now
    breaker.appeared(0.6)
    assert not breaker.admits(2.4)
    assert breaker.admits(2.6)
    breaker.failed(2.6)
    breaker.appeared(61.0)  # four seconds have long passed, and it is tried as ever
    assert breaker.admits(61.0)
    breaker.failed(61.0)
    breaker.appeared(61.5)
    assert breaker.admits(61.5), "a minute after the last time"
    assert not breaker.admits(61.5), "one question"


def test_of_many_threads_one_tries() -> None:
    breaker, admitted, start = Breaker(failures=1, pause=1), Counter[bool](), threading.Barrier(8)
    breaker.failed(0)

    def ask() -> None:
        start.wait()
        admitted[breaker.admits(2)] += 1

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted[True] == 1


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


def test_sessions_without_end_fill_no_memory() -> None:
    names = DuplicateNames()
    for now in (0.0, 1.0):
        for number in range(1000):
            names.add("b", str(number), now)
    assert names.count("b", 1.0) <= 16
