"""Clocks: seconds of a call, of every round of a run, and the most memory meanwhile."""

import gc
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

from lntrust.experiment.driver import Run
from lntrust.learners.views import Views
from lntrust.study.settings import Study

T = TypeVar("T")
_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def now(device: torch.device) -> float:
    """The time when all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def fastest(call: Callable[[], object], device: torch.device, seconds: float = 0.2, least: int = 3) -> float:
    """The shortest of many calls: what the machine can do when nobody disturbs it.

    Short calls are timed several at a time, and on a GPU as one recorded graph, so that neither clock nor
    launch is what is measured.
    """
    call()
    start = now(device)
    call()
    once = now(device) - start
    together = max(1, min(1000, int(0.005 / max(once, 1e-7))))
    several = _recorded(call, together) if device.type == "cuda" else _repeated(call, together)
    best, spent, count = once, 0.0, 0
    while spent < seconds or count < least:
        start = now(device)
        several()
        took = now(device) - start
        best, spent, count = min(best, took / together), spent + took, count + 1
    return best


def _repeated(call: Callable[[], object], times: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(times):
            call()

    return several


def _recorded(call: Callable[[], object], times: int) -> Callable[[], None]:
    """The calls as one CUDA graph, which starts them all with one launch."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    graph.replay()  # the first replay uploads it
    return graph.replay


def timed_run(study: Study, method: str, seed: int, views: Views, backend: str = "batched") -> float:
    """Seconds of one whole run, evaluations included, from a built world and data on the device."""
    run = Run(study, method, seed, views, backend="loop" if backend == "loop" else "batched")
    start = now(views.device)
    run()
    return now(views.device) - start


class _EnoughError(Exception):
    """Ends a run after the rounds that were to be timed, before it evaluates."""


def timed_rounds(run: Run, rounds: int, after: Callable[[int], None] = lambda _: None) -> list[float]:
    """Seconds of the first rounds of a run, one by one; the first has what comes before it, too.

    The run stops there: nothing is evaluated, unless the study has it in between.
    """
    begun: list[float] = []
    ended: list[float] = []

    def watch(done: int, _total: int, _loss: float | None) -> None:
        ended.append(now(run.device))
        after(done)
        if done >= rounds:
            raise _EnoughError
        begun.append(now(run.device))

    with suppress(_EnoughError):
        run(progress=watch)
    if len(begun) != rounds:
        raise RuntimeError(f"{len(begun)} rounds were seen, not {rounds}: a round is no longer one call")
    return [end - start for start, end in zip(begun, ended[1:], strict=True)]


def timed_stretch(run: Run, begin: int, end: int, note: Callable[[], T]) -> tuple[float, T, T]:
    """Seconds from the end of round `begin` to that of round `end`, and what was noted at either.

    The device is waited for at these two points only. The run stops at the second.
    """
    stamps: list[float] = []
    notes: list[T] = []

    def watch(done: int, _total: int, _loss: float | None) -> None:
        if done == begin:
            notes.append(note())
            stamps.append(now(run.device))
        if done == end:
            stamps.append(now(run.device))
            notes.append(note())
            raise _EnoughError

    with suppress(_EnoughError):
        run(progress=watch)
    (start, stop), (before, after) = stamps, notes
    return stop - start, before, after


class PeakMemory:
    """The most memory in use since it was made, in GB: the GPU's, or the process's resident set.

    `before` is what was in use then (the data, mostly). Where the system cannot forget an earlier peak
    (all but Linux), the peak is the process's whole life's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device) / 1e9
        else:
            with suppress(OSError):
                _RESET.write_text("5", "ascii")
            self.before = self._read()

    @property
    def peak(self) -> float:
        return max(self.before, self._read())  # the system counts in pieces, and may tell a little less later

    def _read(self) -> float:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e9
        if _STATUS.is_file():
            lines = _STATUS.read_text("ascii").splitlines()
            found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
            if found:
                return int(found[0]) * 1024 / 1e9
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
