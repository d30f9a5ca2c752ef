"""Threads: as many as pay, the same numbers with any."""

import threading
from contextlib import suppress

import pytest
import torch

from lntrust.core.threads import (
    FEW,
    fit_threads,
    scratch,
    side_by_side,
    sleeping_threads,
    threads_for,
    together,
)


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
    with pytest.raises(ZeroDivisionError), threads_for(1):
        _ = 1 / 0
    assert torch.get_num_threads() == 2
    fit_threads(FEW - 1)
    assert torch.get_num_threads() == 1


def sleepers() -> int:
    return [thread.name for thread in threading.enumerate()].count("lntrust sleepers")


def test_waiting_threads_are_held_asleep_for_a_while() -> None:
    for threads, held in ((1, 0), (2, 1)):
        torch.set_num_threads(threads)
        with sleeping_threads():
            assert sleepers() == held
            assert torch.get_num_threads() == threads
        assert sleepers() == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_piece_is_done_once(threads: int) -> None:
    torch.set_num_threads(threads)
    done = torch.zeros(17, dtype=torch.int64)

    def work(k: int) -> None:
        assert torch.get_num_threads() == 1 or threads == 1
        done[k] += 1

    side_by_side(work, range(17))
    assert (done == 1).all()
    with pytest.raises(IndexError):  # an error in a piece is everybody's
        side_by_side(work, range(12, 20))
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_gathered_is_done_in_the_end(threads: int) -> None:
    torch.set_num_threads(threads)
    done: list[int] = []
    with together():
        side_by_side(done.append, range(3))
        with together():  # one inside another waits for it
            side_by_side(done.append, [3])
        side_by_side(done.append, range(4, 7))
        assert done == []
    assert sorted(done) == list(range(7))
    with suppress(ZeroDivisionError), together():  # nothing is done after an error
        side_by_side(done.append, range(3))
        _ = 1 / 0
    side_by_side(done.append, [7])  # and afterwards as before
    assert done[7:] == [7]


def test_scratch_is_used_again_by_its_own_thread_only() -> None:
    like, held = torch.zeros(1), list[int]()

    def ask(name: str, like: torch.Tensor, *shape: int) -> None:
        got = scratch(name, like, *shape)
        assert got is not None
        assert got.shape == shape
        held.append(got.data_ptr())

    ask("x", like, 3, 4)
    ask("x", like, 2, 2)
    assert held[0] == held[1], "the same memory"
    ask("y", like, 3, 4)
    ask("x", like.double(), 3, 4)
    thread = threading.Thread(target=ask, args=("x", like, 3, 4))
    thread.start()
    thread.join()
    assert len(set(held)) == 4
