"""What a method needs of a network: as little as a live node can give, and what sharing parameters takes.

The simulation's `Network` is both. A live node's network only asks and answers. Both stand on their own; no
method can tell which of them it runs on.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int, Shaped
from numpy import ndarray
from torch import Tensor

from lntrust.network.network import Sent
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


@runtime_checkable
class SharingNetwork(AnswerNetwork, Protocol):
    """For methods that exchange tensors, too: parameters, anchors, logits that they have made themselves."""

    def send(
        self, edges: Int[Tensor, "q"], tensors: Mapping[str, Shaped[Tensor, "n *s"]], kind: Sent, phase: str
    ) -> dict[str, Shaped[Tensor, "q *s"]]:
        """Each edge's first node sends its rows of these tensors to the second, who gets a copy."""

    def average(
        self,
        edges: Int[Tensor, "q"],
        weights: Float[Tensor, "q"],
        parameters: Float[Tensor, "n P"],
        phase: str,
        **beside: Shaped[Tensor, "n *s"],
    ) -> Float[Tensor, "n P"]:
        """Each edge's first node sends its parameters to the second, who adds up weight · parameters."""

    def charge(
        self, edges: Int[Tensor, "q"], tensors: Mapping[str, Shaped[Tensor, "q *s"]], kind: Sent, phase: str
    ) -> None:
        """Book tensors that were made for each edge apart, row k for edges[k]."""

    def uncharged(self) -> AbstractContextManager[None]:
        """While inside, nothing is booked: no deployed system would ask, or it is booked elsewhere."""
