"""What nodes ask each other about, how questions are laid out, and what comes back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from lntrust.world import Ragged

# Where the examples of a question come from decides how a query may name them. What everybody is known to
# have, the pool, goes by id; a shard, drawn from it, may go by id if the study says that neighbours have the
# pool too; the others are private and travel as inputs.
Source = Literal["pool", "shard", "validation", "batch", "deployment"]


@dataclass(frozen=True)
class Questions:
    """What each node asks about: node i asks `ids[offsets[i]:offsets[i+1]]` of every neighbour."""

    ids: Int[Tensor, "T"]
    offsets: Int[Tensor, "n+1"]
    source: Source
    counts: Int[ndarray, "n"]  # how many each node asks about
    # How questions that are asked again, of all neighbours, are laid out: found once.
    route: list["Route"] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(cls, ids: Int[Tensor, "n B"], source: Source) -> "Questions":
        """The same number of examples from every node."""
        n, B = ids.shape
        return cls(ids.flatten(), torch.arange(n + 1, device=ids.device) * B, source, np.full(n, B))

    @classmethod
    def ragged(cls, lists: Ragged, source: Source, device: torch.device) -> "Questions":
        values, offsets = torch.from_numpy(lists.values), torch.from_numpy(lists.offsets)
        return cls(values.to(device), offsets.to(device), source, lists.lengths)

    @property
    def each(self) -> int | None:
        """How many every node asks about, if all ask about equally many."""
        alike = len(self.counts) > 0 and bool((self.counts == self.counts[0]).all())
        return int(self.counts[0]) if alike else None


class Route:
    """Whom to ask what, edge after edge. Nothing waits for a GPU where all nodes ask equally much."""

    def __init__(
        self, questions: Questions, edges: Int[Tensor, "E 2"], some: Int[Tensor, "q"] | None
    ) -> None:
        self.edge = torch.arange(len(edges), device=edges.device) if some is None else some
        self.asker, self.answerer = edges[self.edge].unbind(1)
        self.each = questions.each
        self._first = questions.offsets[:-1]  # of each node's questions
        if self.each is not None:
            self.counts = np.full(len(self.edge), self.each)
        else:
            self.counts = questions.counts[self.asker.cpu().numpy()]
        self.rows = int(self.counts.sum())
        # How the answers are computed, once the network has decided it.
        self.answers: Callable[[Questions, Route], Float[Tensor, "P C"]] | None = None

    @cached_property
    def offsets(self) -> Int[Tensor, "q+1"]:
        """The rows of edge[k] are offsets[k] to offsets[k+1]."""
        if self.each is not None:
            return torch.arange(len(self.edge) + 1, device=self.edge.device) * self.each
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return torch.from_numpy(ends).to(self.edge.device)

    @cached_property
    def of_edge(self) -> Int[Tensor, "P"]:
        """The edge that each row belongs to, as a number below q."""
        q = torch.arange(len(self.edge), device=self.edge.device)
        return torch.repeat_interleave(q, self.offsets.diff(), output_size=self.rows)

    @cached_property
    def question(self) -> Int[Tensor, "P"]:
        """The row of Questions.ids that each row is about."""
        inside = torch.arange(self.rows, device=self.edge.device) - self.offsets[self.of_edge]
        return self._first[self.asker][self.of_edge] + inside

    def all_of(self, rows: Bool[Tensor, "P"]) -> Bool[Tensor, "q"]:
        """Whether something is true of all rows of an edge."""
        if self.each is not None:
            return rows.view(len(self.edge), self.each).all(1)
        return torch.zeros_like(self.edge).index_add_(0, self.of_edge, (~rows).long()) == 0


@dataclass(frozen=True)
class Replies:
    """Soft predictions, edge after edge, as the route was laid out."""

    route: Route
    probabilities: Float[Tensor, "P C"]  # p_j(x), row by row
    sound: Bool[Tensor, "q"]  # whether each reply is made of probability vectors; if not, it is all 0

    @property
    def edge(self) -> Int[Tensor, "q"]:
        """Rows of the world's edges."""
        return self.route.edge

    def regular(self) -> Float[Tensor, "q B C"]:
        """As one tensor, where every node asked about equally many examples."""
        B = self.route.each or 0  # known even where nobody was asked
        return self.probabilities.view(len(self.edge), B, self.probabilities.shape[-1])
