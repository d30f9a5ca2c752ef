"""Methods beside each other: seeds in one stack where that pays, Stage 1 once for all who have the same."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import torch

from lntrust.core.threads import FEW
from lntrust.experiment.driver import Progress
from lntrust.experiment.store.changes import kept_and_anew
from lntrust.experiment.store.identity import checkpoint, data_digest, identities, slug
from lntrust.experiment.sweep.attempts import Superseded, carry_out, goes_on
from lntrust.experiment.sweep.local import run_tasks
from lntrust.experiment.sweep.plan import Answer, Summary, Task, Work, forget
from lntrust.learners.inference import Backend
from lntrust.learners.views import Views, numbers_in_a_step
from lntrust.study.settings import Study

_WORTH_A_WORKER = 500  # rounds, which take longer than a worker takes to start
Begin = Callable[[str, Sequence[int], int], Progress]  # of a method, seeds, and how many rounds they have


def compared(
    study: Study,
    methods: Sequence[str],
    seeds: Sequence[int],
    views: Views,
    folder: Path,
    *,
    resume: bool = False,
    begin: Begin = lambda *_: lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
    backend: Backend = "batched",
    certify: bool = False,
    workers: int | None = None,
    data: Path | None = None,
) -> Iterator[list[Summary]]:
    """Every method with every seed: the summaries of a method, as soon as it has them all.

    So many `workers`, which find the dataset in `data`, share them; none: as many as pay, 1 for users' code.
    """
    rounds, gpu = study.training.rounds, views.device.type == "cuda"
    little = not gpu and numbers_in_a_step(study, views, study.graph.nodes) < FEW  # for one core in a step
    resumed, stack = folder if resume else None, (gpu or little) and backend == "batched" and not certify
    made = {"study": study, "device": views.device.type, "backend": backend, "certify": certify}
    tasks = [
        Task(method=method, seeds=some, setting={}, share_stage1=len(methods) > 1, **made).on(views.dataset)
        for method in methods for some in _stacks(study, method, sorted(seeds), views, resumed, stack)
    ]  # fmt: skip
    if not resume:
        forget(tasks, folder)
    todo = [task for task in tasks if task.finished(folder) is None]
    if resume:
        anew = [of for task in todo for of in task.identities]
        kept = [of for task in tasks for of in task.identities if of not in anew]
        notice(kept_and_anew(folder, kept, anew) or "")
    moves = {str(task): begin(task.method, task.seeds, rounds) for task in tasks}

    def watch(task: Task, part: float) -> None:
        moves[str(task)](int(part * rounds), rounds, None)

    def ended(answers: Iterator[tuple[Task, Answer]]) -> Iterator[str]:
        """Methods in their order, as soon as workers have ended all of their tasks."""
        due, waiting = [task.method for task in todo], list(methods)
        for task, answer in answers:
            if answer.superseded:
                raise Superseded(answer.error)
            for text in [] if answer.error else answer.notices:  # what has failed says them again here
                notice(text)
            due.remove(task.method)
            while waiting and waiting[0] not in due:
                yield waiting.pop(0)

    work = Work(folder=folder.resolve(), here=Path.cwd(), data=data and data.resolve())
    names = [*methods, *(learner.kind for learner in study.population.learners)]
    pays = little and len(todo) * rounds >= _WORTH_A_WORKER and not any(":" in name for name in names)
    count = workers or (min(torch.get_num_threads(), len(todo)) if pays else 1)
    with closing(run_tasks(todo if count > 1 else [], work, count, watch)) as answers:
        for method in ended(answers) if count > 1 and todo else methods:
            found: list[Summary] = []
            for task in tasks:  # what a worker could not do is tried again here: an error has its traceback
                if task.method == method:
                    found += carry_out(task, views, folder, progress=moves[str(task)], notice=notice)
                    watch(task, 1.0)
            yield sorted(found, key=lambda summary: seeds.index(summary["seed"]))


def _stacks(
    study: Study, method: str, seeds: list[int], views: Views, resumed: Path | None, pays: bool
) -> list[list[int]]:
    """The seeds that run together.

    On a CPU a stack saves what a call costs beside its work. Where there is much work it only takes memory,
    and a method of the user's may never have been meant for several worlds.
    """
    each = [[seed] for seed in seeds]
    if ":" in method or not pays:
        return each
    if resumed is None:
        return [seeds]
    runs = identities(study, method, seeds, views.device.type, data_digest(study, views.dataset))
    if goes_on(study, resumed, runs):
        return [seeds]
    # What has ended, or has begun alone, stays alone.
    own = {of["seed"]: (resumed / slug(of) / "summary.json", resumed / checkpoint([of])) for of in runs}
    rest = [seed for seed in seeds if not any(file.is_file() for file in own[seed])]
    return [one for one in each if one[0] not in rest] + ([rest] if rest else [])
