"""The door between nodes: what comes through is right, and every byte of it is booked."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

from lntrust.core.errors import LNTrustError
from lntrust.experiment.run import Run
from lntrust.learners.views import Views
from lntrust.network import Message, Network, Questions, encode
from lntrust.network import answer_cache as table
from lntrust.network.codec import Kind
from lntrust.network.questions import Source
from lntrust.study.loading import load_study
from lntrust.world import Ragged, World, load_dataset

VIEWS = Views(load_dataset("digits"), torch.device("cpu"), torch.float32)
LINEAR = "population.learners=[{name='linear', kind='linear', view='pixels'}]"
SMALL = ["graph.nodes=5", "partition.labelled=250", "partition.pool=100", "partition.shard=40",
         "training.stage1_rounds=1", "training.stage2_rounds=0"]  # fmt: skip
INPUT, C = 64, 10  # bytes of one input, uint8[8, 8]; classes

PATHS = pytest.mark.parametrize("wide", [0.0, 1e9], ids=["wide", "pairs"])


def make(*overrides: str, trained: bool = False) -> Run:
    run = Run(load_study("digits", [*SMALL, LINEAR, *overrides]), "independent", 0, VIEWS)
    if trained:
        run()
    return run


@pytest.fixture(scope="module")
def mixed() -> Run:
    """Linear, MLP and forest in turn, a little trained, so that all answer differently."""
    kinds = ", ".join(
        f"{{name='{kind}', kind='{kind}', view='pixels'{more}}}"
        for kind, more in (("linear", ""), ("mlp", ", options={hidden=5}"), ("forest", ", options={trees=3}"))
    )
    return make("graph.nodes=7", "partition.labelled=350", f"population.learners=[{kinds}]", trained=True)


def fresh(run: Run) -> Network:
    return Network(run.world, run.population)


def questions(world: World, B: int, source: Source) -> Questions:
    """B different examples per node, of the shard or the validation set."""
    lists = world.partition.validation if source == "validation" else world.partition.shard
    return Questions.of(torch.from_numpy(np.stack([ids[:B] for ids in lists])), source)


def uneven(world: World, source: Source = "shard") -> tuple[Questions, Ragged]:
    """Node i asks about i mod 3 · 2 examples: some about none."""
    lists = Ragged.of([ids[: (i % 3) * 2] for i, ids in enumerate(world.partition.shard)])
    return Questions.ragged(lists, source, torch.device("cpu")), lists


def wire(kind: Kind, **tensors: np.ndarray) -> int:
    return len(encode(Message(kind, tensors, round=7, version=3)))


def total(network: Network) -> int:
    return int(network.ledger.summary()["total"])


# -- answers ------------------------------------------------------------------------------------------


@PATHS
def test_replies_are_the_answerers_predictions_edge_by_edge(
    mixed: Run, wide: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "WIDE", wide)
    asked = questions(mixed.world, 6, "shard")
    replies = fresh(mixed).ask(asked, "probe")
    everything = mixed.population.predict_all(torch.arange(1797))
    assert len(torch.unique(everything[:, 0], dim=0)) == 7
    assert replies.edge.tolist() == list(range(len(mixed.world.edges)))
    assert replies.regular().shape == (len(mixed.world.edges), 6, C)
    for k, (asker, answerer) in enumerate(mixed.world.edges.tolist()):
        ids = asked.ids.view(7, 6)[asker]
        torch.testing.assert_close(replies.regular()[k], everything[answerer, ids], rtol=0, atol=1e-6)


@PATHS
def test_uneven_questions_are_answered_each_in_its_place(
    mixed: Run, wide: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "WIDE", wide)
    asked, lists = uneven(mixed.world)
    edges = torch.tensor([9, 2, 5, 0, 12, 7])  # some of the edges, in any order
    replies = fresh(mixed).ask(asked, "probe", edges)
    everything = mixed.population.predict_all(torch.arange(1797))
    assert torch.equal(replies.edge, edges)
    for k, e in enumerate(edges.tolist()):
        asker, answerer = mixed.world.edges[e]
        part = slice(int(replies.offsets[k]), int(replies.offsets[k + 1]))
        assert asked.ids[replies.question[part]].tolist() == lists[asker].tolist()
        expected = everything[answerer, lists[asker]]
        torch.testing.assert_close(replies.probabilities[part], expected, rtol=0, atol=1e-6)
    assert int(replies.offsets[-1]) == len(replies.probabilities) == len(replies.question)


def test_replies_come_from_the_models_as_they_stand() -> None:
    run = make()
    network = fresh(run)
    asked = questions(run.world, 4, "shard")
    before = network.ask(asked, "probe").probabilities.clone()
    run()
    after = network.ask(asked, "probe").probabilities
    assert not torch.allclose(before, after)


# -- bytes of questions -------------------------------------------------------------------------------


def check_books(network: Network, asked: Iterable[tuple[int, int]], per_query: Any) -> None:
    """Payload per directed edge: the query on the edge itself, the reply on its way back."""
    edges = [tuple(edge) for edge in network.ledger.edges.tolist()]
    query, reply = [0] * len(edges), [0] * len(edges)
    for e, B in asked:
        query[e] += per_query(B)
        reply[edges.index(edges[e][::-1])] += 4 * C * B
    assert network.ledger.payload("query").tolist() == query
    assert network.ledger.payload("reply").tolist() == reply


def test_queries_go_out_and_replies_come_back() -> None:
    run = make()
    network = fresh(run)
    network.ask(questions(run.world, 9, "shard"), "distil")
    E = len(run.world.edges)
    check_books(network, ((e, 9) for e in range(E)), lambda B: B * INPUT)
    one = wire("query", inputs=np.zeros((9, 8, 8), np.uint8))
    back = wire("reply", probabilities=np.zeros((9, C), np.float32))
    assert total(network) == E * (one + back)
    assert network.ledger.summary()["by_phase"]["distil"]["messages"] == 2 * E


def test_uneven_questions_are_charged_each_by_its_length() -> None:
    run = make()
    network, (asked, lists) = fresh(run), uneven(run.world)
    edges = torch.tensor([3, 0, 5, 1])
    network.ask(asked, "probe", edges)
    lengths = [(e, len(lists[run.world.edges[e, 0]])) for e in edges.tolist()]
    check_books(network, lengths, lambda B: B * INPUT)
    assert total(network) == sum(
        wire("query", inputs=np.zeros((B, 8, 8), np.uint8))
        + wire("reply", probabilities=np.zeros((B, C), np.float32))
        for _, B in lengths
        if B > 0
    )


def test_the_reply_of_one_asked_edge_is_booked_the_other_way() -> None:
    run = make("graph.kind=complete")
    for e, (asker, answerer) in enumerate(run.world.edges.tolist()):
        network = fresh(run)
        network.ask(questions(run.world, 2, "shard"), "probe", torch.tensor([e]))
        ((way,),) = np.nonzero(network.ledger.payload("reply"))
        assert run.world.edges[way].tolist() == [answerer, asker]
        assert np.flatnonzero(network.ledger.payload("query")).tolist() == [e]


@pytest.mark.parametrize("source", ["validation", "batch", "deployment"])
def test_ids_are_for_public_examples_only(source: Source) -> None:
    run = make("network.query=ids")
    network = fresh(run)
    E = len(run.world.edges)
    network.ask(questions(run.world, 5, "shard"), "distil")
    check_books(network, ((e, 5) for e in range(E)), lambda B: 4 * B)
    before = network.ledger.payload("query").copy()
    by_id = wire("query", ids=np.zeros(5, np.uint32))
    back = wire("reply", probabilities=np.zeros((5, C), np.float32))
    assert total(network) == E * (by_id + back)
    network.ask(questions(run.world, 5, source), "probe")
    assert (network.ledger.payload("query") - before).tolist() == [5 * INPUT] * E


@pytest.mark.parametrize("source", ["shard", "validation"])
def test_a_handle_pays_for_the_set_once_per_edge(source: Source) -> None:
    run = make("network.query=handle")
    network, E = fresh(run), len(run.world.edges)
    asked = questions(run.world, 5, source)
    lists = run.world.partition.shard if source == "shard" else run.world.partition.validation
    sizes = [int(lists.lengths[asker]) for asker in run.world.edges[:, 0]]
    network.ask(asked, "probe", torch.tensor([1]))
    deposit, then = 8 + sizes[1] * INPUT, 8 + 4 * 5
    assert network.ledger.payload("query")[1] == deposit + then
    assert total(network) == (
        wire("query", handle=np.zeros(1, np.int64), inputs=np.zeros((sizes[1], 8, 8), np.uint8))
        + wire("query", handle=np.zeros(1, np.int64), positions=np.zeros(5, np.uint32))
        + wire("reply", probabilities=np.zeros((5, C), np.float32))
    )
    network.ask(asked, "probe")
    network.ask(asked, "probe")
    expected = [8 + m * INPUT + 2 * then for m in sizes]
    expected[1] += then
    assert network.ledger.payload("query").tolist() == expected
    assert network.ledger.payload("reply").sum() == (2 * E + 1) * 4 * C * 5


def test_handles_are_for_sets_that_stay() -> None:
    """Batches and deployed queries are new each time: they travel."""
    run = make("network.query=handle")
    for source in ("batch", "deployment"):
        network = fresh(run)
        network.ask(questions(run.world, 5, source), "probe")  # type: ignore[arg-type]
        assert network.ledger.payload("query").tolist() == [5 * INPUT] * len(run.world.edges)


def test_shard_and_validation_have_handles_of_their_own() -> None:
    run = make("network.query=handle")
    network = fresh(run)
    for source in ("shard", "validation"):
        network.ask(questions(run.world, 5, source), "probe", torch.tensor([0]))  # type: ignore[arg-type]
    p, asker = run.world.partition, run.world.edges[0, 0]
    both = len(p.shard[asker]) + len(p.validation[asker])
    assert network.ledger.payload("query")[0] == 2 * (8 + 8 + 4 * 5) + both * INPUT


@pytest.mark.parametrize("query", ["inputs", "ids", "handle"])
def test_nothing_asked_nothing_sent(query: str) -> None:
    run = make(f"network.query={query}")
    network = fresh(run)
    replies = network.ask(Questions.of(torch.zeros(5, 0, dtype=torch.int64), "shard"), "probe")
    assert replies.probabilities.shape == (0, C)
    assert replies.regular().shape == (len(run.world.edges), 0, C)
    network.ask(questions(run.world, 3, "shard"), "probe", torch.zeros(0, dtype=torch.int64))
    assert total(network) == 0
    assert all(phase["messages"] == 0 for phase in network.ledger.summary()["by_phase"].values())


def test_evaluation_is_not_charged() -> None:
    run = make("network.query=handle")
    network = fresh(run)
    asked = questions(run.world, 5, "shard")
    with network.uncharged():
        free = network.ask(asked, "probe")
        with network.uncharged():
            pass
        network.send(torch.tensor([0]), {"x": torch.zeros(5, 2)}, "parameters", "probe")
    assert total(network) == 0
    paid = network.ask(asked, "probe")
    assert torch.equal(free.probabilities, paid.probabilities)
    assert network.ledger.payload("query").min() > 40 * INPUT  # what was free deposited nothing
    before = total(network)
    with pytest.raises(RuntimeError), network.uncharged():
        raise RuntimeError
    network.ask(asked, "probe")
    assert total(network) > before


@pytest.mark.parametrize("members", [0, 1, 4])
def test_a_deployed_query_costs_what_its_messages_weigh(members: int) -> None:
    one = wire("query", inputs=np.zeros((1, 8, 8), np.uint8))
    back = wire("reply", probabilities=np.zeros((1, C), np.float32))
    for query in ("inputs", "ids", "handle"):
        network = fresh(make(f"network.query={query}"))
        assert network.deployment_bytes(members) == members * (one + back)
        assert total(network) == 0


# -- sending ------------------------------------------------------------------------------------------


def test_what_is_sent_arrives_as_a_copy() -> None:
    run = make()
    network = fresh(run)
    weight, bias = torch.randn(5, 10, 64), torch.randn(5, 10, dtype=torch.float64)
    kept = weight.clone(), bias.clone()
    edges = torch.arange(len(run.world.edges))
    received = network.send(edges, {"weight": weight, "bias": bias}, "parameters", "gossip")
    sender = torch.from_numpy(run.world.edges[:, 0])
    assert torch.equal(received["weight"], weight[sender])
    assert torch.equal(received["bias"], bias[sender])
    received["weight"].zero_()
    received["bias"].zero_()
    assert torch.equal(weight, kept[0])
    assert torch.equal(bias, kept[1])


def test_what_is_sent_is_booked_on_the_senders_edge() -> None:
    run = make()
    network = fresh(run)
    edges = torch.tensor([4, 1])
    tensors = {"weight": torch.zeros(5, 10, 64), "steps": torch.zeros(5, dtype=torch.int64)}
    network.send(edges, tensors, "anchors", "gossip")
    expected = [0] * len(run.world.edges)
    expected[4] = expected[1] = 10 * 64 * 4 + 8
    assert network.ledger.payload("anchors", "gossip").tolist() == expected
    one = wire("anchors", weight=np.zeros((10, 64), np.float32), steps=np.array(0))
    assert total(network) == 2 * one


def test_nobody_sends_what_the_codec_cannot_carry() -> None:
    with pytest.raises(LNTrustError, match="not bfloat16"):
        fresh(make()).send(torch.tensor([0]), {"x": torch.zeros(5, 2, dtype=torch.bfloat16)}, "anchors", "x")


# -- nodes that answer wrongly ------------------------------------------------------------------------

WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "silent": lambda _: None,
    "another shape": lambda p: p[:, :-1],
    "not a number": lambda p: p.index_fill(0, torch.tensor([1]), torch.nan),
    "negative": lambda p: p - 0.5,
    "too much": lambda p: 1.5 * p,
    "infinite": lambda p: p / 0,
}


@pytest.mark.parametrize("how", WRONG)
def test_a_reply_that_is_no_probability_is_refused_whole(how: str) -> None:
    run = make("graph.kind=complete")
    honest, network = fresh(run), fresh(run)
    network.misbehaviour[2] = WRONG[how]
    asked = questions(run.world, 4, "shard")
    right, replies = honest.ask(asked, "probe"), network.ask(asked, "probe")
    from_wrong = torch.from_numpy(run.world.edges[:, 1] == 2)
    assert torch.equal(replies.sound, ~from_wrong)
    assert network.faulty.tolist() == from_wrong.long().tolist()
    assert not replies.regular()[from_wrong].any()
    assert torch.equal(replies.regular()[~from_wrong], right.regular()[~from_wrong])
    assert right.sound.all()
    resumed = fresh(run)
    resumed.load(network.state())
    assert resumed.faulty.tolist() == network.faulty.tolist()


def test_a_lie_in_good_form_is_heard() -> None:
    run = make("graph.kind=complete")
    network = fresh(run)
    network.misbehaviour[2] = lambda p: p.flip(1)
    asked = questions(run.world, 4, "shard")
    replies, honest = network.ask(asked, "probe"), fresh(run).ask(asked, "probe")
    of_liar = torch.from_numpy(run.world.edges[:, 1] == 2)
    assert replies.sound.all()
    assert torch.equal(replies.regular()[of_liar], honest.regular()[of_liar].flip(2))
    assert torch.equal(replies.regular()[~of_liar], honest.regular()[~of_liar])
    assert not network.faulty.any()


# -- small worlds, and keeping ------------------------------------------------------------------------


def test_a_node_alone_has_nobody_to_ask() -> None:
    run = make("graph.nodes=1", "partition.labelled=60")
    network = fresh(run)
    assert network.edges.shape == (0, 2)
    replies = network.ask(questions(run.world, 3, "shard"), "probe")
    assert replies.regular().shape[0] == 0
    assert network.send(torch.zeros(0, dtype=torch.int64), {"x": torch.zeros(1, 2)}, "anchors", "x")[
        "x"
    ].shape == (0, 2)
    assert total(network) == 0
    assert network.ledger.payload().tolist() == []
    assert run()["bytes"]["total"] == 0


def test_an_isolated_node_is_left_out() -> None:
    run = make("graph.kind=gnm", "graph.density=0.1", "graph.connected=false")  # one edge for five nodes
    assert len(run.world.edges) == 2
    replies = fresh(run).ask(questions(run.world, 3, "shard"), "probe")
    assert replies.regular().shape == (2, 3, C)


def test_a_loaded_network_remembers_bytes_and_deposits() -> None:
    run = make("network.query=handle")
    through, resumed = fresh(run), fresh(run)
    through.ask(questions(run.world, 5, "shard"), "probe", torch.tensor([0, 3]))
    through.ask(questions(run.world, 5, "validation"), "probe", torch.tensor([2]))
    resumed.load(through.state())
    for network in (through, resumed):
        network.ask(questions(run.world, 4, "shard"), "distil")
        network.ask(questions(run.world, 4, "validation"), "probe")
    assert resumed.ledger.summary() == through.ledger.summary()
    assert resumed.ledger.payload().tolist() == through.ledger.payload().tolist()
