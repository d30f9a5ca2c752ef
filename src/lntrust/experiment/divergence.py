"""Runs that diverge: noticed in the round it happens, kept as results without scores, and named as such."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lntrust.core.text import seeds_text
from lntrust.learners import Population


class Watch:
    """In which round each world's numbers first were not finite any more.

    Looking is only asked of the device; `diverged` waits for what was seen.
    """

    def __init__(self, worlds: int) -> None:
        self._worlds = worlds
        self._rounds: dict[int, int] = {}  # by world
        self._seen: list[tuple[int, Bool[Tensor, "worlds"]]] = []  # not waited for yet

    def look(self, number: int, finite: Bool[Tensor, "n"]) -> None:
        """Whether all numbers of a node were finite in a round: parameters and loss, or predictions."""
        self._seen.append((number, finite.view(self._worlds, -1).all(1)))

    @property
    def diverged(self) -> dict[int, int]:
        """The first bad round of each world that has one."""
        if self._seen:
            numbers, fine = zip(*self._seen, strict=True)
            for row, world in torch.nonzero(~torch.stack(fine)).tolist():  # waits once for all
                self._rounds.setdefault(world, numbers[row])
            self._seen.clear()
        return self._rounds

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint: 0 is a world without a bad round. None is made before the first round."""
        return {"diverged": torch.tensor([self.diverged.get(world, 0) for world in range(self._worlds)])}

    def load(self, rounds: Int[Tensor, "worlds"]) -> None:
        self._rounds = {world: number for world, number in enumerate(rounds.tolist()) if number}
        self._seen.clear()


def sound(population: Population) -> Bool[Tensor, "n"]:
    """Nodes whose parameters are all finite, and whose loss is. A loss that is NaN may be one not taken."""
    fine = torch.ones(population.n, dtype=torch.bool, device=population.device)
    for stack in population.torch_stacks:
        for parameter in stack.params.values():
            if parameter.numel():
                rows = parameter.reshape(len(stack.nodes), -1)
                # NaN is its own maximum. These two are twenty times as fast as `aminmax` or `isfinite`.
                fine[stack.nodes] &= rows.amax(1).isfinite() & rows.amin(1).isfinite()
    loss = population.last_loss.get("supervised")
    return fine if loss is None else fine & ~loss.isinf()


def what_diverged(summaries: Sequence[dict[str, Any]]) -> str:
    """Of the runs of one method with several seeds, in words; nothing where all of them ended well.

    >>> what_diverged([{"seed": 0}, {"seed": 1, "diverged": 7}, {"seed": 2, "diverged": None}])
    '2 of 3 seeds; seed 1 diverged at round 7'
    >>> what_diverged([{"seed": 4, "diverged": 7}])
    'diverged at round 7'
    >>> what_diverged([{"seed": 4, "diverged": 0}])  # before all training
    'diverged at round 0'
    """
    seeds: dict[int, list[int]] = defaultdict(list)  # by round
    for each in summaries:
        if each.get("diverged") is not None:
            seeds[each["diverged"]].append(each["seed"])
    if seeds and len(summaries) == 1:
        return f"diverged at round {min(seeds)}"
    good = len(summaries) - sum(map(len, seeds.values()))
    words = [f"{good} of {len(summaries)} seeds"] if seeds and good else []
    for number, some in seeds.items():
        words.append(f"{seeds_text(some)} diverged at round {number}")
    return "; ".join(words)
