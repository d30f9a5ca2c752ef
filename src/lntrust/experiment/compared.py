"""Methods beside each other: seeds in one stack where that pays, Stage 1 once for all who have the same."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from lntrust.core.errors import CannotStackError
from lntrust.core.threads import FEW
from lntrust.experiment.driver import Progress, Runs
from lntrust.experiment.stacks import goes_on
from lntrust.experiment.store.changes import changes, revisions, told
from lntrust.experiment.store.identity import checkpoint, content_of, data_digest, identity, slug
from lntrust.learners.views import Views, numbers_in_a_step
from lntrust.methods import find_method
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

    def go(method: str, some: Sequence[int]) -> dict[int, Summary]:
        shared = kept if len(methods) > 1 else False
        runs = Runs(study, method, some, views, folder=folder, share_stage1=shared, **options)
        made = runs(resume=resume, progress=begin(method, some, runs.rounds))
        return dict(zip(some, made, strict=True))

    try:
        for method in methods:
            found: dict[int, Summary] = {}
            for some in _stacks(study, method, sorted(seeds), views, folder if resume else None, options):
                try:
                    found |= go(method, some)
                except CannotStackError:
                    if len(some) == 1:
                        raise
                    for seed in some:
                        found |= go(method, [seed])
            yield [found[seed] for seed in seeds]
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def finished_before(
    study: Study, methods: Sequence[str], seeds: Sequence[int], views: Views, folder: Path, backend: str,
    certify: bool,
) -> str | None:  # fmt: skip
    """What is kept of earlier runs, and what is made anew and why, in words; none: there were none."""
    every = [of for method in methods for of in _identities(study, method, seeds, views, backend, certify)]
    kept = [of for of in every if (folder / slug(of) / "summary.json").is_file()]
    waiting = [of for of in every if of not in kept]
    return told(revisions(folder, kept), changes(folder, waiting))


def _identities(
    study: Study, name: str, seeds: Sequence[int], views: Views, backend: str, certify: bool = False
) -> list[dict[str, Any]]:
    method = find_method(name, study)
    method.certify = certify
    content = content_of(study, name, data_digest(study, views.dataset))
    return [identity(study, name, method, seed, views.device.type, backend, content) for seed in seeds]


def _stacks(
    study: Study, method: str, seeds: list[int], views: Views, resumed: Path | None, options: dict[str, Any]
) -> list[list[int]]:
    """The seeds that run together.

    On a CPU a stack saves what a call costs beside its work. Where there is much work it only takes memory,
    and a method of the user's may never have been meant for several worlds.
    """
    alone = [[seed] for seed in seeds]
    backend = options.get("backend", "batched")
    pays = views.device.type == "cuda" or numbers_in_a_step(study, views, study.graph.nodes) < FEW
    if ":" in method or options.get("certify") or backend == "loop" or not pays:
        return alone
    if resumed is None:
        return [seeds]
    each = {of["seed"]: of for of in _identities(study, method, seeds, views, backend)}
    if goes_on(study, resumed, [*each.values()]):
        return [seeds]
    # Who has ended, or has begun alone, stays alone.
    own = {seed: (slug(of) / "summary.json", checkpoint([of])) for seed, of in each.items()}
    rest = [seed for seed in seeds if not any((resumed / file).is_file() for file in own[seed])]
    return [one for one in alone if one[0] not in rest] + ([rest] if rest else [])
