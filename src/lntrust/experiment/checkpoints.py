"""What a run needs to go on after a stop, and what runs share that differ in Stage 2 only.

All draws are functions of counters, so a checkpoint needs no generator state: parameters, momentum, step
counts, the method's state and the ledger are all there is, and what was noted down on the way.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment.divergence import Watch
from lntrust.experiment.store.records import Evaluations, History, evaluation_file, packed, unpacked
from lntrust.learners import Population
from lntrust.methods import Method
from lntrust.methods.base import Observer, Tensors, below, under
from lntrust.network import Network


@dataclass
class Course:
    """How far a stack of runs is, and what it has noted down on the way, of each world."""

    worlds: int
    done: int = 0  # rounds
    seconds: float = 0.0
    state: Any = None  # the method's, from Stage 2 on
    observer: Observer = field(default_factory=Observer)

    def __post_init__(self) -> None:
        self.asked = [0.0] * self.worlds  # neighbours that all nodes ask when they are deployed
        self.history, self.watch = History(self.worlds), Watch(self.worlds)
        self.evaluations: list[Evaluations] = [{} for _ in range(self.worlds)]


def write_checkpoint(
    path: Path, fingerprint: str, course: Course, population: Population, network: Network,
    method: Method[Any], taken: Tensor,
) -> None:  # fmt: skip
    """`taken` are the labelled steps that each node has taken."""
    tensors = under("population/", population.state()) | under("network/", network.state())
    tensors |= under("method/", {} if course.state is None else method.pack(course.state))
    tensors |= under("certificate/", course.observer.state())
    tensors |= course.history.state() | course.watch.state()
    tensors |= {"taken": taken, "asked": torch.tensor(course.asked, dtype=torch.float64)}
    metadata = {"fingerprint": fingerprint, "round": str(course.done), "seconds": f"{course.seconds:.3f}"}
    write_tensors(path, tensors, metadata)


def read_checkpoint(path: Path, fingerprint: str) -> tuple[Tensors, dict[str, str]]:
    """A checkpoint of this run: its tensors, and what is said of them."""
    tensors, metadata = read_tensors(path)
    found = metadata.get("fingerprint")
    if found != fingerprint:
        raise LNTrustError(f"{path}: belongs to another run ({found}, not {fingerprint})")
    return tensors, metadata


def restore(course: Course, tensors: Tensors) -> None:
    """What was noted down until then."""
    course.history.load(tensors)
    if "diverged" in tensors:  # an earlier version's checkpoint does not know
        course.watch.load(tensors["diverged"])
    if "asked" in tensors:
        course.asked = tensors["asked"].tolist()


def observed(tensors: Tensors) -> Tensors:
    """What the certificate has kept; the first version put it into the method's state."""
    return below("certificate/", tensors) or below("method/certificate/", tensors)


def read_evaluations(course: Course, path: Path, folders: Sequence[Path], due: Sequence[int]) -> None:
    """Of all rounds that were evaluated before the checkpoint in `path`."""
    for file in [evaluation_file(folder, number) for folder in folders for number in due]:
        if not file.is_file():  # a fresh start of one of the seeds has taken it away
            raise LNTrustError(f"{file}: is gone; remove {path} to start over")
    for folder, evaluations in zip(folders, course.evaluations, strict=True):
        for number in due:
            stored, _ = read_tensors(evaluation_file(folder, number))
            evaluations[number] = {name: t.numpy() for name, t in stored.items()}


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """What another version wrote, or somebody has tampered with, does not fit this run."""
    try:
        yield
    except (KeyError, ValueError, RuntimeError) as error:
        raise LNTrustError(
            f"{path}: does not fit this run: {type(error).__name__}: {error}; remove it to start over"
        ) from error


# -- Stage 1 once for several runs -------------------------------------------------------------------


def write_stage1(path: Path, course: Course, population: Population, losses: Tensor | None) -> None:
    """What all runs have in common that differ in Stage 2 only."""
    ended = course.history.copy()
    ended.note(losses, [0] * course.worlds)  # nobody speaks in Stage 1
    tensors = under("population/", population.state()) | ended.state()
    tensors |= under("evaluation/", packed(course.evaluations))
    write_tensors(path, tensors, {"seconds": f"{course.seconds:.3f}"})


def read_stage1(path: Path, course: Course, population: Population, folders: Sequence[Path]) -> Tensor | None:
    """Begin where another run's Stage 1 has ended; the losses of its last round.

    The steps are the same, so the bits are, too.
    """
    tensors, metadata = read_tensors(path)
    with fitting(path):
        course.seconds += float(metadata["seconds"])  # it was trained, if not now
        population.load(below("population/", tensors))
        course.evaluations = unpacked(below("evaluation/", tensors), course.worlds)
        course.history.load(tensors)
    for folder, evaluations in zip(folders, course.evaluations, strict=True):
        for number, by_way in evaluations.items():
            own = {way: torch.from_numpy(p) for way, p in by_way.items()}
            write_tensors(evaluation_file(folder, number), own)
    return course.history.drop_last()  # noted again by the run, with what is said when Stage 1 has ended
