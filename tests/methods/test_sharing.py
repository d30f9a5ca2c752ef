"""What all parameter sharing rests on: who shares with whom, by which weights, and what it costs."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import (
    MIXED,
    ROUNDS,
    SHARING,
    STEPS,
    TORCH,
    assert_same,
    begun,
    made,
    scatter,
    shared,
    without_neighbours,
)  # fmt: skip
from torch import Tensor

from lntrust import Study
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.sharing import Subgraph, metropolis_hastings, subgraphs
from lntrust.world import Dataset, World, build_world
from lntrust.world.graphs import directed_edges

KINDS = ("linear", "mlp", "forest")
Society = tuple["nx.Graph[int]", list[int]]


@st.composite
def societies(draw: st.DrawFn) -> Society:
    """Any graph, in pieces or not, with any kind of learner at any node."""
    n = draw(st.integers(1, 9))
    graph: nx.Graph[int] = nx.empty_graph(n)
    pairs = list(nx.non_edges(graph))
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    graph.add_edges_from(pair for pair, keep in zip(pairs, kept, strict=True) if keep)
    return graph, draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))


def placed(views: Views, graph: "nx.Graph[int]", kinds: list[int], *sets: str) -> Run:
    """A run of dfedavg that has not taken a step, on any graph, with any kind of learner at any node."""

    def make_world(study: Study, dataset: Dataset, seed: int, _: bool) -> World:
        world = build_world(study, dataset, seed)
        return replace(world, graph=graph, edges=directed_edges(graph), kinds=np.array(kinds))

    n = len(kinds)
    how = [f"graph.nodes={n}", "graph.kind=complete", f"partition.labelled={50 * n}", MIXED, *sets]
    return begun(views, *how, method="dfedavg", make_world=make_world)


def matrix(subgraph: Subgraph) -> Tensor:
    """W, entry by entry."""
    weights, own = metropolis_hastings(subgraph, torch.float64)
    W = torch.diag(own)
    W[subgraph.receiver, subgraph.sender] = weights
    return W


@settings(max_examples=15)
@given(society=societies())
def test_subgraphs_are_the_edges_inside_one_architecture(views: Views, society: Society) -> None:
    graph, kinds = society
    one = placed(views, graph, kinds)
    seen: set[tuple[int, int]] = set()
    for subgraph in subgraphs(one.site):
        kind = KINDS.index(subgraph.stack.learner.name)
        edges = list(zip(subgraph.sender.tolist(), subgraph.receiver.tolist(), strict=True))
        assert len(set(edges)) == len(edges)  # an edge is there once
        assert one.network.edges[subgraph.edges].tolist() == [list(edge) for edge in edges]
        assert {kinds[node] for edge in edges for node in edge} <= {kind}
        inside = graph.subgraph(subgraph.stack.nodes.tolist())
        assert subgraph.degree.tolist() == [inside.degree(i) if i in inside else 0 for i in graph]
        seen.update(edges)
    alike = {(i, j) for i, j in graph.edges if kinds[i] == kinds[j] != KINDS.index("forest")}
    assert seen == alike | {(j, i) for i, j in alike}


def test_a_star(views: Views) -> None:
    """The hub keeps 1/n of itself, a leaf all but 1/n: neither is lazy without need."""
    n = 5
    (subgraph,) = subgraphs(placed(views, nx.star_graph(n - 1), [0] * n).site)
    W = matrix(subgraph)
    assert W[0].tolist() == pytest.approx([1 / n] * n)
    assert W.diagonal()[1:].tolist() == pytest.approx([1 - 1 / n] * (n - 1))


class TestMixing:
    @settings(max_examples=15)
    @given(society=societies())
    def test_w_is_doubly_stochastic_and_the_mean_stays_where_it_was(
        self, views64: Views, society: Society
    ) -> None:
        one = placed(views64, *society)
        for stack in one.population.torch_stacks:
            scatter(one, stack)
        before = [s.flat() for s in one.population.torch_stacks]
        one.method.mix(one.site)
        for subgraph, old in zip(subgraphs(one.site), before, strict=True):
            new, nodes, W = subgraph.stack.flat(), subgraph.stack.nodes, matrix(subgraph)
            assert torch.equal(W, W.T)
            assert (W >= 0).all()
            torch.testing.assert_close(W.sum(1), torch.ones(len(W), dtype=W.dtype), rtol=0, atol=1e-14)
            torch.testing.assert_close(new.mean(0), old.mean(0), rtol=0, atol=1e-12)
            torch.testing.assert_close(new, W[nodes][:, nodes] @ old, rtol=0, atol=1e-12)
            alone = subgraph.degree[subgraph.stack.nodes] == 0
            assert torch.equal(new[alone], old[alone])
            assert not len(subgraph.edges) or not torch.equal(new, old)

    @pytest.mark.parametrize("n", [6, 70])
    def test_weighted_sums_of_full_and_sparse_graphs(self, views64: Views, n: int) -> None:
        """A ring of 70 is sparse enough to be summed edge by edge; one of 6 is not."""
        few = (f"partition.labelled={15 * n}", "partition.minimum=15", "partition.pool=99")
        one = placed(views64, nx.cycle_graph(n), [0] * n, *few, "partition.shard=9")
        (subgraph,) = subgraphs(one.site)
        theta = scatter(one, subgraph.stack)
        got = one.method.weighted_sum(one.site, subgraph, torch.ones(2 * n, dtype=torch.float64))
        torch.testing.assert_close(got, theta.roll(1, 0) + theta.roll(-1, 0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", SHARING)
def test_without_a_neighbour_of_its_kind_everybody_trains_alone(views64: Views, method: str) -> None:
    """On a ring, in turn, no neighbour is like another: what is left is the method's own local training."""
    strangers = (TORCH, "graph.kind=ring", "methods.decdiff_vt.beta=1")
    one = made(views64, *strangers, method=method)
    assert one.network.ledger.summary()["total"] == 0
    # Independent as it would be had it begun with the same parameters as this method.
    plain = begun(views64, *strangers, method=without_neighbours(method))
    plain.population.load(begun(views64, *strangers, method=method).population.state())
    plain()
    # DecDiff computes the same loss by another formula.
    assert_same(one, plain, 1e-12 if method == "decdiff_vt" else 0)


@pytest.mark.parametrize(
    ("method", "setting", "messages", "beside"),
    [
        *(("d_psgd", f"local_steps={k}", ROUNDS * STEPS // k, 0) for k in (1, 2, 5)),
        *(("dfedavg", f"every={k}", ROUNDS // k, 0) for k in (1, 2, 5)),
        ("decdiff_vt", "beta=0.95", ROUNDS, 8),
        ("fedfomo", "lr=0.01", ROUNDS, 0),
        ("ditto", "strength=0.1", ROUNDS, 0),
    ],
)
def test_bytes(views: Views, method: str, setting: str, messages: int, beside: int) -> None:
    """4P, and perhaps a sample count, over every edge inside an architecture, nothing over any other.

    Steps are counted through rounds: with k = 2, every second of all twenty is followed by mixing.
    """
    one = shared(views, TORCH, f"methods.{method}.{setting}", method=method)
    expected = np.zeros(len(one.world.edges), dtype=np.int64)
    for stack in one.population.torch_stacks:
        inside = np.isin(one.world.edges, stack.nodes.numpy()).all(1)
        assert inside.any()
        expected[inside] = messages * (4 * stack.flat().shape[1] + beside)
    assert one.network.ledger.payload("parameters", "mix").tolist() == expected.tolist()
    assert one.network.ledger.payload().tolist() == expected.tolist()
    assert (expected == 0).any()
    assert one.population.torch_stacks[0].flat().shape[1] == (64 + 1) * 10  # a linear head on 64 pixels
