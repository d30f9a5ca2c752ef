"""Graphs are simple, have the promised edges, and are refused with a reason."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.study.settings import GraphSettings
from lntrust.world.graphs import directed_edges, haversine_km, make_graph


def positions(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.uniform(35, 60, n), rng.uniform(-10, 30, n)], axis=1)


def graph_of(seed: int = 0, places: np.ndarray | None = None, **wanted: Any) -> nx.Graph:
    return make_graph(GraphSettings(**wanted), seed, places)


def edges(graph: nx.Graph) -> set[tuple[int, int]]:
    return {(min(e), max(e)) for e in graph.edges}


@settings(max_examples=80)
@given(
    kind=st.sampled_from(["barabasi_albert", "gnm", "geographic", "ring", "complete"]),
    n=st.integers(1, 30),
    attach=st.integers(1, 4),
    seed=st.integers(0, 2**40),
)
def test_every_kind_is_simple_and_repeatable(kind: str, n: int, attach: int, seed: int) -> None:
    random = kind == "gnm"
    wanted: dict[str, Any] = {"nodes": n, "kind": kind, "attach": attach, "connected": n >= 10 or not random}
    wanted["density"] = 0.6 if random else None
    graph = graph_of(seed, positions(n, 1), **wanted)
    assert sorted(graph.nodes) == list(range(n))
    assert not graph.is_directed()
    assert nx.number_of_selfloops(graph) == 0
    assert nx.is_connected(graph) or not wanted["connected"]
    assert edges(graph_of(seed, positions(n, 1), **wanted)) == edges(graph)
    both = directed_edges(graph)
    assert len(both) == 2 * graph.number_of_edges()
    assert [tuple(e) for e in both] == sorted({(a, b) for a, b in both} | {(b, a) for a, b in both})
    if kind in ("barabasi_albert", "geographic") and n > attach:
        assert graph.number_of_edges() == attach * (attach + 1) // 2 + attach * (n - attach - 1)
    if n <= 2 and kind != "gnm":
        assert graph.number_of_edges() == n - 1


@pytest.mark.parametrize("seed", range(3))
def test_the_published_numbers_of_edges(seed: int) -> None:
    grown, filled = graph_of(seed), graph_of(seed, density=0.1)
    assert (grown.number_of_edges(), filled.number_of_edges()) == (97, 122)
    assert edges(grown) <= edges(filled)
    assert graph_of(seed, kind="gnm", density=0.5).number_of_edges() == 612
    assert graph_of(seed, positions(50), kind="geographic").number_of_edges() == 97


def test_the_seed_of_the_graph_stands_above_that_of_the_run() -> None:
    free, fixed = GraphSettings(), GraphSettings(seed=0)
    assert edges(make_graph(free, 1)) != edges(make_graph(free, 2))
    assert edges(make_graph(fixed, 1)) == edges(make_graph(fixed, 2)) == edges(make_graph(free, 0))


def test_filling_is_uniform_over_free_pairs() -> None:
    times = dict.fromkeys(edges(nx.complete_graph(5)), 0)
    for seed in range(1500):
        for pair in edges(graph_of(seed, nodes=5, kind="gnm", density=0.2, connected=False)):
            times[pair] += 1
    assert sum(times.values()) == 3000
    assert all(230 < count < 370 for count in times.values())


def test_geographic_prefers_near_nodes() -> None:
    """Three first nodes at distances 0, 100 and 5,000 km: the far one is hardly ever chosen."""
    near = np.array([[50.0, 10.0], [50.0, 11.4], [10.0, 60.0], [50.0, 10.0]])
    chosen = np.zeros(3)
    for seed in range(400):
        chosen[list(graph_of(seed, near, nodes=4, kind="geographic")[3])] += 1
    assert chosen[:2].min() > 380
    assert set(graph_of(0, near, nodes=4, kind="geographic", decay_km=1e-3)[3]) == {0, 1}


def test_geographic_chances_are_those_of_draws_without_replacement() -> None:
    """attach = 1, both first nodes of degree 1: the chance of each is its damping alone."""
    spots = np.array([[0.0, 0.0], [0.0, 9.0], [0.0, 3.0]])
    weight = np.exp(-haversine_km(spots[:2], spots[2]) / 500)
    hits = sum(0 in graph_of(seed, spots, nodes=3, kind="geographic", attach=1)[2] for seed in range(2000))
    assert hits / 2000 == pytest.approx(weight[0] / weight.sum(), abs=0.04)


def test_haversine() -> None:
    paris, london = np.array([48.8566, 2.3522]), np.array([51.5074, -0.1278])
    assert haversine_km(paris, london) == pytest.approx(343.5, abs=1)
    assert haversine_km(np.array([0.0, 0.0]), np.array([0.0, 180.0])) == pytest.approx(20015, abs=1)
    assert haversine_km(paris[None], np.stack([paris, london])).shape == (2,)


def test_nearest_neighbours_are_the_union_of_who_is_near() -> None:
    line = np.array([[0.0], [1.0], [2.1], [3.3], [10.0]])
    graph = make_graph(GraphSettings(nodes=5, kind="knn", attach=1), 0, features=line)
    assert edges(graph) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    same = make_graph(GraphSettings(nodes=6, kind="knn", connected=False), 0, features=np.zeros((6, 2)))
    assert nx.number_of_selfloops(same) == 0
    assert min(dict(same.degree).values()) >= 2
    apart = np.array([[0.0], [1.0], [5.0], [6.0]])
    with pytest.raises(
        LNTrustError, match=r"graph.attach = 1: the graph on 4 nodes is in 2 pieces; raise graph.attach"
    ):
        make_graph(GraphSettings(nodes=4, kind="knn", attach=1), 0, features=apart)


def test_files(tmp_path: Path) -> None:
    listed, path = tmp_path / "edges.txt", tmp_path / "graph.graphml"
    listed.write_text("# comment\n0 1\n1 0\n1 2 {}\n2 3 0.5\n")
    assert edges(graph_of(nodes=4, kind="file", file=str(listed))) == {(0, 1), (1, 2), (2, 3)}
    for kind in (nx.Graph, nx.DiGraph, nx.MultiGraph):
        nx.write_graphml(kind([(0, 1), (1, 2), (2, 3), (3, 0)]), path)
        graph = graph_of(nodes=4, kind="file", file=str(path))
        assert edges(graph) == {(0, 1), (1, 2), (2, 3), (0, 3)}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"0 1\n1 4\n", "node 4 is outside 0…3"),
        ("a.txt", b"0 1\n-1 2\n", "node -1 is outside 0…3"),
        ("a.txt", b"0 1\n2 2\n", "node 2 has an edge to itself"),
        ("a.txt", b"0 one\n", "nodes named by integers"),
        ("a.txt", b"0 1\n", "in 3 pieces; add edges"),
        ("a.txt", b"\xff\xfe\x00 1", "not readable"),
        ("a.txt", None, "no such file"),
        ("a.graphml", b"no xml", "not readable"),
        ("a.graphml", b"<graphml><graph edgedefault='x'/></graphml>", "in 4 pieces"),
    ],
)
def test_bad_files_name_the_field(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LNTrustError, match=says) as raised:
        graph_of(nodes=4, kind="file", file=str(path))
    assert f"graph.file = {str(path)!r}" in str(raised.value)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"density": 0.05}, "graph.density = 0.05 asks for 61 edges.*already makes 97"),
        ({"kind": "gnm", "density": 0.02}, r"graph\.density = 0\.02: 24 edges left 50 nodes in pieces"),
    ],
)
def test_refusals(wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(LNTrustError, match=says):
        graph_of(**wanted)
