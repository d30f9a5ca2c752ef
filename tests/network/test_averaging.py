"""Parameters over the door without copies, what is made for one edge, and questions about the pool."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.experiment.run import Run
from lntrust.learners.views import Views
from lntrust.network import Message, Network, Questions, encode
from lntrust.network import network as door
from lntrust.network.codec import Kind
from lntrust.study.loading import load_study
from lntrust.world import load_dataset

VIEWS = Views(load_dataset("digits"), torch.device("cpu"), torch.float64)
STUDY = [
    "graph.nodes=5", "partition.labelled=250", "partition.pool=100", "partition.shard=40",
    "training.precision=float64", "population.learners=[{name='linear', kind='linear', view='pixels'}]",
]  # fmt: skip
C = 10
# The matrix for every graph, for none, and as the share of edges decides.
PATHS = {"matrix": 10**9, "segments": 0, "as it comes": door._FULL}


def make(*overrides: str) -> Run:
    return Run(load_study("digits", [*STUDY, *overrides]), "independent", 0, VIEWS)


RUN = make()


def on(pairs: list[tuple[int, int]]) -> Network:
    """A network with these edges, both ways, whoever its nodes may be."""
    both = sorted({edge for a, b in pairs for edge in ((a, b), (b, a)) if a != b})
    edges = np.array(both, dtype=np.int64).reshape(-1, 2)
    return Network(replace(RUN.world, edges=edges), RUN.population)


@st.composite
def graphs(draw: st.DrawFn, most: int = 30) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(2, most))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node), max_size=20))


def complete(n: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(n) for b in range(a)]


def wire(kind: Kind, **tensors: np.ndarray) -> int:
    return len(encode(Message(kind, tensors, round=7, version=3)))


def total(network: Network) -> int:
    return int(network.ledger.summary()["total"])


class TestAverage:
    """The same as sending everybody's copy and adding up what arrives, in sum and in bytes."""

    @pytest.mark.parametrize("path", PATHS)
    @settings(max_examples=40)
    @given(graph=graphs(), seed=st.integers(0, 1000), width=st.integers(1, 4))
    def test_equals_sending_copies_and_adding_them_up(
        self, path: str, graph: tuple[int, list[tuple[int, int]]], seed: int, width: int
    ) -> None:
        n, pairs = graph
        averaging, sending = on(pairs), on(pairs)
        g = torch.Generator().manual_seed(seed)
        E = len(averaging.edges)
        edges = torch.randperm(E, generator=g)[: int(torch.randint(0, E + 1, (1,), generator=g))]
        weights = torch.randn(len(edges), generator=g, dtype=torch.float64)
        theta = torch.randn(n, width, generator=g, dtype=torch.float64)
        count = torch.arange(n)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(door, "_FULL", PATHS[path])
            got = averaging.average(edges, weights, theta, "mix", count=count)
        arrived = sending.send(edges, {"parameters": theta, "count": count}, "parameters", "mix")
        expected = torch.zeros_like(theta)
        for k, e in enumerate(edges.tolist()):
            expected[int(sending.edges[e, 1])] += weights[k] * arrived["parameters"][k]
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        hears = torch.zeros(n, dtype=torch.bool)
        hears[averaging.edges[edges, 1]] = True
        assert not got[~hears].any()
        assert averaging.ledger.summary() == sending.ledger.summary()
        assert averaging.ledger.payload().tolist() == sending.ledger.payload().tolist()

    @pytest.mark.parametrize(("n", "pairs", "full"), [(9, complete(9), True), (40, [(0, 1), (5, 2)], False)])
    def test_a_sparse_graph_and_a_full_one_take_different_ways(
        self, n: int, pairs: list[tuple[int, int]], full: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both ways are real: on a full graph nothing is summed by segments, on a sparse one all is."""
        network, used = on(pairs), []
        real = door.sum_by

        def watched(owner: torch.Tensor, values: torch.Tensor, n: int) -> torch.Tensor:
            used.append(len(owner))
            return real(owner, values, n)

        monkeypatch.setattr(door, "sum_by", watched)
        edges = torch.arange(len(network.edges))
        ones = torch.ones(len(edges), dtype=torch.float64)
        got = network.average(edges, ones, torch.ones(n, 3, dtype=torch.float64), "mix")
        assert used == ([] if full else [4])
        assert got[:, 0].tolist() == torch.bincount(network.edges[:, 1], minlength=n).tolist()

    def test_the_first_node_of_an_edge_sends_to_the_second(self) -> None:
        """A symmetric graph would not show it if they were mixed up: one edge does."""
        for full in PATHS.values():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(door, "_FULL", full)
                network = on([(0, 2)])  # edge 0 is 0 → 2
                theta = torch.tensor([[1.0], [10.0], [100.0]])
                got = network.average(torch.tensor([0]), torch.tensor([0.5]), theta, "mix")
            assert got.tolist() == [[0.0], [0.0], [0.5]]

    @pytest.mark.parametrize("pairs", [complete(5), [(0, 1)]], ids=["full", "sparse"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_one_message_per_edge_with_the_parameters_and_what_travels_beside(
        self, pairs: list[tuple[int, int]], dtype: torch.dtype
    ) -> None:
        network = on(pairs)
        E, P = len(network.edges), 7
        edges = torch.arange(1, E)
        beside = {"count": torch.arange(30), "spread": torch.zeros(30, 2, dtype=torch.float32)}
        network.average(
            edges, torch.ones(E - 1, dtype=dtype), torch.ones(30, P, dtype=dtype), "mix", **beside
        )
        width = 4 if dtype == torch.float32 else 8
        payload = width * P + 8 + 2 * 4
        assert network.ledger.payload("parameters", "mix").tolist() == [0] + [payload] * (E - 1)
        assert network.ledger.payload().sum() == payload * (E - 1)
        assert network.ledger.summary()["by_phase"]["mix"]["messages"] == E - 1
        number = np.float32 if dtype == torch.float32 else np.float64
        one = wire(
            "parameters", parameters=np.zeros(P, number), count=np.array(0), spread=np.zeros(2, np.float32)
        )
        assert total(network) == one * (E - 1)

    def test_nothing_sent_nothing_arrives(self) -> None:
        network, none = on(complete(3)), torch.zeros(0, dtype=torch.int64)
        assert not network.average(none, torch.zeros(0), torch.ones(3, 4), "mix").any()
        assert total(network) == 0
        assert network.ledger.summary()["by_phase"] == {}

    def test_the_senders_parameters_stay_as_they_are(self) -> None:
        for pairs in (complete(4), [(0, 1)]):
            network = on(pairs)
            theta = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
            kept = theta.clone()
            edges = torch.arange(len(network.edges))
            network.average(edges, torch.ones(len(edges)), theta, "mix").zero_()
            assert torch.equal(theta, kept)

    def test_evaluation_is_not_charged(self) -> None:
        network = on(complete(3))
        with network.uncharged():
            network.average(torch.arange(6), torch.ones(6), torch.ones(3, 4), "mix")
        assert total(network) == 0


DTYPES = {
    torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16, torch.int64: np.int64,
    torch.int32: np.int32, torch.uint8: np.uint8, torch.bool: np.bool_,
}  # fmt: skip


class TestBroken:
    def test_a_broken_model_reaches_its_neighbours_and_nobody_else(self) -> None:
        """0 · NaN is NaN: a full matrix would carry it to everybody."""
        n = 6
        pairs = [(i, (i + 1) % n) for i in range(n)] + [((i + 1) % n, i) for i in range(n)]
        network = on(pairs)
        edges = torch.arange(len(network.edges))
        theta = torch.ones(n, 3, dtype=torch.float64)
        theta[0, 1] = torch.nan
        got = network.average(edges, torch.ones(len(edges), dtype=torch.float64), theta, "mix")
        assert torch.nonzero(~got.isfinite().all(1)).flatten().tolist() == [1, n - 1]


class TestPost:
    """What a sender has made for one edge apart: only the books are the network's business."""

    @settings(max_examples=40)
    @given(
        st.dictionaries(
            st.text("abc_é", min_size=1, max_size=6),
            st.tuples(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 4), max_size=2)),
            min_size=1,
            max_size=3,
        ),
        st.sampled_from(["parameters", "anchors", "reply"]),
    )
    def test_books_exactly_the_bytes_of_the_tensors(
        self, specs: dict[str, tuple[torch.dtype, list[int]]], kind: door.Sent
    ) -> None:
        network = on(complete(3))
        edges = torch.tensor([4, 1])
        tensors = {name: torch.zeros(2, *shape, dtype=dtype) for name, (dtype, shape) in specs.items()}
        network.charge(edges, tensors, kind, "fit")
        arrays = {name: np.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in specs.items()}
        assert total(network) == 2 * wire(kind, **arrays)
        payload = sum(a.nbytes for a in arrays.values())
        expected = [payload if e in (1, 4) else 0 for e in range(6)]
        assert network.ledger.payload(kind, "fit").tolist() == expected
        assert network.ledger.summary()["by_phase"]["fit"]["messages"] == 2

    def test_nothing_under_uncharged_and_nothing_for_no_edge(self) -> None:
        network = on(complete(3))
        with network.uncharged():
            network.charge(torch.tensor([0]), {"x": torch.zeros(1, 3)}, "anchors", "fit")
        network.charge(torch.zeros(0, dtype=torch.int64), {"x": torch.zeros(0, 3)}, "anchors", "fit")
        assert total(network) == 0
        network.charge(torch.tensor([0]), {"x": torch.zeros(1, 3)}, "anchors", "fit")
        assert network.ledger.payload("anchors").tolist() == [12, 0, 0, 0, 0, 0]

    def test_nobody_posts_what_the_codec_cannot_carry(self) -> None:
        with pytest.raises(LNTrustError, match="not bfloat16"):
            on([(0, 1)]).charge(
                torch.tensor([0]), {"x": torch.zeros(1, 2, dtype=torch.bfloat16)}, "anchors", "x"
            )


class TestPool:
    """What everybody is known to have goes by its number, whatever a study says about shards."""

    @pytest.mark.parametrize("query", ["inputs", "ids", "handle"])
    def test_questions_about_it_are_charged_as_ids(self, query: str) -> None:
        run = make(f"network.query={query}")
        network, E = Network(run.world, run.population), len(run.world.edges)
        ids = torch.from_numpy(run.world.partition.pool[:6]).expand(5, 6)
        by_id = wire("query", ids=np.zeros(6, np.uint32))
        back = wire("reply", probabilities=np.zeros((6, C), np.float32))
        for times in (1, 2):  # a handle would cost more the first time
            replies = network.ask(Questions.of(ids, "pool"), "public")
            assert network.ledger.payload("query").tolist() == [times * 6 * 4] * E
            assert total(network) == times * E * (by_id + back)
        everything = run.population.predict_all(ids[0])
        torch.testing.assert_close(replies.regular(), everything[network.edges[:, 1]])

    def test_a_shard_goes_by_id_only_where_the_study_says_so(self) -> None:
        """The control: the very same examples, asked about as a shard."""
        run = make("network.query=inputs")
        network = Network(run.world, run.population)
        ids = torch.from_numpy(run.world.partition.pool[:6]).expand(5, 6)
        network.ask(Questions.of(ids, "shard"), "public")
        assert network.ledger.payload("query").tolist() == [6 * 64] * len(run.world.edges)
