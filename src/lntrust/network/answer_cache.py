"""All models' answers on a set of examples, for questions about much of it: one wide product."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.learners import Population
from lntrust.learners.population import Public
from lntrust.network.questions import Questions, Route

# Above this share of all (model, example) pairs, computing all of them is cheaper than those that are asked.
WIDE = 0.06


class AnswerCache:
    """Examples that nodes are asked about again and again: of each world a set."""

    def __init__(
        self, population: Population, examples: Sequence[Int[ndarray, "U"]], N: int, wide: float = WIDE
    ) -> None:
        self._population, self._wide = population, wide
        self.size = max(map(len, examples))
        ids = np.zeros((len(examples), self.size), np.int64)
        place = np.full((len(examples), N), -1)
        for s, some in enumerate(examples):
            ids[s, : len(some)] = some
            place[s, some] = np.arange(len(some))
        self._ids = torch.from_numpy(ids).to(population.device)
        self._place = torch.from_numpy(place).to(population.device)
        self._public: Public | None = None  # how the learners see them, once somebody has asked
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
        if self._kept is None or self._public is None:
            return population.predict_own(ids)
        node = torch.arange(population.n, device=ids.device)[:, None]
        place = self._place[population.seeds.world(ids.device)[:, None], ids]
        _assert_known(place, "shard")
        return population.predict_public(self._public, self._kept, node, place)

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
        self._public = self._public or population.bring(self._ids)
        logits = self._kept if self._kept is not None else population.public_logits(self._public)
        if self._keeps:
            self._kept = logits
        return population.predict_public(self._public, logits, nodes, places).flatten(0, -2)


def _assert_known(place: Int[Tensor, "*s"], source: str) -> None:
    """Refuse examples that are not in the cache; a GPU refuses them when it gets there."""
    known = (place >= 0).all()
    if place.is_cuda:
        torch._assert_async(known)
    elif not bool(known):
        raise LNTrustError(f"a question of source {source!r} is about examples of another")
