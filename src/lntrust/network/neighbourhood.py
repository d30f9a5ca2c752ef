"""Closed neighbourhoods N̄(i) of different sizes, padded into one rectangle."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Neighbourhood:
    """Row i lists node i itself, then its neighbours in the order of the edges; `edge` is −1 for self."""

    member: Int[Tensor, "n D"]  # node numbers; padding repeats the node itself
    edge: Int[Tensor, "n D"]  # row of the edge (i → member), −1 for self and padding
    mask: Bool[Tensor, "n D"]  # false for padding
    column: Int[Tensor, "E"]  # the column of each edge's answerer in its asker's row

    @classmethod
    def of(cls, edges: Int[Tensor, "E 2"], n: int) -> "Neighbourhood":
        """From directed edges (asker, answerer), sorted by asker."""
        device = edges.device
        asker, answerer = edges.unbind(1)
        degree = torch.bincount(asker, minlength=n)
        width = int(degree.max()) + 1 if n else 1
        node = torch.arange(n, device=device)
        column = 1 + torch.arange(len(asker), device=device) - (degree.cumsum(0) - degree)[asker]
        member = node[:, None].repeat(1, width)
        edge = torch.full((n, width), -1, dtype=torch.int64, device=device)
        member[asker, column] = answerer
        edge[asker, column] = torch.arange(len(asker), device=device)
        mask = edge >= 0
        mask[:, 0] = True
        return cls(member, edge, mask, column)

    @property
    def open(self) -> Bool[Tensor, "n D"]:
        """N(i): the neighbours without the node itself."""
        out = self.mask.clone()
        out[:, 0] = False
        return out
