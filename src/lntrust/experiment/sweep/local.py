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
from contextlib import suppress

import torch

from lntrust.core.errors import LNTrustError
from lntrust.core.memory import keep_memory
from lntrust.experiment.sweep.attempts import KeptViews, Superseded, answer
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
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    answered: queue.SimpleQueue[tuple[Task, Answer]] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    team = [_Worker(work, index, watch) for index in range(min(workers, len(tasks)))]

    def serve(worker: _Worker) -> None:
        while not worker.stopped:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                answered.put((task, worker.carry_out(task)))
            except Exception as error:  # no process could be started, say: an answer all the same
                answered.put((task, Answer(error=f"{type(error).__name__}: {error}")))
        worker.end()

    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in team]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            yield answered.get()
    finally:
        for worker in team:
            worker.stop()
        for thread in threads:
            thread.join(_PATIENCE)


class _Worker:
    """A process that carries out one task after another, seen from the sweep."""

    def __init__(self, work: Work, index: int, watch: Watch) -> None:
        self._work, self._index, self._watch = work, index, watch
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()  # a process is not started while all are being stopped
        self.stopped = False

    def carry_out(self, task: Task) -> Answer:
        """A task whose process dies is given to a new one, which goes on from the last checkpoint."""
        code = 0
        for _ in range(ATTEMPTS):
            process = self._start(task.device)
            if process is None:
                return Answer(error="stopped")
            text = _ask(process, task, self._watch)
            if text is not None:
                return Answer.model_validate_json(text)
            code = self.end()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Answer(error=f"the process that worked on it died {ATTEMPTS} times ({how})")

    def _start(self, device: str) -> subprocess.Popen[str] | None:
        with self._lock:
            if self.stopped:
                return None
            if self._process is None:
                # A session of its own: Ctrl-C is for the sweep, which then ends its workers in order.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__, str(os.getpid()), self._work.model_dump_json()],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
                    env=_environment(self._index) if device == "cuda" else None,
                )  # fmt: skip
            return self._process

    def end(self) -> int:
        """No more tasks for this process: it ends by itself. Its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(BrokenPipeError), process:  # closes both pipes, and waits
            pass
        return process.returncode

    def stop(self) -> None:
        """End the process in the midst of a task."""
        with self._lock:
            self.stopped = True
            process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


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


def main(parent: int, work: Work) -> None:
    """What a worker does: a task a line, until there are no more."""
    keep_memory()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # an exception: half-written files are removed
    channel = os.dup(1)
    os.dup2(2, 1)  # whatever a user's own code prints shall not be taken for an answer
    said = 0.0

    def guard() -> None:
        if os.getppid() != parent:
            raise Superseded("the sweep that asked for this is gone")

    def progress(done: int, total: int, _: float | None) -> None:
        nonlocal said
        if time.monotonic() > said + 0.5:
            said = time.monotonic()
            os.write(channel, f"done {done / max(total, 1)}\n".encode())

    views = KeptViews(lambda name: load_dataset(name, work.data), work.threads)
    with suppress(BrokenPipeError):  # nobody listens any more
        for line in sys.stdin:
            os.write(channel, f"answer {answer(line, work, views, guard, progress)}\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), Work.model_validate_json(sys.argv[2]))
