"""All models' answers on a set of examples, for questions about much of it: one wide product."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.losses import softmax
from lntrust.learners import Population
from lntrust.network.questions import Questions, Route

# Above this share of all (model, example) pairs, computing all of them is cheaper than those that are asked.
WIDE = 0.06


class AnswerCache:
    """Examples that nodes are asked about again and again: of each world a set."""

    def __init__(self, population: Population, examples: Sequence[Int[ndarray, "U"]], wide: float) -> None:
        self._population, self._wide = population, wide
        self.size = max(map(len, examples))
        ids = np.zeros((len(examples), self.size), np.int64)
        place = np.full((len(examples), len(population.labels) // len(examples)), -1)
        for s, some in enumerate(examples):
            ids[s, : len(some)] = some
            place[s, some] = np.arange(len(some))
        self._ids = torch.from_numpy(ids).to(population.device)
        self._place = torch.from_numpy(place).to(population.device)
        self._kept: Tensor | None = None
        self._keeps = False

    def pays(self, route: Route) -> bool:
        """Whether so much is asked that all answers are cheaper than the asked ones."""
        return self.size > 0 and route.rows >= self._wide * self._population.n * self.size

    def keep(self, whether: bool) -> None:
        """While nobody learns, the answers may be kept."""
        self._keeps, self._kept = whether, None

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        """What every node says itself about examples of the cache; read off it where they are kept."""
        population = self._population
        if self._kept is None:
            return population.predict_own(ids)
        place = self._place[population.seeds.world(ids.device)[:, None], ids]
        _assert_known(place, "shard")
        return self._said(torch.arange(population.n, device=ids.device)[:, None], place)

    def answers(self, questions: Questions, route: Route) -> Float[Tensor, "P C"]:
        population, ids = self._population, questions.ids
        world = population.seeds.world(ids.device)
        if route.each is not None:
            place = self._place[world[:, None], ids.view(population.n, route.each)]
            places, nodes = place[route.asker], route.answerer[:, None]
        else:
            owner = torch.repeat_interleave(world, questions.offsets.diff(), output_size=len(ids))
            place = self._place[owner, ids]
            places, nodes = place[route.question], route.answerer[route.of_edge]
        _assert_known(place, questions.source)
        return self._said(nodes, places).flatten(0, -2)

    @cached_property
    def _inputs(self) -> list[list[Float[Tensor, "U *s"]]]:
        """How they look, by stack and world; nothing where estimators answer, too, who have no logits."""
        stacks = self._population.torch_stacks
        if len(stacks) < len(self._population.stacks):
            return []
        return [[stack.view.index_select(0, ids) for ids in self._ids] for stack in stacks]

    @cached_property
    def _first(self) -> Int[Tensor, "n"]:
        """Where each node's answers begin: world after world, example after example, stack after stack."""
        seeds = self._population.seeds
        order = torch.cat([stack.nodes for stack in self._population.torch_stacks])
        world, n = seeds.world(order.device), seeds.n
        place = torch.argsort(order[torch.argsort(world[order], stable=True)]) % n
        return world * self.size * n + place

    @torch.no_grad()
    def _table(self) -> Tensor:
        """What all nodes say about all examples of their world: logits, or of estimators probabilities."""
        population, n = self._population, self._population.seeds.n
        if not self._inputs:
            return population.predict_all(self._ids)
        shape = (*self._ids.shape, n, population.classes)
        table = torch.empty(shape, device=population.device, dtype=population.dtype)
        first = 0
        for stack, x in zip(population.torch_stacks, self._inputs, strict=True):
            last = first + len(stack.nodes) // len(table)  # every world has as many nodes of a kind
            stack.logits_into([part[:, first:last] for part in table], x)
            first = last
        return table

    def _said(self, node: Int[Tensor, "*#s"], place: Int[Tensor, "*s"]) -> Float[Tensor, "*s C"]:
        """Class probabilities of nodes on the examples at these places."""
        table = self._table() if self._kept is None else self._kept
        if self._keeps:
            self._kept = table
        if not self._inputs:
            return table[node, place]
        row = self._first[node] + place * self._population.seeds.n
        asked = table.view(-1, self._population.classes).index_select(0, row.flatten())
        return softmax(asked).view(*row.shape, self._population.classes)


def _assert_known(place: Int[Tensor, "*s"], source: str) -> None:
    """Refuse examples that are not in the cache; a GPU refuses them when it gets there."""
    known = (place >= 0).all()
    if place.is_cuda:
        torch._assert_async(known)
    elif not bool(known):
        raise LNTrustError(f"a question of source {source!r} is about examples of another")
