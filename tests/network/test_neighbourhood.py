"""Closed neighbourhoods in a rectangle: oneself first, then the neighbours in the order of the edges."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.network.neighbourhood import Neighbourhood


def random_edges(seed: int, n: int, share: float = 0.4) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    linked = torch.rand(n, n, generator=g) < share
    linked.fill_diagonal_(False)
    return torch.nonzero(linked)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 8), st.floats(0, 1))
def test_equals_a_loop(seed: int, n: int, share: float) -> None:
    edges = random_edges(seed, n, share)
    around = Neighbourhood.of(edges, n)
    rows = [[e for e, (i, _) in enumerate(edges.tolist()) if i == node] for node in range(n)]
    width = 1 + max(map(len, rows))
    assert around.member.shape == around.edge.shape == around.mask.shape == (n, width)
    for i, row in enumerate(rows):
        padding = width - 1 - len(row)
        assert around.member[i].tolist() == [i, *(int(edges[e, 1]) for e in row), *[i] * padding]
        assert around.edge[i].tolist() == [-1, *row, *[-1] * padding]
        assert around.mask[i].tolist() == [True] * (1 + len(row)) + [False] * padding
        assert around.open[i].tolist() == [False] + [True] * len(row) + [False] * padding
