"""What a method needs of a network: as little as a live node can give.

The simulation's `Network` also sends tensors (`Site.sharing`). A live node's only asks and answers; no method
that exchanges predictions can tell which of them it runs on.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.network.questions import Questions, Replies


class AnswerNetwork(Protocol):
    """For methods that exchange predictions and nothing else."""

    @property
    def edges(self) -> Int[Tensor, "E 2"]:
        """(asker, answerer), sorted by asker."""

    @property
    def faulty(self) -> Int[ndarray, "E"]:
        """Replies refused so far, by edge of the query."""

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """What neighbours (all, or those of `edges`) predict; 0 and not sound for who did not answer."""

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        """What every node says itself about examples of its shard. Nothing travels."""

    def frozen_models(self) -> AbstractContextManager[None]:
        """While inside, nobody learns: the models that answer are those after the supervised steps."""
