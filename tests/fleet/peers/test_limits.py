"""Quotas and breakers, with a test for a clock."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lntrust.fleet.peers.limits import Breaker, Quota, State

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


def test_of_many_threads_one_tries() -> None:
    breaker, admitted = Breaker(failures=1, pause=1), []
    breaker.failed(0)
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        if breaker.admits(2):
            admitted.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted == [1]
