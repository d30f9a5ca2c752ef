"""Who knows whom: the graph of a study, simple and undirected, on nodes 0…n−1."""

import math
from collections.abc import Callable
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

Builder = Callable[[], "nx.Graph[int]"]


def make_graph(
    settings: GraphSettings,
    seed: int,
    positions: Float[ndarray, "n 2"] | None = None,
    features: Float[ndarray, "n d"] | None = None,
) -> "nx.Graph[int]":
    """The graph that the settings describe.

    `positions` (latitude, longitude) serve the geographic kind, `features` the knn kind. A random
    graph in pieces is drawn again, since another draw may do; a given one is refused.
    """
    rng = generator(seed if settings.seed is None else settings.seed, "graph")
    n, kind = settings.nodes, settings.kind
    random_kinds: dict[str, Builder] = {
        "barabasi_albert": lambda: _barabasi_albert(settings, rng),
        "gnm": lambda: _gnm(settings, rng),
        "geographic": lambda: _geographic(settings, _rows(positions, settings), rng),
    }
    fixed_kinds: dict[str, Builder] = {
        "ring": lambda: nx.cycle_graph(n) if n > 2 else nx.path_graph(n),
        "complete": lambda: nx.complete_graph(n),
        "knn": lambda: _nearest(settings, _rows(features, settings)),
        "file": lambda: _from_file(settings),
    }
    build = random_kinds.get(kind) or fixed_kinds[kind]
    for _ in range(REDRAWS if kind in random_kinds else 1):
        graph = build()
        if not settings.connected or nx.is_connected(graph):
            return graph
    # The field that decides about the edges, with its value.
    shown = {"gnm": "density", "knn": "attach", "file": "file"}.get(kind)
    field = f"graph.kind = {kind}" + (f", graph.{shown} = {getattr(settings, shown)!r}" if shown else "")
    if kind in random_kinds:
        raise LNTrustError(
            f"{field}: {graph.number_of_edges()} edges left {n} nodes in pieces in each of {REDRAWS} draws "
            f"(at least {n - 1} are needed, better more); raise graph.density or set graph.connected = false"
        )
    pieces = nx.number_connected_components(graph)
    remedy = "raise graph.attach" if kind == "knn" else "add edges"
    raise LNTrustError(
        f"{field}: the graph on {n} nodes is in {pieces} pieces; {remedy}, or set graph.connected = false"
    )


def directed_edges(graph: "nx.Graph[int]") -> Int[ndarray, "E 2"]:
    """Every edge both ways, as (asker, answerer), sorted."""
    once = np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2)
    both = np.concatenate([once, once[:, ::-1]])
    return both[np.lexsort((both[:, 1], both[:, 0]))]


def haversine_km(a: Float[ndarray, "*s 2"], b: Float[ndarray, "*s 2"]) -> Float[ndarray, "*s"]:
    """Distance on the globe between (latitude, longitude) in degrees. Broadcasts."""
    first, second = np.radians(a), np.radians(b)
    half = np.sin((first - second) / 2) ** 2
    across = np.cos(first[..., 0]) * np.cos(second[..., 0]) * half[..., 1]
    return np.asarray(2 * EARTH_KM * np.arcsin(np.sqrt(np.clip(half[..., 0] + across, 0, 1))))


def _rows(given: Float[ndarray, "n d"] | None, settings: GraphSettings) -> Float[ndarray, "n d"]:
    if given is None:
        needed = "positions" if settings.kind == "geographic" else "features"
        raise LNTrustError(f"graph.kind = {settings.kind} needs {needed} of the nodes; there are none")
    if len(given) != settings.nodes:
        raise LNTrustError(f"graph.nodes = {settings.nodes}: {len(given)} nodes were given for the graph")
    return np.asarray(given, dtype=np.float64)


def _wanted_edges(n: int, density: float) -> int:
    """⌊p·n(n−1)/2⌋; the tiny addend keeps 0.29·100 from becoming 28."""
    return math.floor(density * (n * (n - 1) // 2) + 1e-9)


def _barabasi_albert(settings: GraphSettings, rng: Rng) -> "nx.Graph[int]":
    """Preferential attachment from a complete graph, then random edges up to the density."""
    n, m = settings.nodes, settings.attach
    if n <= m + 1:
        graph: nx.Graph[int] = nx.complete_graph(n)
    else:
        grown_seed = int(rng.integers(2**31))
        graph = nx.barabasi_albert_graph(n, m, seed=grown_seed, initial_graph=nx.complete_graph(m + 1))
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
    if settings.density is None:
        raise LNTrustError("graph.kind = gnm needs graph.density, a number between 0 and 1")
    graph: nx.Graph[int] = nx.empty_graph(settings.nodes)
    _fill(graph, _wanted_edges(settings.nodes, settings.density), rng)
    return graph


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

    n = settings.nodes
    graph: nx.Graph[int] = nx.empty_graph(n) if n > settings.attach + 1 else nx.complete_graph(n)
    if n <= settings.attach + 1:
        return graph
    index = NearestNeighbors(n_neighbors=settings.attach).fit(features)
    near = index.kneighbors(return_distance=False)  # of the fitted points: without themselves
    graph.add_edges_from((i, int(j)) for i in range(n) for j in near[i])
    return graph


def _from_file(settings: GraphSettings) -> "nx.Graph[int]":
    """The graph of an edge list or GraphML file; edges named twice, or both ways, count once."""
    if settings.file is None:
        raise LNTrustError("graph.kind = file needs graph.file, the path of an edge list or GraphML file")
    field, n, path = f"graph.file = {settings.file!r}", settings.nodes, Path(settings.file)
    if not path.is_file():
        raise LNTrustError(f"{field}: there is no such file; give an edge list or a .graphml file")
    try:
        is_xml = path.suffix == ".graphml"
        stored = nx.read_graphml(path) if is_xml else nx.read_edgelist(path, nodetype=int, data=False)
        nodes = [int(node) for node in stored.nodes]
        edges = [(int(edge[0]), int(edge[1])) for edge in stored.edges]
    except (OSError, ValueError, TypeError, KeyError, ParseError, nx.NetworkXError) as error:
        raise LNTrustError(
            f"{field}: not readable ({error}); must be an edge list (one `a b` per line) or "
            "GraphML, with nodes named by integers"
        ) from None
    for node in nodes:
        if not 0 <= node < n:
            raise LNTrustError(f"{field}: node {node} is outside 0…{n - 1}, the numbers of graph.nodes = {n}")
    for a, b in edges:
        if a == b:
            raise LNTrustError(f"{field}: node {a} has an edge to itself; an edge must join two nodes")
    graph: nx.Graph[int] = nx.empty_graph(n)
    graph.add_edges_from(edges)
    return graph
