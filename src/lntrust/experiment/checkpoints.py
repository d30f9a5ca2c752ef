"""What a run needs to go on after a stop, and what runs share that differ in Stage 2 only.

All draws are functions of counters, so a checkpoint needs no generator state: parameters, momentum, step
counts, the method's state and the ledger are all there is, and what was noted down on the way.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment.divergence import Watch
from lntrust.experiment.metrics import Predictions
from lntrust.learners import Population
from lntrust.methods.base import Observer, Tensors, below, under


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
        self.watch = Watch(self.worlds)
        self.evaluations: list[dict[int, Predictions]] = [{} for _ in range(self.worlds)]  # by round
        # By round: each world's mean loss (NaN: not taken), and all its bytes so far.
        self.noted: dict[int, tuple[Float[Tensor, "worlds"], list[int]]] = {}

    def latest_loss(self) -> float | None:
        """Over all worlds."""
        means = (float(losses.nanmean()) for losses, _ in reversed(self.noted.values()))
        return next((mean for mean in means if not math.isnan(mean)), None)

    def history(self, world: int) -> list[tuple[float, int]]:
        """Loss and bytes of every round."""
        return [(float(losses[world]), totals[world]) for losses, totals in self.noted.values()]

    def tensors(self) -> Tensors:
        """What was noted down, for a checkpoint."""
        asked = {"asked": torch.tensor(self.asked, dtype=torch.float64)}
        seen = under("certificate/", self.observer.state()) | self.watch.state()
        return seen | self.rounds() | asked

    def rounds(self) -> dict[str, Tensor]:
        losses, totals = zip(*self.noted.values(), strict=True)
        loss = torch.stack([each.double().cpu() for each in losses])
        return {"history/loss": loss, "history/bytes": torch.tensor(totals)}

    def load_rounds(self, tensors: Tensors) -> None:
        noted = zip(tensors["history/loss"], tensors["history/bytes"].tolist(), strict=True)
        self.noted = dict(enumerate(noted, 1))

    def load(self, tensors: Tensors) -> None:
        self.load_rounds(tensors)
        if "diverged" in tensors:  # an earlier version's checkpoint does not know
            self.watch.load(tensors["diverged"])
        if "asked" in tensors:
            self.asked = tensors["asked"].tolist()


def observed(tensors: Tensors) -> Tensors:
    """What the certificate has kept; the first version put it into the method's state."""
    return below("certificate/", tensors) or below("method/certificate/", tensors)


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
        for name, predicted in below("evaluation/", tensors).items():
            world, done, way = name.split("/", 2)  # a variant's name has a slash of its own
            course.evaluations[int(world)].setdefault(int(done), {})[way] = predicted.numpy()
