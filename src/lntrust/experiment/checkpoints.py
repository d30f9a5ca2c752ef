"""What a run needs to go on after a stop, and what runs share that differ in Stage 2 only.

All draws are functions of counters, so a checkpoint needs no generator state: parameters, momentum, step
counts, the method's state and the ledger are all there is, and what was noted down on the way.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment.metrics import Predictions
from lntrust.experiment.store.records import evaluation_file
from lntrust.learners import Population
from lntrust.methods.base import Observer, Tensors, below, under


class Course:
    """How far a stack of runs is, and what it has noted down on the way, of each world.

    `folders` are where its evaluations are kept, one for each world, if anywhere.
    """

    def __init__(self, worlds: int, folders: Sequence[Path]) -> None:
        self._worlds, self._folders = worlds, folders
        self.done, self.seconds = 0, 0.0  # rounds, and what they took
        self.state: Any = None  # the method's, from Stage 2 on
        self.observer = Observer()
        self.asked = [0.0] * worlds  # neighbours that all nodes ask when they are deployed
        self._diverged: dict[int, int] = {}  # the round, by world
        self._seen: list[tuple[int, Bool[Tensor, "worlds"]]] = []  # what was looked at, not waited for yet
        self.evaluations: list[dict[int, Predictions]] = [{} for _ in range(worlds)]  # by round
        # By round: each world's mean loss (NaN: not taken), and all its bytes so far.
        self.noted: dict[int, tuple[Float[Tensor, "worlds"], list[int]]] = {}

    def look(self, finite: Bool[Tensor, "n"]) -> None:
        """Whether all numbers of a node are finite in this round: parameters and loss, or predictions.

        The device is only asked for it; `diverged` waits for what was seen.
        """
        self._seen.append((self.done, finite.view(self._worlds, -1).all(1)))

    @property
    def diverged(self) -> dict[int, int]:
        """The first bad round of each world that has one."""
        if self._seen:
            numbers, fine = zip(*self._seen, strict=True)
            for row, world in torch.nonzero(~torch.stack(fine)).tolist():  # waits once for all
                self._diverged.setdefault(world, numbers[row])
            self._seen.clear()
        return self._diverged

    def latest_loss(self) -> float | None:
        """Over all worlds."""
        means = (float(losses.nanmean()) for losses, _ in reversed(self.noted.values()))
        return next((mean for mean in means if not math.isnan(mean)), None)

    def history(self, world: int) -> list[tuple[float, int]]:
        """Loss and bytes of every round."""
        return [(float(losses[world]), totals[world]) for losses, totals in self.noted.values()]

    def save(self, path: Path, fingerprint: str, parts: Tensors) -> None:
        """Write a checkpoint: what was noted down, and what the parts of a run need to go on."""
        parts |= under("certificate/", self.observer.state()) | self.rounds()
        parts["asked"] = torch.tensor(self.asked, dtype=torch.float64)
        # 0 is a world without a bad round: no checkpoint is made before the first round.
        parts["diverged"] = torch.tensor([self.diverged.get(world, 0) for world in range(self._worlds)])
        said = {"fingerprint": fingerprint, "round": str(self.done), "seconds": f"{self.seconds:.3f}"}
        write_tensors(path, parts, said)

    def rounds(self) -> dict[str, Tensor]:
        losses, totals = zip(*self.noted.values(), strict=True)
        loss = torch.stack([each.double().cpu() for each in losses])
        return {"history/loss": loss, "history/bytes": torch.tensor(totals)}

    def load_rounds(self, tensors: Tensors) -> None:
        noted = zip(tensors["history/loss"], tensors["history/bytes"].tolist(), strict=True)
        self.noted = dict(enumerate(noted, 1))
        self.done = len(self.noted)

    def keep_evaluation(self, world: int, number: int, predicted: Predictions) -> None:
        self.evaluations[world][number] = predicted
        if self._folders:
            tensors = {way: torch.from_numpy(classes) for way, classes in predicted.items()}
            write_tensors(evaluation_file(self._folders[world], number), tensors)

    def load(self, path: Path, tensors: Tensors, metadata: dict[str, str], evaluated: Sequence[int]) -> None:
        """Go on from a checkpoint, with the evaluations of these rounds as far as they lie behind it."""
        self.seconds = float(metadata["seconds"])
        self.load_rounds(tensors)
        if "diverged" in tensors:  # an earlier version's checkpoint does not know
            rounds = enumerate(tensors["diverged"].tolist())
            self._diverged = {world: number for world, number in rounds if number}
        if "asked" in tensors:
            self.asked = tensors["asked"].tolist()
        for folder, evaluations in zip(self._folders, self.evaluations, strict=True):
            for number in [number for number in evaluated if number <= self.done]:
                file = evaluation_file(folder, number)
                if not file.is_file():  # a fresh start of one of the seeds has taken it away
                    raise LNTrustError(f"{file}: is gone; remove {path} to start over")
                evaluations[number] = {way: classes.numpy() for way, classes in read_tensors(file)[0].items()}


@contextmanager
def opened(path: Path, fingerprint: str | None) -> Iterator[tuple[Tensors, dict[str, str]]]:
    """What a file has kept of a run, and what is said of it.

    What another version wrote, or somebody has tampered with, does not fit, whatever goes wrong with it.
    """
    tensors, metadata = read_tensors(path)
    found = metadata.get("fingerprint")
    if found != fingerprint:
        raise LNTrustError(f"{path}: belongs to another run ({found}, not {fingerprint})")
    try:
        yield tensors, metadata
    except (KeyError, ValueError, RuntimeError) as error:
        raise LNTrustError(
            f"{path}: does not fit this run: {type(error).__name__}: {error}; remove it to start over"
        ) from error


# -- Stage 1 once for several runs -------------------------------------------------------------------


def write_stage1(path: Path, course: Course, population: Population) -> None:
    """What all runs have in common that differ in Stage 2 only."""
    tensors = under("population/", population.state()) | course.rounds()
    for world, evaluations in enumerate(course.evaluations):
        for done, ways in evaluations.items():
            named = {way: torch.from_numpy(predicted) for way, predicted in ways.items()}
            tensors |= under(f"evaluation/{world}/{done}/", named)
    write_tensors(path, tensors, {"seconds": f"{course.seconds:.3f}"})


def read_stage1(path: Path, course: Course, population: Population) -> None:
    """Begin where another run's Stage 1 has ended: the steps are the same, so the bits are, too."""
    with opened(path, fingerprint=None) as (tensors, metadata):
        course.seconds += float(metadata["seconds"])  # it was trained, if not now
        population.load(below("population/", tensors))
        course.load_rounds(tensors)
        found: dict[tuple[str, str], Predictions] = defaultdict(dict)
        for name, predicted in below("evaluation/", tensors).items():
            world, done, way = name.split("/", 2)  # a variant's name has a slash of its own
            found[world, done][way] = predicted.numpy()
        for (world, done), ways in found.items():
            course.keep_evaluation(int(world), int(done), ways)
