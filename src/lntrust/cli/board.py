"""How far many tasks are: a bar on a terminal, elsewhere a line for each task that ends."""

import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from lntrust.cli.console import Notes, err, say
from lntrust.core.errors import LNTrustError
from lntrust.study.loading import value_of

if TYPE_CHECKING:
    from lntrust.experiment.sweep import Answer, Summary, Task


class Board:
    """Keeps what tasks give, and shows how many are done, which are running and how long the rest takes.

    `name` is what a task is called; no two of them may be called the same.
    """

    def __init__(
        self, tasks: Sequence["Task"], folder: Path, as_json: bool, resume: bool = True,
        name: Callable[["Task"], str] = str,
    ) -> None:  # fmt: skip
        self.tasks, self._folder, self._name = tasks, folder, name
        self._as_json, self._resume = as_json, resume
        self.lines: dict[str, list[Summary]] = {}
        self.failed: dict[str, str] = {}
        self.todo: list[Task] = []
        self._kept: list[Task] = []
        self._notes = Notes()
        self._parts: dict[str, float] = {}  # what is done of tasks under way
        self._done = 0
        self._began = time.monotonic()
        columns = (BarColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=err, disable=not err.is_terminal)
        for task in tasks:
            summaries = task.finished(folder)
            if summaries is None:
                self.todo.append(task)
            else:
                self._kept.append(task)
                self._keep(task, summaries)
        self._shown = self._bar.add_task("", total=len(self.todo))

    def __enter__(self) -> "Board":
        from lntrust.experiment.store import kept_and_anew

        waiting = [each for task in self.todo for each in task.identities]
        kept = [each for task in self._kept for each in task.identities]
        news = kept_and_anew(self._folder, kept, waiting)
        if news and self._resume:
            say(news, err)
        self._bar.start()
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def watch(self, answers: Generator[tuple["Task", "Answer"], None, None]) -> None:
        """Keep and show the answers as they come; whoever gives them ends with this."""
        with closing(answers):
            for task, answer in answers:
                self._ended(task, answer)

    def part(self, task: "Task", share: float) -> None:
        self._parts[self._name(task)] = share
        self._show()

    def check(self) -> None:
        """Fail if a task has failed."""
        if self.failed:
            reasons = [
                f"  {name}: {self.failed[name]}"
                for name in map(self._name, self.tasks)
                if name in self.failed
            ]
            raise LNTrustError("\n".join([f"{len(reasons)} of {len(self.tasks)} tasks failed:", *reasons]))

    def _ended(self, task: "Task", answer: "Answer") -> None:
        from lntrust.experiment.divergence import what_diverged

        self._parts.pop(self._name(task), None)
        self._done += 1
        bad = what_diverged(answer.summaries)
        for text in answer.notices:
            self._notes.say(text)
        if answer.error is None:
            self._keep(task, answer.summaries)
            scores = [summary["test"] for summary in answer.summaries if summary["test"] is not None]
            result = f"test {sum(scores) / len(scores):.3f}" if scores else "" if bad else "done"
            result = "; ".join(filter(None, [result, bad]))
        else:
            self.failed[self._name(task)] = answer.error
            result = f"failed: {answer.error}"
        if answer.error is not None or bad or not err.is_terminal:
            say(f"{self._name(task)}: {result}; {self._pace()}", err)
        self._show()

    def _keep(self, task: "Task", summaries: "list[Summary]") -> None:
        setting = {path: value_of(text) for path, text in task.setting.items()}
        pairs = zip(summaries, task.folders, strict=True)
        self.lines[self._name(task)] = [
            {**summary, "setting": setting, "folder": str(self._folder / below)} for summary, below in pairs
        ]
        for line in self.lines[self._name(task)] if self._as_json else []:
            print(json.dumps(line, allow_nan=False), flush=True)

    def _show(self) -> None:
        running = "".join(f"\nrunning: {escape(name)} {share:.0%}" for name, share in [*self._parts.items()])
        self._bar.update(self._shown, completed=self._so_far(), description=self._pace() + running)

    def _so_far(self) -> float:
        return self._done + sum(list(self._parts.values()))  # a copy: workers report from other threads

    def _pace(self) -> str:
        """Tasks, throughput, time left."""
        done = self._so_far()
        text = f"{self._done}/{len(self.todo)} tasks"
        if not done:
            return text
        seconds = (time.monotonic() - self._began) / done
        left = timedelta(seconds=round(seconds * (len(self.todo) - done)))
        return f"{text}, {60 / seconds:.3g} a minute, {left} left"
