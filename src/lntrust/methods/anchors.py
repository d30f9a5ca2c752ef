"""Anchors: a few synthetic examples per class that stand for a node's own data (distribution matching).

Zhao & Bilen's distribution matching on frozen features: for random embeddings f_R(x) = ReLU(xR),
R ~ N(0, 1/D) drawn afresh at every step, the anchors S_c of class c descend

    Σ_c ‖ mean_{x∈D_c} f_R(x) − mean_{s∈S_c} f_R(s) ‖²

They start as noise with the mean and the spread of the node's inputs, so no example is ever sent.
"""

import hashlib
import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.randomness import Seeds, fold, generator, stream_key, uniform
from lntrust.core.segments import segment_mean
from lntrust.learners.training import Stack
from lntrust.world import Ragged

# The anchors made last: trials of a search differ in what they do with them, not in how they are made.
_KEPT = 4
_MADE: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}


@dataclass(frozen=True)
class Recipe:
    """How anchors are made."""

    per_class: int
    steps: int
    lr: float
    momentum: float
    width: int
    examples: int  # real ones per class at most


def condense(
    stack: Stack, labelled: Ragged, labels: Int[Tensor, "worlds*N"], recipe: Recipe, seed: int | Seeds
) -> tuple[Float[Tensor, "k C A D"], Bool[Tensor, "k C"]]:
    """Anchors of every node of a stack, and for which classes it has any: those it has examples of."""
    seeds = Seeds.of(seed, len(labelled))
    key = _fingerprint(stack, labelled, labels, recipe, seeds)
    if key not in _MADE:
        nodes = stack.nodes.tolist()
        together = [[i] for i in nodes] if stack.looped else _by_world(nodes, seeds)
        parts = [_condense(stack, some, labelled, labels, recipe, seeds) for some in together]
        while len(_MADE) >= _KEPT:
            del _MADE[next(iter(_MADE))]
        made = torch.cat([anchors for anchors, _ in parts]), torch.cat([has for _, has in parts])
        _MADE[key] = made[0].cpu(), made[1].cpu()
    anchors, has = _MADE[key]
    return anchors.to(stack.view.device, copy=True), has.to(stack.view.device, copy=True)


def _by_world(nodes: list[int], seeds: Seeds) -> list[list[int]]:
    """The nodes of each world, which share their random embeddings."""
    return [list(some) for _, some in groupby(nodes, lambda i: i // seeds.n)]


def _fingerprint(
    stack: Stack, labelled: Ragged, labels: Int[Tensor, "worlds*N"], recipe: Recipe, seeds: Seeds
) -> tuple[object, ...]:
    """All that anchors are a function of, in few words."""
    lists = hashlib.sha256(labelled.values.tobytes() + labelled.offsets.tobytes())
    lists.update(labels.cpu().numpy().tobytes())
    view = stack.view
    inputs = (tuple(view.shape), view.dtype, str(view.device), float(view[:: max(1, len(view) // 64)].sum()))
    return lists.hexdigest(), tuple(stack.nodes.tolist()), inputs, stack.looped, recipe, seeds


def _condense(
    stack: Stack,
    nodes: list[int],
    labelled: Ragged,
    labels: Int[Tensor, "worlds*N"],
    recipe: Recipe,
    seeds: Seeds,
) -> tuple[Float[Tensor, "k C A D"], Bool[Tensor, "k C"]]:
    """Of some nodes of one world."""
    world = nodes[0] // seeds.n
    seed = seeds.seeds[world]
    known = labels.cpu().numpy().reshape(len(seeds), -1)[world]
    C, view = stack.classes, stack.view.flatten(1)
    lists, noise = [], []
    root = stream_key(seed, "anchors", view.device)
    for i in nodes:
        number = i % seeds.n
        own = generator(seed, "anchors", number).permutation(labelled[i])
        lists += [own[known[own] == c][: recipe.examples] for c in range(C)]
        x = view[torch.from_numpy(labelled[i]).to(view.device)]
        spread = x.std(0, unbiased=False)
        drawn = normal(fold(fold(root, 0), number), C * recipe.per_class * x.shape[1]).to(x.dtype)
        noise.append(x.mean(0) + spread * drawn.view(C, recipe.per_class, -1))
    real = Ragged.of(lists)
    has = torch.from_numpy(real.lengths > 0).to(view.device)
    offsets = torch.from_numpy(real.offsets).to(view.device)
    x = view[torch.from_numpy(real.values).to(view.device)]
    anchors = torch.cat(noise)  # [k·C, A, D], class after class
    velocity = torch.zeros_like(anchors)
    D = x.shape[1]
    for step in range(recipe.steps):
        R = normal(fold(fold(root, 1), step), D * recipe.width).to(x.dtype).view(D, -1) / math.sqrt(D)
        target = segment_mean((x @ R).relu_(), offsets)
        z = (anchors @ R).relu_()
        slope = 2.0 / recipe.per_class * (z.mean(1) - target) * has[:, None]
        gradient = (slope[:, None] * (z > 0)) @ R.T
        velocity.mul_(recipe.momentum).add_(gradient)
        anchors.sub_(velocity, alpha=recipe.lr)
    return anchors.view(len(nodes), C, recipe.per_class, D), has.view(len(nodes), C)


def normal(key: Int[Tensor, ""], count: int) -> Float[Tensor, "count"]:
    """Standard normal numbers from a named stream (Box–Muller)."""
    half = (count + 1) // 2
    u = uniform(key, 2 * half)
    radius = torch.sqrt(-2.0 * torch.log1p(-u[:half]))
    angle = 2.0 * np.pi * u[half:]
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]
