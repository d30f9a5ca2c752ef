"""Seeds in one stack: what becomes of one that was stopped, or that cannot be one."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from lntrust.core.errors import CannotStackError
from lntrust.experiment.store.identity import checkpoint, slug
from lntrust.experiment.store.records import evaluated_rounds, evaluation_file
from lntrust.experiment.store.schemas import Identity
from lntrust.study.settings import Study

Summary = dict[str, Any]


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
    ended = done == study.training.rounds
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
