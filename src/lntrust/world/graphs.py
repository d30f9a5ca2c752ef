"""Who knows whom: the graph of a study, simple and undirected, on nodes 0…n−1."""

import math
from pathlib import Path
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Rng, generator
from lntrust.study.settings import GraphSettings

EARTH_KM = 6371.0088  # mean radius
REDRAWS = 100


def make_graph(
    settings: GraphSettings,
    seed: int,
    positions: Float[ndarray, "n 2"] | None = None,
    features: Float[ndarray, "n d"] | None = None,
) -> "nx.Graph[int]":
    """The graph that the settings describe.

    `positions` (latitude, longitude) serve the geographic kind, `features` the nearest neighbours.
    """
    rng = generator(seed if settings.seed is None else settings.seed, "graph")
    n = settings.nodes
    graph: nx.Graph[int]
    match settings.kind:
        case "barabasi_albert":
            graph = _barabasi_albert(settings, rng)
        case "gnm":
            graph = _gnm(settings, rng)
        case "geographic":
            assert positions is not None  # a study of this kind has regions, and so their centres
            graph = _geographic(settings, positions, rng)
        case "ring":
            graph = nx.cycle_graph(n) if n > 2 else nx.path_graph(n)
        case "complete":
            graph = nx.complete_graph(n)
        case "knn":
            assert features is not None  # a study of this kind has its nodes' data before its graph
            graph = _nearest(settings, features)
        case "file":
            graph = _from_file(settings)
    return graph


def directed_edges(graph: "nx.Graph[int]") -> Int[ndarray, "E 2"]:
    """Every edge both ways, as (asker, answerer), sorted."""
    both = [(node, other) for node in sorted(graph) for other in sorted(graph[node])]
    return np.array(both, dtype=np.int64).reshape(-1, 2)


def haversine_km(a: Float[ndarray, "*s 2"], b: Float[ndarray, "*s 2"]) -> Float[ndarray, "*s"]:
    """Distance on the globe between (latitude, longitude) in degrees. Broadcasts."""
    first, second = np.radians(a), np.radians(b)
    half = np.sin((first - second) / 2) ** 2
    across = np.cos(first[..., 0]) * np.cos(second[..., 0]) * half[..., 1]
    return np.asarray(2 * EARTH_KM * np.arcsin(np.sqrt(np.clip(half[..., 0] + across, 0, 1))))


def _wanted_edges(n: int, density: float) -> int:
    """⌊p·n(n−1)/2⌋; the tiny addend keeps 0.29·100 from becoming 28."""
    return math.floor(density * (n * (n - 1) // 2) + 1e-9)


def _barabasi_albert(settings: GraphSettings, rng: Rng) -> "nx.Graph[int]":
    """Preferential attachment from a complete graph, then random edges up to the density."""
    n, m = settings.nodes, settings.attach
    graph: nx.Graph[int] = nx.complete_graph(min(n, m + 1))
    if n > m + 1:
        graph = nx.barabasi_albert_graph(n, m, seed=int(rng.integers(2**31)), initial_graph=graph)
    if settings.density is not None:
        wanted, grown = _wanted_edges(n, settings.density), graph.number_of_edges()
        if wanted < grown:
            raise LNTrustError(
                f"graph.density = {settings.density} asks for {wanted} edges; barabasi_albert with "
                f"graph.attach = {m} on {n} nodes already makes {grown}: raise it to "
                f"{math.ceil(1000 * grown / (n * (n - 1) // 2)) / 1000} or leave it out"
            )
        _fill(graph, wanted, rng)
    return graph


def _gnm(settings: GraphSettings, rng: Rng) -> "nx.Graph[int]":
    """Uniformly random edges; a graph in pieces is drawn again, since another draw may do."""
    n, density = settings.nodes, settings.density or 0.0
    wanted = _wanted_edges(n, density)
    for _ in range(REDRAWS):
        graph: nx.Graph[int] = nx.empty_graph(n)
        _fill(graph, wanted, rng)
        if not settings.connected or nx.is_connected(graph):
            return graph
    raise LNTrustError(
        f"graph.kind = gnm, graph.density = {density}: {wanted} edges left {n} nodes in pieces in each of "
        f"{REDRAWS} draws (at least {n - 1} are needed, better more); raise graph.density or set "
        "graph.connected = false"
    )


def _fill(graph: "nx.Graph[int]", wanted: int, rng: Rng) -> None:
    """Uniformly random new edges until there are `wanted`.

    Pairs are numbered 0…n(n−1)/2−1. Of `wanted` distinct numbers in random order at most the
    existing edges drop out, so enough are left, and those kept are a uniform draw from free pairs.
    """
    n, existing = graph.number_of_nodes(), graph.number_of_edges()
    if wanted <= existing:
        return
    numbers = rng.choice(n * (n - 1) // 2, size=wanted, replace=False)
    high = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > numbers
    low = numbers - high * (high - 1) // 2
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    free = [pair for pair in pairs if not graph.has_edge(*pair)]
    graph.add_edges_from(free[: wanted - existing])


def _geographic(settings: GraphSettings, positions: Float[ndarray, "n 2"], rng: Rng) -> "nx.Graph[int]":
    """Preferential attachment damped by distance.

    The `attach` largest of log-weights with Gumbel noise are distributed as draws one after another
    without replacement, and logarithms stand any distance where exp(−d/decay) would be 0.
    """
    n, m = settings.nodes, settings.attach
    graph: nx.Graph[int] = nx.complete_graph(min(n, m + 1))
    degree = np.zeros(n)
    degree[: m + 1] = m
    for i in range(m + 1, n):
        distance = haversine_km(positions[:i], positions[i])
        weight = np.log(degree[:i] + 1) - distance / settings.decay_km
        chosen = np.argsort(-(weight + rng.gumbel(size=i)))[:m]
        graph.add_edges_from((i, int(j)) for j in chosen)
        degree[chosen] += 1
        degree[i] = m
    return graph


def _nearest(settings: GraphSettings, features: Float[ndarray, "n d"]) -> "nx.Graph[int]":
    """Each node and the `attach` nodes nearest to it; an edge if either counts the other."""
    from sklearn.neighbors import NearestNeighbors

    n, k = settings.nodes, min(settings.attach, settings.nodes - 1)
    graph: nx.Graph[int] = nx.empty_graph(n)
    if k:
        near = NearestNeighbors(n_neighbors=k).fit(features).kneighbors(return_distance=False)
        graph.add_edges_from((i, int(j)) for i in range(n) for j in near[i])  # of others: never itself
    return _in_one_piece(graph, settings, f"graph.attach = {settings.attach}", "raise graph.attach")


def _from_file(settings: GraphSettings) -> "nx.Graph[int]":
    """The graph of an edge list or GraphML file; edges named twice, or both ways, count once."""
    field, n, path = f"graph.file = {settings.file!r}", settings.nodes, Path(settings.file or "")
    if not path.is_file():
        raise LNTrustError(f"{field}: there is no such file; give an edge list or a .graphml file")
    try:
        is_xml = path.suffix == ".graphml"
        stored = nx.read_graphml(path) if is_xml else nx.read_edgelist(path, nodetype=int, data=False)
        nodes = [int(node) for node in stored]
        edges = [(int(a), int(b)) for a, b, *_ in stored.edges]
    except (OSError, ValueError, TypeError, KeyError, ParseError, nx.NetworkXError) as error:
        raise LNTrustError(
            f"{field}: not readable ({error}); must be an edge list (one `a b` per line) or "
            "GraphML, with nodes named by integers"
        ) from None
    for node in nodes:
        if not 0 <= node < n:
            raise LNTrustError(f"{field}: node {node} is outside 0…{n - 1}; graph.nodes = {n}")
    for a, b in edges:
        if a == b:
            raise LNTrustError(f"{field}: node {a} has an edge to itself; an edge must join two nodes")
    graph: nx.Graph[int] = nx.empty_graph(n)
    graph.add_edges_from(edges)
    return _in_one_piece(graph, settings, field, "add edges")


def _in_one_piece(graph: "nx.Graph[int]", settings: GraphSettings, field: str, cure: str) -> "nx.Graph[int]":
    """The same graph; refused if it should be connected, and is not."""
    if settings.connected and (pieces := nx.number_connected_components(graph)) > 1:
        where = f"the graph on {settings.nodes} nodes is in {pieces} pieces"
        kind = f"graph.kind = {settings.kind}"
        raise LNTrustError(f"{kind}, {field}: {where}; {cure}, or set graph.connected = false")
    return graph
