"""A run has the threads that pay, whoever starts it, and leaves everybody's as they were."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from stopped_runs import Make, stop

from lntrust.core.threads import FEW
from lntrust.learners.views import load_views

LARGE = FEW // (5 * 64) + 1  # a batch of the tiny study that is work for two threads


@pytest.fixture(autouse=True)
def _two_threads() -> Any:
    """As a notebook has them, in which torch came first."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("seed", "changes", "threads"), [(0, [], 1), ([0, 1], [], 1), (0, [f"training.batch={LARGE}"], 2)]
)
def test_a_small_run_has_one_thread_and_a_large_one_all(
    make: Make, seed: Any, changes: list[str], threads: int
) -> None:
    seen: list[int] = []
    make(*changes, seed=seed)(progress=lambda *_: seen.append(torch.get_num_threads()))
    assert set(seen) == {threads}
    assert torch.get_num_threads() == 2


def test_they_come_back_after_an_error_and_after_views_are_loaded(make: Make, tiny: Any) -> None:
    stop(make(), 1)
    load_views(tiny(), "cpu")
    assert torch.get_num_threads() == 2


def test_with_any_number_of_threads_the_same_bits(make: Make) -> None:
    """In steps that are large enough for two of them."""
    seen, made, learned = [], [], []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        one = make(f"training.batch={LARGE}", method="lntrust")
        made.append({**one(progress=lambda *_: seen.append(torch.get_num_threads())), "seconds": 0})
        learned.append(one.population.state())
    assert set(seen) == {2, 1}
    assert made[0] == made[1]
    assert all(torch.equal(value, learned[1][name]) for name, value in learned[0].items())


LINUX = sys.platform.startswith("linux")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# In a process of its own: there nobody else begins or ends a thread.
SPINNING = """
import threading
import time
import torch  # first, as in a notebook

torch.set_num_threads(2)
from lntrust.core.threads import sleeping_threads

def spent():
    "Seconds that the other threads kept a core busy while this one slept."
    numbers, total = torch.zeros(1 << 17), 0.0
    for _ in range(200):
        numbers.add_(1)
        before = time.process_time()
        time.sleep(0.001)
        total += time.process_time() - before
    return total

awake = spent()
with sleeping_threads():
    print(awake, spent())
    assert torch.get_num_threads() == 2
assert torch.get_num_threads() == 2
assert not [each for each in threading.enumerate() if each.name == "lntrust sleepers"]
"""


@pytest.mark.skipif(not LINUX or CORES < 2, reason="libgomp, two cores")
def test_they_sleep_although_torch_was_loaded_first() -> None:
    """Seconds of processors, not of the clock: a busy machine does not lengthen them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run([sys.executable, "-c", SPINNING], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    awake, asleep = map(float, done.stdout.split())
    assert asleep < awake / 5
