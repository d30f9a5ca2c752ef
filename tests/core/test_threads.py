"""Threads: as many as pay, the same numbers with any."""

import threading

import pytest
import torch

from lntrust.core.threads import FEW, fit_threads, scratch, side_by_side, threads_for, together


@pytest.fixture(autouse=True)
def _as_before() -> object:  # type: ignore[misc]
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_little_work_gets_one_thread_for_a_while() -> None:
    torch.set_num_threads(2)
    with threads_for(FEW - 1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with threads_for(FEW):
        assert torch.get_num_threads() == 2
    fit_threads(FEW - 1)
    assert torch.get_num_threads() == 1


def test_they_come_back_after_an_error() -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError), threads_for(1):
        _ = 1 / 0
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_piece_is_done_once(threads: int) -> None:
    torch.set_num_threads(threads)
    done = torch.zeros(17, dtype=torch.int64)

    def work(k: int) -> None:
        assert torch.get_num_threads() == 1 or threads == 1
        done[k] += 1

    side_by_side(work, range(17))
    assert (done == 1).all()
    assert torch.get_num_threads() == threads


def test_an_error_in_a_piece_is_everybodys() -> None:
    torch.set_num_threads(2)

    def work(k: int) -> None:
        if k == 3:
            raise ValueError("piece 3")

    with pytest.raises(ValueError, match="piece 3"):
        side_by_side(work, range(8))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_gathered_is_done_in_the_end(threads: int) -> None:
    torch.set_num_threads(threads)
    done: list[int] = []
    with together():
        side_by_side(done.append, range(3))
        side_by_side(done.append, range(3, 7))
        assert done == []
    assert sorted(done) == list(range(7))
    side_by_side(done.append, [7])  # and afterwards as before
    assert done[-1] == 7


def test_one_inside_another_waits_for_it() -> None:
    done: list[int] = []
    with together():
        side_by_side(done.append, [1])
        with together():
            side_by_side(done.append, [2])
        side_by_side(done.append, [3])
        assert done == []
    assert sorted(done) == [1, 2, 3]


def test_nothing_gathered_is_done_after_an_error() -> None:
    done: list[int] = []

    def broken() -> None:
        with together():
            side_by_side(done.append, range(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert done == []
    side_by_side(done.append, [1])
    assert done == [1]


def test_scratch_is_used_again_by_its_own_thread_only() -> None:
    like = torch.zeros(1)
    a, b = scratch("x", like, 3, 4), scratch("x", like, 2, 2)
    assert a is not None
    assert b is not None
    assert a.data_ptr() == b.data_ptr(), "the same memory"
    assert a.shape == (3, 4)
    other, double = scratch("y", like, 3, 4), scratch("x", like.double(), 3, 4)
    assert len({t.data_ptr() for t in (a, other, double) if t is not None}) == 3
    elsewhere: list[int] = []

    def ask() -> None:
        got = scratch("x", like, 3, 4)
        assert got is not None
        elsewhere.append(got.data_ptr())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert elsewhere != [a.data_ptr()]
