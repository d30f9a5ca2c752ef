"""Runs that diverge: noticed in the round it happens, kept as results without scores, and named as such."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from lntrust.core.text import seeds_text
from lntrust.learners import Population


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
