"""Methods beside each other: seeds in one stack where that pays, Stage 1 once for all who have the same.

Also what becomes of a stack that was stopped, or that cannot be one.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError, safe_open

from lntrust.core.errors import CannotStackError
from lntrust.core.threads import FEW
from lntrust.experiment.driver import Progress, Runs
from lntrust.experiment.store.changes import kept_and_anew
from lntrust.experiment.store.identity import checkpoint, data_digest, identities, slug
from lntrust.experiment.store.records import evaluated_rounds, evaluation_file
from lntrust.experiment.store.schemas import Identity
from lntrust.learners.views import Views, numbers_in_a_step
from lntrust.study.settings import Study

Summary = dict[str, Any]
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
    **options: Any,
) -> Iterator[list[Summary]]:
    """Every method with every seed: the summaries of a method, as soon as it has them all."""
    kept = folder / f".stage1-{uuid4().hex}"  # its own: a fresh start takes no earlier Stage 1
    shared = kept if len(methods) > 1 else None

    def go(method: str, some: list[int]) -> list[Summary]:
        runs = Runs(study, method, some, views, folder=folder, share_stage1=shared, **options)
        return runs(resume=resume, progress=begin(method, some, runs.rounds))

    try:
        for method in methods:
            stacks = _stacks(study, method, sorted(seeds), views, folder if resume else None, options)
            made = [each for some in stacks for each in stacked_or_alone(partial(go, method), some)]
            yield sorted(made, key=lambda summary: seeds.index(summary["seed"]))
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def finished_before(
    study: Study, methods: Sequence[str], seeds: Sequence[int], views: Views, folder: Path, backend: str,
    certify: bool,
) -> str | None:  # fmt: skip
    """What is kept of earlier runs, and what is made anew and why, in words; none: there were none."""
    made = (views.device.type, data_digest(study, views.dataset), backend, certify)
    every = [of for method in methods for of in identities(study, method, seeds, *made)]
    kept = [of for of in every if (folder / slug(of) / "summary.json").is_file()]
    return kept_and_anew(folder, kept, [of for of in every if of not in kept])


def _stacks(
    study: Study, method: str, seeds: list[int], views: Views, resumed: Path | None, options: dict[str, Any]
) -> list[list[int]]:
    """The seeds that run together.

    On a CPU a stack saves what a call costs beside its work. Where there is much work it only takes memory,
    and a method of the user's may never have been meant for several worlds.
    """
    pays = views.device.type == "cuda" or numbers_in_a_step(study, views, study.graph.nodes) < FEW
    alone = [[seed] for seed in seeds]
    if ":" in method or options.get("certify") or options.get("backend") == "loop" or not pays:
        return alone
    if resumed is None:
        return [seeds]
    runs = identities(study, method, seeds, views.device.type, data_digest(study, views.dataset))
    if goes_on(study, resumed, runs):
        return [seeds]
    # What has ended, or has begun alone, stays alone.
    own = {of["seed"]: (resumed / slug(of) / "summary.json", resumed / checkpoint([of])) for of in runs}
    rest = [seed for seed in seeds if not any(file.is_file() for file in own[seed])]
    return [one for one in alone if one[0] not in rest] + ([rest] if rest else [])


# -- stacks that were stopped, and what cannot run together ---------------------------------------------


def round_of(path: Path) -> int:
    """The round of a checkpoint; what cannot be read is the run's to complain about."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(file.metadata()["round"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return 0


def goes_on(study: Study, folder: Path, of: Sequence[Identity]) -> bool:
    """Whether these runs have a checkpoint of their stack to go on from.

    Not if one of them has been finished or made anew by itself since; what is left of the stack then goes.
    A stack that has trained to its end still has summaries to write, whoever has one.
    """
    path = folder / checkpoint(of)
    if len(of) == 1 or not path.is_file():
        return False
    folders, done, due = [folder / slug(each) for each in of], round_of(path), evaluated_rounds(study)
    kept = all(evaluation_file(each, n).is_file() for each in folders for n in due if n <= done)
    ended = done == study.training.stage1_rounds + study.training.stage2_rounds
    if kept and (ended or not any((each / "summary.json").is_file() for each in folders)):
        return True
    shutil.rmtree(path.parent, ignore_errors=True)
    return False


def stacked_or_alone(
    go: Callable[[list[int]], list[Summary]],
    seeds: list[int],
    notice: Callable[[CannotStackError], None] = lambda _: None,
) -> list[Summary]:
    """The summaries of these seeds from one stack or, where they cannot be stacked, one after the other."""
    try:
        return go(seeds)
    except CannotStackError as error:
        if len(seeds) == 1:
            raise
        notice(error)
        return [summary for seed in seeds for summary in go([seed])]
