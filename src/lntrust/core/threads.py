"""As many threads as work is worth: on little of it, two lose more time agreeing than they save."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from math import prod
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_own = threading.local()  # this thread's buffers, and the work that waits
FEW = 1_000_000  # numbers that one thread works through sooner than two
_SHARE = 1 << 15  # the least numbers that torch gives to a thread


def fit_threads(numbers: int) -> None:
    """One thread from here on, if steps are on no more than so many numbers."""
    if numbers < FEW:
        torch.set_num_threads(1)


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """The same for a while."""
    before = torch.get_num_threads()
    fit_threads(numbers)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def sleeping_threads() -> Iterator[None]:
    """For a while, threads that wait for each other sleep, also where torch was loaded without being told.

    Torch's threads are OpenMP's, and keep a core busy while they wait: where others want it too, a run takes
    five times as long. OMP_WAIT_POLICY=PASSIVE prevents it, but is read when torch is loaded. Later there is
    one way left: with more OpenMP threads than cores, libgomp lets them sleep at once. So a thread of its own
    holds as many as there are cores, and they do nothing.
    """
    threads = torch.get_num_threads()
    if threads == 1:  # nobody waits
        yield
        return
    ready, ended = threading.Event(), threading.Event()

    def hold() -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        try:
            torch.set_num_threads(cores)  # of this thread of Python's
            torch.zeros(cores * _SHARE, dtype=torch.uint8).add_(1)  # something to do for each
        finally:
            ready.set()
        ended.wait()

    holder = threading.Thread(target=hold, name="lntrust sleepers", daemon=True)
    holder.start()
    ready.wait()
    torch.set_num_threads(threads)  # torch also remembers who asked last
    try:
        yield
    finally:
        ended.set()
        holder.join()


def side_by_side(work: Callable[[T], None], pieces: Sequence[T]) -> None:
    """Work on pieces that do not touch each other, each in one thread, as many at a time as torch may use.

    Two threads inside one small product lose a third of their time to agreeing; two that have a product each
    lose nothing. What comes out does not depend on it.
    """
    if getattr(_own, "waiting", None) is not None:
        _own.waiting.extend(partial(work, piece) for piece in pieces)
        return
    threads = torch.get_num_threads()
    if threads == 1 or len(pieces) < 2:
        for piece in pieces:
            work(piece)
        return

    def alone(piece: T) -> None:
        torch.set_num_threads(1)  # of this thread of Python's
        work(piece)

    try:
        for _ in _pool(threads, os.getpid()).map(alone, pieces):
            pass
    finally:
        torch.set_num_threads(threads)


@contextmanager
def together() -> Iterator[None]:
    """What is given to `side_by_side` in here is done at the end, all of it side by side."""
    if getattr(_own, "waiting", None) is not None:  # inside another: that one does it
        yield
        return
    waiting: list[Callable[[], None]] = []
    _own.waiting = waiting
    try:
        yield
    finally:
        _own.waiting = None
    side_by_side(lambda work: work(), waiting)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay: of this process, since a fork takes none along."""
    return ThreadPoolExecutor(threads, thread_name_prefix="lntrust")


def scratch(name: str, like: Tensor, *shape: int) -> Tensor | None:
    """A buffer of this thread's, the same one at every call: whoever asks again overwrites it.

    None on a GPU, where fresh memory costs nothing. On a CPU it costs more than writing it.
    """
    if like.is_cuda:
        return None
    held: dict[tuple[str, torch.dtype], Tensor] = _own.__dict__.setdefault("buffers", {})
    size, key = prod(shape), (name, like.dtype)
    if key not in held or held[key].numel() < size:
        held[key] = torch.empty(size, dtype=like.dtype)
    return held[key][:size].view(shape)
