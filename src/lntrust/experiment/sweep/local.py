"""A sweep's tasks on this machine: worker processes that are given tasks, and new ones for those that die.

A worker is `python -m lntrust.experiment.sweep.local`. It reads a line of JSON for each task and writes lines
back: `done` with the share that is done, now and then, and in the end `answer` with JSON.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress

import torch

from lntrust.core.errors import LNTrustError
from lntrust.core.memory import keep_memory
from lntrust.experiment.sweep.attempts import Superseded, answer
from lntrust.experiment.sweep.plan import Answer, Task, Work
from lntrust.world import load_dataset

Watch = Callable[[Task, float], None]  # how much of a task is done, from 0 to 1
ATTEMPTS = 3  # a task whose worker dies so often is given up: it is probably the cause
_PATIENCE = 10.0  # seconds that a worker has to end


def workers_and_threads(device: str, workers: int | None) -> tuple[int, int]:
    """How many workers to start, and how many threads each may use."""
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    if gpus and workers and workers > gpus:
        raise LNTrustError(f"--workers {workers}: a task takes a whole GPU, and there are {gpus}")
    workers = workers or max(gpus, 1)
    return workers, max(1, torch.get_num_threads() // workers)


def run_tasks(
    tasks: Sequence[Task], work: Work, workers: int, watch: Watch = lambda *_: None
) -> Generator[tuple[Task, Answer], None, None]:
    """Every task with its answer, as they are done. Closing the iterator ends the workers."""
    shared = work.model_dump_json()
    team = [_Worker(shared, index) for index in range(max(1, min(workers, len(tasks))))]
    free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in team:
        free.put(worker)

    def carry_out(task: Task) -> Answer:
        worker = free.get()
        try:
            return worker.carry_out(task, watch)
        except Exception as error:  # no process could be started, say: an answer all the same
            return Answer(error=f"{type(error).__name__}: {error}")
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(len(team))
    try:
        asked = {pool.submit(carry_out, task): task for task in tasks}
        for future in as_completed(asked):
            yield asked[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in team:
            worker.stop()
        pool.shutdown()
        for worker in team:
            worker.end()


class _Worker:
    """A process that carries out one task after another, seen from the sweep."""

    def __init__(self, shared: str, index: int) -> None:
        self._shared, self._index = shared, index
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()  # a process is not started while all are being stopped
        self._stopped = False

    def carry_out(self, task: Task, watch: Watch) -> Answer:
        """A task whose process dies is given to a new one, which goes on from the last checkpoint."""
        code = 0
        for _ in range(ATTEMPTS):
            with self._lock:
                if self._stopped:
                    return Answer(error="stopped")
                process = self._process = self._process or self._start(task.device)
            text = _ask(process, task, watch)
            if text is not None:
                return Answer.model_validate_json(text)
            code = self.end()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Answer(error=f"the process that worked on it died {ATTEMPTS} times ({how})")

    def _start(self, device: str) -> "subprocess.Popen[str]":
        # A session of its own: Ctrl-C is for the sweep, which then ends its workers in order.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(os.getpid()), self._shared],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env=_environment(self._index) if device == "cuda" else None,
        )  # fmt: skip

    def stop(self) -> None:
        """No more tasks; the process ends in the midst of one."""
        with self._lock:
            self._stopped, process = True, self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    def end(self) -> int:
        """Wait for the process, and close the pipes to it. Its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(BrokenPipeError), process:
            pass
        return process.returncode


def _ask(process: subprocess.Popen[str], task: Task, watch: Watch) -> str | None:
    """The answer, or none when the process died over it."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(task.model_dump_json() + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    for line in process.stdout:
        kind, _, rest = line.partition(" ")
        if kind == "answer" and rest.endswith("\n"):
            return rest
        if kind == "done":
            watch(task, float(rest))
    return None


def _environment(index: int) -> dict[str, str]:
    """Each worker sees one GPU, which is its own."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpus = [gpu for gpu in seen.split(",") if gpu] or [str(k) for k in range(index + 1)]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": gpus[index]}


def main(parent: int, shared: str) -> None:
    """What a worker does: a task a line, until there are no more."""
    keep_memory()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # an exception: half-written files are removed
    channel = os.dup(1)
    os.dup2(2, 1)  # whatever a user's own code prints shall not be taken for an answer
    data, said = Work.model_validate_json(shared).data, 0.0

    def guard() -> None:
        if os.getppid() != parent:
            raise Superseded("the sweep that asked for this is gone")

    def progress(done: int, total: int, _: float | None) -> None:
        nonlocal said
        if time.monotonic() > said + 0.5:
            said = time.monotonic()
            os.write(channel, f"done {done / max(total, 1)}\n".encode())

    with suppress(BrokenPipeError):  # nobody listens any more
        for line in sys.stdin:
            made = answer(line, shared, lambda name: load_dataset(name, data), guard, progress)
            os.write(channel, f"answer {made}\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
