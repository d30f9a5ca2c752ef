"""Tensors over the door: copies, what is made for one edge, and averages without copies."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import make, total, wire

from lntrust.core.errors import LNTrustError
from lntrust.network import Network
from lntrust.network.network import Sent

RUN = make()
Pairs = list[tuple[int, int]]
DTYPES: dict[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16, torch.int64: np.int64,
    torch.int32: np.int32, torch.uint8: np.uint8, torch.bool: np.bool_,
}  # fmt: skip


def on(pairs: Pairs) -> Network:
    """A network with these edges, both ways, whoever its nodes may be."""
    both = sorted({edge for a, b in pairs for edge in ((a, b), (b, a)) if a != b})
    edges = np.array(both, dtype=np.int64).reshape(-1, 2)
    return Network(replace(RUN.world, edges=edges), RUN.population)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Pairs]:
    """Full ones, over which a matrix averages, and sparse ones, summed edge by edge."""
    n = draw(st.integers(2, 8) | st.integers(25, 30))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node), max_size=20))


def complete(n: int) -> Pairs:
    return [(a, b) for a in range(n) for b in range(a)]


class TestSend:
    def test_what_is_sent_arrives_as_a_copy(self) -> None:
        network = on(complete(5))
        tensors = {"weight": torch.randn(5, 10, 64), "bias": torch.randn(5, 10, dtype=torch.float64)}
        kept = {name: t.clone() for name, t in tensors.items()}
        received = network.send(torch.arange(20), tensors, "parameters", "gossip")
        for name, t in kept.items():
            assert torch.equal(received[name], t[network.edges[:, 0]])
            received[name].zero_()
            assert torch.equal(tensors[name], t)

    def test_nobody_sends_what_the_codec_cannot_carry(self) -> None:
        x = {"x": torch.zeros(5, 2, dtype=torch.bfloat16)}
        for way in (on([(0, 1)]).send, on([(0, 1)]).charge):
            with pytest.raises(LNTrustError, match="not bfloat16"):
                way(torch.tensor([0]), x, "anchors", "x")


class TestCharge:
    """What a sender has made for one edge apart: only its bytes are the network's business."""

    @settings(max_examples=40)
    @given(
        st.dictionaries(
            st.text("abc_é", min_size=1, max_size=6),
            st.tuples(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 4), max_size=2)),
            min_size=1, max_size=3,
        ),
        st.sampled_from(["parameters", "anchors", "reply"]),
    )  # fmt: skip
    def test_books_exactly_the_bytes_of_the_tensors(
        self, specs: dict[str, tuple[torch.dtype, list[int]]], kind: Sent
    ) -> None:
        network = on(complete(3))
        tensors = {name: torch.zeros(2, *shape, dtype=dtype) for name, (dtype, shape) in specs.items()}
        network.charge(torch.tensor([4, 1]), tensors, kind, "fit")
        arrays = {name: np.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in specs.items()}
        assert total(network) == 2 * wire(kind, **arrays)
        payload = sum(a.nbytes for a in arrays.values())
        assert network.ledger.payload(kind, "fit").tolist() == [0, payload, 0, 0, payload, 0]
        assert network.ledger.summary()["by_phase"]["fit"]["messages"] == 2

    def test_nothing_under_uncharged_and_nothing_for_no_edge(self) -> None:
        network, x = on(complete(3)), {"x": torch.zeros(1, 3)}
        with network.uncharged():
            network.charge(torch.tensor([0]), x, "anchors", "fit")
            network.average(torch.arange(6), torch.ones(6), torch.ones(3, 4), "mix")
        network.charge(torch.zeros(0, dtype=torch.int64), x, "anchors", "fit")
        assert total(network) == 0
        network.charge(torch.tensor([0]), x, "anchors", "fit")
        assert network.ledger.payload("anchors").tolist() == [12, 0, 0, 0, 0, 0]


class TestAverage:
    """The same as sending everybody's copy and adding up what arrives, in sum and in bytes."""

    @settings(max_examples=80)
    @given(graph=graphs(), seed=st.integers(0, 1000), width=st.integers(1, 4))
    def test_equals_sending_copies_and_adding_them_up(
        self, graph: tuple[int, Pairs], seed: int, width: int
    ) -> None:
        n, pairs = graph
        averaging, sending = on(pairs), on(pairs)
        g = torch.Generator().manual_seed(seed)
        E = len(averaging.edges)
        edges = torch.randperm(E, generator=g)[: int(torch.randint(0, E + 1, (1,), generator=g))]
        weights = torch.randn(len(edges), generator=g, dtype=torch.float64)
        theta = torch.randn(n, width, generator=g, dtype=torch.float64)
        kept, count = theta.clone(), torch.arange(n)
        got = averaging.average(edges, weights, theta, "mix", count=count)
        assert torch.equal(theta, kept)
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

    @pytest.mark.parametrize("n", [3, 40], ids=["full", "sparse"])
    def test_the_first_node_of_an_edge_sends_to_the_second(self, n: int) -> None:
        """A symmetric graph would not show it if they were mixed up: one edge does."""
        theta = 10.0 ** torch.arange(n, dtype=torch.float64)[:, None]
        got = on([(0, 2)]).average(torch.tensor([0]), torch.tensor([0.5]).double(), theta, "mix")
        assert got[:3].tolist() == [[0.0], [0.0], [0.5]]
        assert not got[3:].any()

    def test_a_broken_model_reaches_its_neighbours_and_nobody_else(self) -> None:
        """0 · NaN is NaN: a full matrix would carry it to everybody."""
        n = 6
        network = on([(i, (i + 1) % n) for i in range(n)])
        theta = torch.ones(n, 3, dtype=torch.float64)
        theta[0, 1] = torch.nan
        got = network.average(torch.arange(2 * n), torch.ones(2 * n, dtype=torch.float64), theta, "mix")
        assert torch.nonzero(~got.isfinite().all(1)).flatten().tolist() == [1, n - 1]
