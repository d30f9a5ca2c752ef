"""How far many tasks are: a bar on a terminal, elsewhere a line for each task that ends."""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from lntrust.cli.console import err, notes, say
from lntrust.core.errors import LNTrustError
from lntrust.study.loading import value_of

if TYPE_CHECKING:
    from lntrust.experiment.sweep import Answer, Summary, Task, Work
    from lntrust.world import Dataset


class Board:
    """Keeps what tasks give, and shows how many are done, which are running and how long the rest takes.

    Without `resume`, what earlier runs have left is taken away. `name` is what a task is called; no two of
    them may be called the same.
    """

    def __init__(
        self, tasks: Sequence["Task"], datasets: Mapping[str, "Dataset"], work: "Work", resume: bool,
        as_json: bool = False, name: Callable[["Task"], str] = str,
    ) -> None:  # fmt: skip
        from lntrust.experiment.store import kept_and_anew
        from lntrust.experiment.sweep import forget

        self.tasks = [task.on(datasets[task.study.data.dataset]) for task in tasks]
        if not resume:
            forget(self.tasks, work.folder)
        self._work, self._as_json, self._name = work, as_json, name
        self._lines: dict[str, list[Summary]] = {}
        self._failed: dict[str, str] = {}
        self._note = notes()
        self._parts: dict[str, float] = {}  # what is done of tasks under way
        self._done = 0
        for task in self.tasks:
            if (summaries := task.finished(work.folder)) is not None:
                self._keep(task, summaries)
        self.todo = [task for task in self.tasks if name(task) not in self._lines]
        kept = [of for task in self.tasks if name(task) in self._lines for of in task.identities]
        news = kept_and_anew(work.folder, kept, [of for task in self.todo for of in task.identities])
        if news and resume:
            say(news, err)
        columns = (BarColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=err, disable=not err.is_terminal)
        self._shown = self._bar.add_task("", total=len(self.todo))
        self._began = time.monotonic()

    def run_here(self, workers: int | None, threads: int | None = None) -> None:
        """Carry out on this machine what is to do."""
        from lntrust.experiment.sweep import local

        count, cores = local.workers_and_threads(self.tasks[0].device, workers)
        work = self._work.model_copy(update={"threads": threads or cores})
        self.watch(local.run_tasks(self.todo, work, count, self._part))

    def watch(self, answers: Generator[tuple["Task", "Answer"], None, None]) -> None:
        """Keep and show the answers as they come; whoever gives them ends with this."""
        with closing(answers), self._bar:
            self._show()
            for task, answer in answers:
                self._ended(task, answer)

    @property
    def lines(self) -> "list[Summary]":
        """The summaries of all tasks that did not fail, in the tasks' order."""
        return [line for task in self.tasks for line in self._lines.get(self._name(task), [])]

    def check(self) -> None:
        """Fail if a task has failed."""
        reasons = [
            f"  {task}: {self._failed[task]}" for task in map(self._name, self.tasks) if task in self._failed
        ]
        if reasons:
            raise LNTrustError("\n".join([f"{len(reasons)} of {len(self.tasks)} tasks failed:", *reasons]))

    def _part(self, task: "Task", share: float) -> None:
        self._parts[self._name(task)] = share
        self._show()

    def _ended(self, task: "Task", answer: "Answer") -> None:
        from lntrust.experiment.divergence import what_diverged

        name, bad = self._name(task), what_diverged(answer.summaries)
        self._parts.pop(name, None)
        self._done += 1
        for text in answer.notices:
            self._note(text)
        if answer.error is None:
            self._keep(task, answer.summaries)
            scores = [summary["test"] for summary in answer.summaries if summary["test"] is not None]
            result = f"test {sum(scores) / len(scores):.3f}" if scores else "" if bad else "done"
            result = "; ".join(filter(None, [result, bad]))
        else:
            self._failed[name] = answer.error
            result = f"failed: {answer.error}"
        if answer.error is not None or bad or not err.is_terminal:
            say(f"{name}: {result}; {self._pace()}", err)
        self._show()

    def _keep(self, task: "Task", summaries: "list[Summary]") -> None:
        setting = {path: value_of(text) for path, text in task.setting.items()}
        folders = [str(self._work.folder / below) for below in task.folders]
        lines = [{**s, "setting": setting, "folder": f} for s, f in zip(summaries, folders, strict=True)]
        self._lines[self._name(task)] = lines
        for line in lines if self._as_json else []:
            print(json.dumps(line, allow_nan=False), flush=True)

    def _show(self) -> None:
        running = "".join(f"\nrunning: {escape(name)} {share:.0%}" for name, share in [*self._parts.items()])
        self._bar.update(self._shown, completed=self._so_far(), description=self._pace() + running)

    def _so_far(self) -> float:
        return self._done + sum(list(self._parts.values()))  # a copy: workers report from other threads

    def _pace(self) -> str:
        """Tasks, throughput, time left."""
        text, done = f"{self._done}/{len(self.todo)} tasks", self._so_far()
        if not done:
            return text
        seconds = (time.monotonic() - self._began) / done
        left = timedelta(seconds=round(seconds * (len(self.todo) - done)))
        return f"{text}, {60 / seconds:.3g} a minute, {left} left"
