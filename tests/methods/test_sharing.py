"""What all parameter sharing rests on: who shares with whom, and by which weights."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import FLOAT64, FOREST, LINEAR, MIXED, TORCH, made, parameters, shared, study
from torch import Tensor

from lntrust import Study
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.sharing import Sharing, Subgraph, metropolis_hastings, subgraphs
from lntrust.world import Dataset, World, build_world
from lntrust.world.graphs import directed_edges

KINDS = ("linear", "mlp", "forest")
METHODS = ["d_psgd", "dfedavg", "gossip_fedavg", "decdiff_vt"]
ONLY_LINEAR = f"population.learners=[{LINEAR}]"


@st.composite
def societies(draw: st.DrawFn) -> tuple["nx.Graph[int]", list[int]]:
    """Any graph, in pieces or not, with any kind of learner at any node."""
    n = draw(st.integers(1, 9))
    graph: nx.Graph[int] = nx.empty_graph(n)
    pairs = list(nx.non_edges(graph))
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    graph.add_edges_from(pair for pair, keep in zip(pairs, kept, strict=True) if keep)
    return graph, draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))


def living_in(graph: "nx.Graph[int]", kinds: list[int]) -> Callable[[Study, Dataset, int, bool], World]:
    """A world of the study with this graph and these kinds instead of its own."""

    def make(study: Study, dataset: Dataset, seed: int, _: bool) -> World:
        world = build_world(study, dataset, seed)
        return replace(world, graph=graph, edges=directed_edges(graph), kinds=np.array(kinds))

    return make


def placed(
    views: Views, graph: "nx.Graph[int]", kinds: list[int], method: str = "dfedavg", **options: Any
) -> Run:
    """A run that has not begun, on any graph."""
    n = len(kinds)
    overrides = [f"graph.nodes={n}", "graph.kind=complete", f"partition.labelled={50 * n}", MIXED]
    if views.dtype == torch.float64:
        overrides.append(FLOAT64)
    return Run(study(*overrides), method, 0, views, make_world=living_in(graph, kinds), **options)


def scattered(run: Run) -> None:
    """Parameters that no two nodes share, the same for every backend."""
    draws = torch.Generator().manual_seed(7)
    for stack in run.population.torch_stacks:
        theta = run.population.parameters(stack)
        far = torch.randn(theta.shape, generator=draws, dtype=torch.float64).to(theta.dtype)
        run.population.set_parameters(stack, far)


def matrix(subgraph: Subgraph) -> Tensor:
    """W, entry by entry."""
    weights, own = metropolis_hastings(subgraph, torch.float64)
    W = torch.diag(own)
    for i, j, weight in zip(
        subgraph.receiver.tolist(), subgraph.sender.tolist(), weights.tolist(), strict=True
    ):
        assert W[i, j] == 0  # an edge is there once
        W[i, j] = weight
    return W


class TestCircles:
    @settings(max_examples=20)
    @given(society=societies())
    def test_they_are_the_edges_inside_one_architecture(
        self, views: Views, society: tuple["nx.Graph[int]", list[int]]
    ) -> None:
        graph, kinds = society
        one = placed(views, graph, kinds)
        seen: set[tuple[int, int]] = set()
        for subgraph in subgraphs(one.site):
            kind = KINDS.index(subgraph.stack.learner.name)
            edges = list(zip(subgraph.sender.tolist(), subgraph.receiver.tolist(), strict=True))
            assert one.network.edges[subgraph.edges].tolist() == [list(edge) for edge in edges]
            assert {kinds[node] for edge in edges for node in edge} <= {kind}
            inside = graph.subgraph(subgraph.stack.nodes.tolist())
            assert subgraph.degree.tolist() == [inside.degree(i) if i in inside else 0 for i in graph]
            seen.update(edges)
        alike = {(i, j) for i, j in graph.edges if kinds[i] == kinds[j] != KINDS.index("forest")}
        assert seen == alike | {(j, i) for i, j in alike}

    def test_an_architecture_without_edges_is_there_too(self, views: Views) -> None:
        one = placed(views, nx.path_graph(4), [0, 1, 0, 1])
        found = [(c.stack.learner.name, len(c.edges)) for c in subgraphs(one.site)]
        assert found == [("linear", 0), ("mlp", 0)]


class TestMetropolisHastings:
    @settings(max_examples=20)
    @given(society=societies())
    def test_symmetric_and_doubly_stochastic(
        self, views: Views, society: tuple["nx.Graph[int]", list[int]]
    ) -> None:
        for subgraph in subgraphs(placed(views, *society).site):
            W = matrix(subgraph)
            assert torch.equal(W, W.T)
            assert (W >= 0).all()
            torch.testing.assert_close(W.sum(1), torch.ones(len(W), dtype=W.dtype), rtol=0, atol=1e-14)
            assert (W.diagonal()[subgraph.degree == 0] == 1).all()

    def test_a_star(self, views: Views) -> None:
        """The hub keeps 1/n of itself, a leaf all but 1/n: neither is lazy without need."""
        n = 5
        (subgraph,) = subgraphs(placed(views, nx.star_graph(n - 1), [0] * n).site)
        W = matrix(subgraph)
        assert W[0].tolist() == pytest.approx([1 / n] * n)
        assert W.diagonal()[1:].tolist() == pytest.approx([1 - 1 / n] * (n - 1))

    def test_a_complete_graph_averages_evenly(self, views: Views) -> None:
        (subgraph,) = subgraphs(placed(views, nx.complete_graph(4), [0] * 4).site)
        torch.testing.assert_close(matrix(subgraph), torch.full((4, 4), 1 / 4, dtype=torch.float64))


class TestMixing:
    @settings(max_examples=20)
    @given(society=societies())
    def test_the_mean_stays_where_it_was(
        self, views64: Views, society: tuple["nx.Graph[int]", list[int]]
    ) -> None:
        one = placed(views64, *society)
        assert isinstance(one.method, Sharing)
        scattered(one)
        before = [s.flat() for s in one.population.torch_stacks]
        one.method.mix(one.site, "mix")
        for subgraph, old in zip(subgraphs(one.site), before, strict=True):
            new = subgraph.stack.flat()
            torch.testing.assert_close(new.mean(0), old.mean(0), rtol=0, atol=1e-12)
            torch.testing.assert_close(
                new, matrix(subgraph)[subgraph.stack.nodes][:, subgraph.stack.nodes] @ old, rtol=0, atol=1e-12
            )
            alone = subgraph.degree[subgraph.stack.nodes] == 0
            assert torch.equal(new[alone], old[alone])
            assert not len(subgraph.edges) or not torch.equal(new, old)

    @settings(max_examples=20)
    @given(society=societies())
    def test_weighted_sums_are_the_same_in_both_backends(
        self, views64: Views, society: tuple["nx.Graph[int]", list[int]]
    ) -> None:
        """The batched one has two ways, for full graphs and for sparse ones; examples fall into both."""
        sums, books = [], []
        for backend in ("batched", "loop"):
            one = placed(views64, *society, backend=backend)
            assert isinstance(one.method, Sharing)
            scattered(one)
            mine = []
            for subgraph in subgraphs(one.site):
                weights = torch.linspace(-1, 2, len(subgraph.edges), dtype=torch.float64)
                count = torch.arange(one.world.n)[:, None]
                mine.append(one.method.weighted_sum(one.site, subgraph, weights, "mix", count=count))
            sums.append(mine)
            books.append(one.network.ledger.summary())
        for batched, loop in zip(*sums, strict=True):
            torch.testing.assert_close(batched, loop, rtol=0, atol=1e-12)
        assert books[0] == books[1]

    @pytest.mark.parametrize("n", [6, 70])
    def test_weighted_sums_of_full_and_sparse_graphs(self, views64: Views, n: int) -> None:
        """A ring of 70 is sparse enough to be summed edge by edge; one of 6 is not."""
        overrides = (f"graph.nodes={n}", f"partition.labelled={15 * n}", "partition.minimum=15")
        small = ("graph.kind=ring", "partition.pool=100", "partition.shard=10", ONLY_LINEAR, FLOAT64)
        one = Run(study(*overrides, *small), "dfedavg", 0, views64)
        assert isinstance(one.method, Sharing)
        scattered(one)
        (subgraph,) = subgraphs(one.site)
        theta = one.population.parameters(subgraph.stack)
        got = one.method.weighted_sum(one.site, subgraph, torch.ones(2 * n, dtype=torch.float64), "mix")
        torch.testing.assert_close(got, theta.roll(1, 0) + theta.roll(-1, 0), rtol=0, atol=1e-12)


class TestTrainingAlone:
    @pytest.mark.parametrize("method", METHODS)
    def test_without_a_neighbour_of_its_kind(self, views: Views, method: str) -> None:
        """Everybody sits between strangers: what is left is the method's own local training."""
        strangers = (TORCH, "graph.kind=ring", "methods.decdiff_vt.beta=1")
        one = made(views, *strangers, method=method)
        assert one.network.ledger.summary()["total"] == 0
        # Independent as it would be had it begun with the same parameters as this method.
        plain = Run(study(*strangers), "independent", 0, views)
        fresh = Run(study(*strangers), method, 0, views)
        plain.population.load(fresh.population.state())
        plain()
        for name, tensor in parameters(plain).items():
            if method == "decdiff_vt":  # the same loss by another formula
                torch.testing.assert_close(tensor, parameters(one)[name], rtol=0, atol=1e-5)
            else:
                assert torch.equal(tensor, parameters(one)[name]), name

    @pytest.mark.parametrize("method", METHODS)
    def test_forests_are_those_of_independent(self, views: Views, method: str) -> None:
        overrides = (MIXED, "graph.kind=complete")
        one, plain = (shared(views, *overrides, method=m) for m in (method, "independent"))
        forest = [s for s in range(one.world.n) if KINDS[one.world.kinds[s]] == "forest"]
        answers = [r.population.predict_all(r._tested) for r in (one, plain)]
        assert torch.equal(answers[0][forest], answers[1][forest])
        assert one.network.ledger.payload().sum() > 0  # the others do share
        assert not torch.equal(*answers)


class TestRemarks:
    def told(self, views: Views, method: str, *overrides: str) -> list[str]:
        said: list[str] = []
        Run(study(*overrides), method, 0, views, notice=said.append)
        return said

    @pytest.mark.parametrize("method", METHODS)
    def test_nothing_where_all_can_take_part(self, views: Views, method: str) -> None:
        assert self.told(views, method, ONLY_LINEAR) == []

    @pytest.mark.parametrize("method", METHODS)
    def test_two_architectures(self, views: Views, method: str) -> None:
        inside = "parameters are shared inside one architecture only: linear (3 nodes, 3 edges), "
        assert self.told(views, method, TORCH, "graph.kind=complete") == [
            f"{method}: {inside}mlp (3 nodes, 3 edges)"
        ]

    def test_strangers(self, views: Views) -> None:
        """On a ring, in turn: no neighbour is like another."""
        assert self.told(views, "dfedavg", TORCH, "graph.kind=ring") == [
            "dfedavg: parameters are shared inside one architecture only: linear (3 nodes, 0 edges), "
            "mlp (3 nodes, 0 edges)",
            "dfedavg: 6 of 6 nodes have no neighbour of their kind and train alone",
        ]

    def test_forests(self, views: Views) -> None:
        """A forest has nothing to share, and is not counted among those who lack a neighbour."""
        assert self.told(views, "gossip_fedavg", MIXED, "graph.kind=complete") == [
            "gossip_fedavg: parameters are shared inside one architecture only: linear (2 nodes, 1 edge), "
            "mlp (2 nodes, 1 edge)",
            "gossip_fedavg: learners without gradient steps train alone and answer when asked: forest",
        ]

    def test_nothing_but_forests(self, views: Views) -> None:
        assert self.told(views, "d_psgd", f"population.learners=[{FOREST}]") == [
            "d_psgd: learners without gradient steps train alone and answer when asked: forest"
        ]

    def test_a_single_node(self, views: Views) -> None:
        assert self.told(views, "decdiff_vt", ONLY_LINEAR, "graph.nodes=1", "partition.labelled=60") == [
            "decdiff_vt: 1 of 1 nodes have no neighbour of their kind and train alone"
        ]
