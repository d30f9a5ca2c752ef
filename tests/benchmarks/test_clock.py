"""Clocks and memory."""

import subprocess
import sys

import pytest
import torch

from benchmarks.speed import clock
from benchmarks.speed.rounds import for_timing, rounds_by_kind
from lntrust import Study
from lntrust.experiment import Run
from lntrust.learners.views import Views

CPU = torch.device("cpu")


class Clock:
    """Stands still but for what is added to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0.0
        monkeypatch.setattr(clock, "now", lambda _: self.at)

    def add(self, seconds: float) -> None:
        self.at += seconds


def test_the_fastest_call_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    time, calls = Clock(monkeypatch), iter([30.0, 30.0, 30.0, 1.0, 2.0, 2.0])
    assert clock.fastest(lambda: time.add(next(calls)), CPU, seconds=32) == 1.0


def test_rounds_are_timed_one_by_one(heads: Study, codes: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what is done between them; and not up to the last, which would be evaluated."""
    time = Clock(monkeypatch)
    run = Run(for_timing(heads, "lntrust"), "lntrust", 0, codes)
    seen: list[int] = []

    def after(done: int) -> None:
        seen.append(done)
        time.add(100)

    monkeypatch.setattr(run.population, "step", lambda *_: time.add(1))  # two a round
    took = clock.timed_rounds(run, 4, after)
    assert (run.done, took, seen) == (4, [2.0] * 4, [0, 1, 2, 3, 4])


def test_kinds_of_rounds(heads: Study, codes: Views) -> None:
    """Supervised rounds send nothing; distilling and refreshing ones do, as the ledger has it."""
    run = Run(for_timing(heads, "lntrust"), "lntrust", 0, codes)
    got = rounds_by_kind(run)
    assert set(got.seconds) == set(got.bytes) == {"start", "supervised", "distilling", "refresh"}
    assert got.bytes["supervised"] == 0
    assert got.bytes["start"] == got.bytes["refresh"] > 0
    phases = run.network.ledger.summary()["by_phase"]
    distilled = sum(phases["distil"][kind] for kind in ("query", "reply", "framing"))
    assert got.bytes["distilling"] * 6 == distilled  # rounds 4 to 9
    edges = 2 * run.world.graph.number_of_edges()
    assert phases["distil"]["messages"] == 6 * 2 * edges
    alone = rounds_by_kind(Run(for_timing(heads, "independent"), "independent", 0, codes))
    assert set(alone.seconds) == {"supervised"}


PEAK = """
import torch
from benchmarks.speed.clock import PeakMemory

big = torch.ones(50_000_000)
del big
memory = PeakMemory(torch.device("cpu"))
quiet = memory.peak - memory.before
held = torch.ones(50_000_000)
print(quiet, memory.peak - memory.before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets an earlier peak")
def test_the_peak_is_of_its_own_time() -> None:
    """In a process of its own: memory that others have freed there can be taken again without a trace."""
    told = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    quiet, held = map(float, told.stdout.split())
    assert quiet < 0.05
    assert 0.15 < held < 0.3
