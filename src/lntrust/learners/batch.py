"""Labelled batches: the schedule that every method shares."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lntrust.randomness import active_steps, batches, fold, stream_key
from lntrust.settings import TrainingSettings
from lntrust.world.ragged import Ragged

# Batches are drawn for many steps at once, up to about this many examples, to share one sort.
_DRAWN_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Batch:
    """One labelled batch per node. `active` marks the nodes whose turn it is; none: all."""

    examples: Int[Tensor, "n B"]
    labels: Int[Tensor, "n B"]
    active: Bool[Tensor, "n"] | None = None


class Labelled:
    """A node's labelled examples in an endless sequence of shuffles, dealt out round by round."""

    def __init__(
        self,
        lists: Ragged,
        labels: Int[Tensor, "N"],
        training: TrainingSettings,
        seed: int,
        stage: int,
        device: torch.device,
    ) -> None:
        nodes = len(lists)
        self.lists = lists
        self._labels = labels
        self._training = training
        self._values = torch.from_numpy(lists.values).to(device)
        self._offsets = torch.from_numpy(lists.offsets[:-1].copy()).to(device)
        self._sizes = torch.from_numpy(lists.lengths.copy()).to(device)
        node = torch.arange(nodes, device=device)
        self._keys = fold(fold(stream_key(seed, "batches", device), node), stage)
        self._schedule_key = fold(stream_key(seed, "schedule", device), stage)
        self.taken = torch.zeros(nodes, dtype=torch.int64, device=device)
        rounds = {1: training.stage1_rounds, 2: training.stage2_rounds}.get(stage)
        self._last = None if rounds is None else rounds * training.steps  # steps of the stage, if known
        self._cache: tuple[int, Tensor] = (0, torch.empty(0))
        self.drawn = 0  # batches handed out in the current round

    def round(self, t: int) -> Iterator[Batch]:
        """The batches of round t (0, 1, …) of the stage: `steps` of them, or as the draws fall."""
        self.drawn = 0
        steps = self._training.steps
        if self._training.schedule == "every_node":
            for k in range(t * steps, (t + 1) * steps):
                self.drawn += 1
                yield self._batch(self._every_node(k), None)
        else:
            active = active_steps(fold(self._schedule_key, t), len(self._keys), len(self._keys) * steps)
            for row in active:
                self.drawn += 1
                positions = self._positions(self.taken, 1)
                self.taken = self.taken + row
                yield self._batch(positions, row)

    def _every_node(self, step: int) -> Int[Tensor, "n B"]:
        start, held = self._cache
        B = self._training.batch
        if not start <= step < start + held.shape[-1] // B:
            count = max(1, _DRAWN_AT_ONCE // (B * len(self._keys)))
            if self._last is not None:
                count = max(1, min(count, self._last - step))
            start = step
            held = self._positions(torch.full_like(self.taken, step), count)
            self._cache = (start, held)
        return held[:, (step - start) * B : (step - start + 1) * B]

    def _positions(self, step: Int[Tensor, "n"], steps: int) -> Int[Tensor, "n steps*B"]:
        B = self._training.batch
        return batches(self._keys, self._sizes, step * B, steps * B)

    def _batch(self, positions: Int[Tensor, "n B"], active: Bool[Tensor, "n"] | None) -> Batch:
        examples = self._values[self._offsets[:, None] + positions]
        return Batch(examples, self._labels[examples], active)
