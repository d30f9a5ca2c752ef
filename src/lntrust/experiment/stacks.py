"""Stacks of seeds: whether those that were stopped can go on together, and what cannot run together."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from lntrust.core.errors import CannotStackError
from lntrust.experiment.store.identity import checkpoint, slug
from lntrust.experiment.store.records import evaluation_file
from lntrust.study.settings import Study


def evaluation_due(study: Study, number: int) -> bool:
    """Whether what nodes answer is stored after this round."""
    stage1, rounds = study.training.stage1_rounds, study.training.stage1_rounds + study.training.stage2_rounds
    return number % study.evaluation.every == 0 or number in (stage1, rounds)


def evaluations_due(study: Study, done: int) -> list[int]:
    """The rounds until then after which it is."""
    return [number for number in range(1, done + 1) if evaluation_due(study, number)]


def round_of(path: Path) -> int:
    """The round of a checkpoint; what cannot be read is the run's to complain about."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(file.metadata()["round"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return 0


def goes_on(study: Study, folder: Path, of: Sequence[dict[str, Any]]) -> bool:
    """Whether these runs have a checkpoint of their stack to go on from.

    Not if one of them has been finished or made anew by itself since; what is left of the stack then goes.
    A stack that has trained to its end still has summaries to write, whoever has one.
    """
    path = folder / checkpoint(of)
    if len(of) == 1 or not path.is_file():
        return False
    folders, done = [folder / slug(each) for each in of], round_of(path)
    due = evaluations_due(study, done)
    kept = all(evaluation_file(each, number).is_file() for each in folders for number in due)
    ended = done == study.training.stage1_rounds + study.training.stage2_rounds
    if kept and (ended or not any((each / "summary.json").is_file() for each in folders)):
        return True
    shutil.rmtree(path.parent, ignore_errors=True)
    return False


def stacked_or_alone(
    go: Callable[[list[int]], list[dict[str, Any]]],
    seeds: list[int],
    notice: Callable[[CannotStackError], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The summaries of these seeds from one stack or, where they cannot be stacked, one after the other."""
    try:
        return go(seeds)
    except CannotStackError as error:
        if len(seeds) == 1:
            raise
        notice(error)
        return [summary for seed in seeds for summary in go([seed])]
