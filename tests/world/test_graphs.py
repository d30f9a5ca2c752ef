"""Graphs are simple, have the promised edges, and are refused with a reason."""

from pathlib import Path

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


def edges(graph: nx.Graph) -> set[tuple[int, int]]:
    return {(min(e), max(e)) for e in graph.edges}


@settings(max_examples=80)
@given(
    kind=st.sampled_from(["barabasi_albert", "gnm", "geographic", "ring", "complete", "knn"]),
    n=st.integers(1, 30),
    attach=st.integers(1, 4),
    seed=st.integers(0, 2**40),
)
def test_every_kind_is_simple_and_repeatable(kind: str, n: int, attach: int, seed: int) -> None:
    connected = kind != "knn" and not (kind == "gnm" and n < 10)
    density = 0.6 if kind == "gnm" else None
    wanted = GraphSettings(nodes=n, kind=kind, attach=attach, density=density, connected=connected)
    given_rows = {"positions": positions(n, 1), "features": positions(n, 2)}
    graph = make_graph(wanted, seed, **given_rows)
    assert sorted(graph.nodes) == list(range(n))
    assert not graph.is_directed()
    assert nx.number_of_selfloops(graph) == 0
    if wanted.connected:
        assert nx.is_connected(graph)
    assert edges(make_graph(wanted, seed, **given_rows)) == edges(graph)
    both = directed_edges(graph)
    assert len(both) == 2 * graph.number_of_edges()
    assert [tuple(e) for e in both] == sorted({(a, b) for a, b in both} | {(b, a) for a, b in both})
    if kind in ("barabasi_albert", "geographic") and n > attach:
        assert graph.number_of_edges() == attach * (attach + 1) // 2 + attach * (n - attach - 1)


@pytest.mark.parametrize("seed", range(5))
def test_the_published_numbers_of_edges(seed: int) -> None:
    grown = make_graph(GraphSettings(), seed)
    assert grown.number_of_edges() == 97
    assert make_graph(GraphSettings(density=0.1), seed).number_of_edges() == 122
    assert edges(grown) <= edges(make_graph(GraphSettings(density=0.1), seed))
    assert make_graph(GraphSettings(kind="gnm", density=0.5), seed).number_of_edges() == 612
    geographic = GraphSettings(kind="geographic")
    assert make_graph(geographic, seed, positions=positions(50)).number_of_edges() == 97


def test_seed_and_graph_seed() -> None:
    free, fixed = GraphSettings(), GraphSettings(seed=0)
    assert edges(make_graph(free, 1)) != edges(make_graph(free, 2))
    assert edges(make_graph(fixed, 1)) == edges(make_graph(fixed, 2)) == edges(make_graph(free, 0))


def test_filling_is_uniform_over_free_pairs() -> None:
    times = dict.fromkeys(edges(nx.complete_graph(5)), 0)
    for seed in range(1500):
        for pair in edges(make_graph(GraphSettings(nodes=5, kind="gnm", density=0.2, connected=False), seed)):
            times[pair] += 1
    assert sum(times.values()) == 3000
    assert all(230 < count < 370 for count in times.values())


def test_geographic_prefers_near_and_busy_nodes() -> None:
    """Three first nodes at distances 0, 100 and 5,000 km: the far one is hardly ever chosen."""
    near = np.array([[50.0, 10.0], [50.0, 11.4], [10.0, 60.0], [50.0, 10.0]])
    chosen = np.zeros(3)
    for seed in range(400):
        graph = make_graph(GraphSettings(nodes=4, kind="geographic", attach=2), seed, positions=near)
        chosen[list(graph[3])] += 1
    assert chosen[0] > 380
    assert chosen[1] > 380
    tight = GraphSettings(nodes=4, kind="geographic", decay_km=1e-3)
    assert set(make_graph(tight, 0, positions=near)[3]) == {0, 1}


def test_geographic_chances_are_those_of_draws_without_replacement() -> None:
    """attach = 1, both first nodes of degree 1: the chance of each is its damping alone."""
    spots = np.array([[0.0, 0.0], [0.0, 9.0], [0.0, 3.0]])
    distance = haversine_km(spots[:2], spots[2])
    weight = np.exp(-distance / 500)
    wanted = GraphSettings(nodes=3, kind="geographic", attach=1)
    hits = sum(0 in make_graph(wanted, seed, positions=spots)[2] for seed in range(2000))
    assert hits / 2000 == pytest.approx(weight[0] / weight.sum(), abs=0.04)


def test_haversine() -> None:
    paris, london = np.array([48.8566, 2.3522]), np.array([51.5074, -0.1278])
    assert haversine_km(paris, london) == pytest.approx(343.5, abs=1)
    assert haversine_km(np.array([0.0, 0.0]), np.array([0.0, 180.0])) == pytest.approx(20015, abs=1)
    assert haversine_km(paris[None], np.stack([paris, london])).shape == (2,)


@pytest.mark.parametrize("kind", ["barabasi_albert", "geographic", "ring", "complete", "knn"])
def test_one_and_two_nodes(kind: str) -> None:
    for n in (1, 2):
        graph = make_graph(
            GraphSettings(nodes=n, kind=kind), 0, positions=positions(n), features=positions(n)
        )
        assert (graph.number_of_nodes(), graph.number_of_edges()) == (n, n - 1)
    assert make_graph(GraphSettings(nodes=1, kind="gnm", density=0.5), 0).number_of_edges() == 0


def test_knn_is_the_union_of_nearest() -> None:
    line = np.array([[0.0], [1.0], [2.1], [3.3], [10.0]])
    graph = make_graph(GraphSettings(nodes=5, kind="knn", attach=1), 0, features=line)
    assert edges(graph) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    same = np.zeros((6, 2))
    graph = make_graph(GraphSettings(nodes=6, kind="knn", connected=False), 0, features=same)
    assert nx.number_of_selfloops(graph) == 0
    assert min(dict(graph.degree).values()) >= 2


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_files(tmp_path: Path) -> None:
    listed = write(tmp_path / "edges.txt", "# comment\n0 1\n1 0\n1 2 {}\n2 3 0.5\n")
    graph = make_graph(GraphSettings(nodes=4, kind="file", file=listed), 0)
    assert edges(graph) == {(0, 1), (1, 2), (2, 3)}
    for kind in (nx.Graph, nx.DiGraph, nx.MultiGraph):
        path = str(tmp_path / "graph.graphml")
        nx.write_graphml(kind([(0, 1), (1, 2), (2, 3), (3, 0)]), path)
        graph = make_graph(GraphSettings(nodes=4, kind="file", file=path), 0)
        assert edges(graph) == {(0, 1), (1, 2), (2, 3), (0, 3)}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.txt", "0 1\n1 4\n", "node 4 is outside 0…3"),
        ("a.txt", "0 1\n-1 2\n", "node -1 is outside 0…3"),
        ("a.txt", "0 1\n2 2\n", "node 2 has an edge to itself"),
        ("a.txt", "0 one\n", "nodes named by integers"),
        ("a.txt", "0 1\n", "in 3 pieces"),
        ("a.graphml", "no xml", "not readable"),
        ("a.graphml", "<graphml><graph edgedefault='x'/></graphml>", "a.graphml"),
    ],
)
def test_bad_files_name_the_field(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(LNTrustError, match=says) as raised:
        make_graph(GraphSettings(nodes=4, kind="file", file=path), 0)
    assert f"graph.file = {path!r}" in str(raised.value)


def test_unreadable_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00 1")
    for name, says in [("bytes.txt", "not readable"), ("none.txt", "no such file")]:
        with pytest.raises(LNTrustError, match=says):
            make_graph(GraphSettings(nodes=4, kind="file", file=str(tmp_path / name)), 0)
    with pytest.raises(LNTrustError, match=r"needs graph\.file"):
        make_graph(GraphSettings(nodes=4, kind="file"), 0)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"density": 0.05}, "graph.density = 0.05 asks for 61 edges.*already makes 97"),
        ({"kind": "gnm"}, r"needs graph\.density"),
        ({"kind": "gnm", "density": 0.02}, r"graph\.density = 0\.02: 24 edges left 50 nodes in pieces"),
        ({"kind": "geographic"}, "needs positions"),
        ({"kind": "knn"}, "needs features"),
    ],
)
def test_refusals(wanted: dict, says: str) -> None:
    with pytest.raises(LNTrustError, match=says):
        make_graph(GraphSettings(**wanted), 0)


def test_rows_must_match_and_pieces_are_refused() -> None:
    with pytest.raises(LNTrustError, match=r"graph\.nodes = 4: 3 nodes were given"):
        make_graph(GraphSettings(nodes=4, kind="knn"), 0, features=positions(3))
    apart = np.array([[0.0], [1.0], [100.0], [101.0]])
    with pytest.raises(LNTrustError, match=r"graph\.attach = 1: .* in 2 pieces; raise graph\.attach"):
        make_graph(GraphSettings(nodes=4, kind="knn", attach=1), 0, features=apart)
