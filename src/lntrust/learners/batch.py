"""Labelled batches: the schedule that every method shares."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lntrust.core.randomness import Seeds, active_steps, batches, fold
from lntrust.study.settings import TrainingSettings
from lntrust.world.ragged import Ragged

# Batches are drawn for many steps at once, up to about this many examples, to share one sort.
_DRAWN_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Batch:
    """One labelled batch per node. `active` marks the nodes whose turn it is; none: all."""

    examples: Int[Tensor, "n B"]
    labels: Int[Tensor, "n B"]
    active: Bool[Tensor, "n"] | None = None


@dataclass(eq=False)
class Labelled:
    """A node's labelled examples in an endless sequence of shuffles, dealt out round by round."""

    lists: Ragged
    labels: Int[Tensor, "worlds*N"]
    training: TrainingSettings
    seed: int | Seeds
    stage: int
    device: torch.device

    def __post_init__(self) -> None:
        lists, device, seeds = self.lists, self.device, Seeds.of(self.seed, len(self.lists))
        of_a_world = len(self.labels) // len(seeds)
        self._first_label = seeds.world(device)[:, None] * of_a_world  # of the node's world
        self._values = torch.from_numpy(lists.values).to(device)
        self._offsets = torch.from_numpy(lists.offsets[:-1].copy()).to(device)
        self.sizes = torch.from_numpy(lists.lengths.copy()).to(device)
        self._keys = fold(seeds.keys("batches", device), self.stage)
        self._schedule_keys = fold(seeds.roots("schedule", device), self.stage)
        self.steps_taken = torch.zeros(len(lists), dtype=torch.int64, device=device)
        # Stage 3, the final rounds, goes on where Stage 2 has stopped counting.
        rounds = self.training.stage1_rounds if self.stage == 1 else self.training.stage2_rounds
        self._last = rounds * self.training.steps  # of the stage
        self._cache: tuple[int, list[Batch]] = (0, [])
        self.drawn = 0  # batches handed out in the current round

    def round(self, t: int) -> Iterator[Batch]:
        """The batches of round t (0, 1, …) of the stage: `steps` of them, or as the draws fall."""
        self.drawn = 0
        steps = self.training.steps
        if self.training.schedule == "every_node":
            for k in range(t * steps, (t + 1) * steps):
                self.drawn += 1
                yield self._every_node(k)
        else:
            n = len(self._keys) // len(self._schedule_keys)
            turns = [active_steps(key, n, n * steps) for key in fold(self._schedule_keys, t)]
            most = max(map(len, turns))  # a world that has ended waits for the others
            padded = [torch.nn.functional.pad(each, (0, 0, 0, most - len(each))) for each in turns]
            for row in torch.cat(padded, 1):
                self.drawn += 1
                positions = self._positions(self.steps_taken, 1)
                self.steps_taken = self.steps_taken + row
                yield self._batch(positions, row)

    def _every_node(self, step: int) -> Batch:
        start, held = self._cache
        if not start <= step < start + len(held):
            B = self.training.batch
            count = max(1, min(_DRAWN_AT_ONCE // (B * len(self._keys)), self._last - step))
            whole = self._batch(self._positions(torch.full_like(self.steps_taken, step), count), None)
            parts = zip(torch.split(whole.examples, B, 1), torch.split(whole.labels, B, 1), strict=True)
            start, held = self._cache = step, [Batch(examples, labels) for examples, labels in parts]
        return held[step - start]

    def _positions(self, step: Int[Tensor, "n"], steps: int) -> Int[Tensor, "n steps*B"]:
        B = self.training.batch
        return batches(self._keys, self.sizes, step * B, steps * B)

    def _batch(self, positions: Int[Tensor, "n B"], active: Bool[Tensor, "n"] | None) -> Batch:
        examples = self._values[self._offsets[:, None] + positions]
        return Batch(examples, self.labels[self._first_label + examples], active)
