"""Questions and replies through the door: what comes through is right, and every byte of it is booked."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import INPUT, C, answer, make, question, total, wire
from small_runs import MIXED

from lntrust.experiment.driver import Run
from lntrust.network import Network, Questions, ReplyEncoding, Source, WireFormat, size
from lntrust.world import Ragged, World

PATHS = pytest.mark.parametrize("wide", [0.0, 1e9], ids=["wide", "pairs"])
NAMINGS = pytest.mark.parametrize("query", ["inputs", "ids", "handle"])


@pytest.fixture(scope="module")
def mixed() -> Run:
    """Linear, MLP and forest in turn, a little trained, so that all answer differently."""
    return make("graph.nodes=7", "partition.labelled=350", MIXED, trained=True)


def fresh(run: Run, **options: Any) -> Network:
    return Network(run.world, run.population, **options)


def questions(world: World, B: int, source: Source) -> Questions:
    """B different examples per node, of the pool, the validation set or the shard."""
    p = world.partition
    lists = {"pool": [p.pool] * world.n, "validation": p.validation}.get(source, p.shard)
    return Questions.of(torch.from_numpy(np.stack([ids[:B] for ids in lists])), source)


def uneven(world: World, source: Source = "shard") -> tuple[Questions, Ragged]:
    """Node i asks about i mod 3 · 2 examples: some about none."""
    lists = Ragged.of([ids[: (i % 3) * 2] for i, ids in enumerate(world.partition.shard)])
    return Questions.ragged(lists, source, torch.device("cpu")), lists


class TestAnswers:
    @PATHS
    def test_replies_are_the_answerers_predictions_edge_by_edge(self, mixed: Run, wide: float) -> None:
        asked = questions(mixed.world, 6, "shard")
        replies = fresh(mixed, wide=wide).ask(asked, "probe")
        everything = mixed.population.predict_all(torch.arange(1797))
        assert len(torch.unique(everything[:, 0], dim=0)) == 7
        assert replies.edge.tolist() == list(range(len(mixed.world.edges)))
        assert replies.regular().shape == (len(mixed.world.edges), 6, C)
        for k, (asker, answerer) in enumerate(mixed.world.edges.tolist()):
            ids = asked.ids.view(7, 6)[asker]
            torch.testing.assert_close(replies.regular()[k], everything[answerer, ids], rtol=0, atol=1e-6)

    @PATHS
    def test_uneven_questions_are_answered_each_in_its_place(self, mixed: Run, wide: float) -> None:
        asked, lists = uneven(mixed.world)
        edges = torch.tensor([9, 2, 5, 0, 12, 7])  # some of the edges, in any order
        replies = fresh(mixed, wide=wide).ask(asked, "probe", edges)
        everything = mixed.population.predict_all(torch.arange(1797))
        assert torch.equal(replies.edge, edges)
        for k, e in enumerate(edges.tolist()):
            asker, answerer = mixed.world.edges[e]
            part = slice(int(replies.route.offsets[k]), int(replies.route.offsets[k + 1]))
            assert asked.ids[replies.route.question[part]].tolist() == lists[asker].tolist()
            expected = everything[answerer, lists[asker]]
            torch.testing.assert_close(replies.probabilities[part], expected, rtol=0, atol=1e-6)
        assert int(replies.route.offsets[-1]) == len(replies.probabilities) == len(replies.route.question)

    def test_replies_come_from_the_models_as_they_stand(self) -> None:
        run = make()
        network, asked = fresh(run), questions(run.world, 4, "shard")
        before = network.ask(asked, "probe").probabilities.clone()
        run()
        assert not torch.allclose(before, network.ask(asked, "probe").probabilities)


class TestBytes:
    def check(self, network: Network, asked: Iterable[tuple[int, int]], each: int) -> None:
        """Payload per directed edge: the query on the edge itself, the reply on its way back."""
        edges = [tuple(edge) for edge in network.ledger.edges.tolist()]
        query, reply = [0] * len(edges), [0] * len(edges)
        for e, B in asked:
            query[e] += each * B
            reply[edges.index(edges[e][::-1])] += 4 * C * B
        assert network.ledger.payload("query").tolist() == query
        assert network.ledger.payload("reply").tolist() == reply

    @pytest.mark.parametrize(
        ("query", "source", "by_id"),
        [("inputs", "pool", True), ("ids", "pool", True), ("handle", "pool", True), ("ids", "shard", True),
         ("inputs", "shard", False), ("ids", "validation", False), ("ids", "batch", False),
         ("ids", "deployment", False), ("handle", "batch", False), ("handle", "deployment", False)],
    )  # fmt: skip
    def test_what_all_have_goes_by_id_and_what_is_private_or_new_travels(
        self, query: str, source: Source, by_id: bool
    ) -> None:
        run = make(f"network.query={query}")
        network, E, asked = fresh(run), len(run.world.edges), questions(run.world, 5, source)
        sent = wire("query", ids=np.zeros(5, np.uint32)) if by_id else question(5)
        for times in (1, 2):  # a handle would cost more the first time
            replies = network.ask(asked, "distil")
            self.check(network, ((e, 5 * times) for e in range(E)), 4 if by_id else INPUT)
            assert total(network) == times * E * (sent + answer(5))
        assert network.ledger.summary()["by_phase"]["distil"]["messages"] == 2 * 2 * E
        if source == "pool":
            said = run.population.predict_all(asked.ids[:5])
            torch.testing.assert_close(replies.regular(), said[network.edges[:, 1]])

    def test_uneven_questions_are_charged_each_by_its_length(self) -> None:
        run = make()
        network, (asked, lists) = fresh(run), uneven(run.world)
        edges = torch.tensor([3, 0, 5, 1])
        network.ask(asked, "probe", edges)
        lengths = [(e, len(lists[run.world.edges[e, 0]])) for e in edges.tolist()]
        self.check(network, lengths, INPUT)
        assert total(network) == sum(question(B) + answer(B) for _, B in lengths if B > 0)

    @pytest.mark.parametrize("source", ["shard", "validation"])
    def test_a_handle_pays_for_the_set_once_per_edge(self, source: Source) -> None:
        run = make("network.query=handle")
        network, E = fresh(run), len(run.world.edges)
        asked = questions(run.world, 5, source)
        lists = run.world.partition.shard if source == "shard" else run.world.partition.validation
        sizes = [int(lists.lengths[asker]) for asker in run.world.edges[:, 0]]
        network.ask(asked, "probe", torch.tensor([1]))
        deposit, then = 8 + sizes[1] * INPUT, 8 + 4 * 5
        assert network.ledger.payload("query")[1] == deposit + then
        handle = np.zeros(1, np.int64)
        assert total(network) == (
            wire("query", handle=handle, inputs=np.zeros((sizes[1], 8, 8), np.uint8))
            + wire("query", handle=handle, positions=np.zeros(5, np.uint32))
            + answer(5)
        )
        network.ask(asked, "probe")
        network.ask(asked, "probe")
        expected = [8 + m * INPUT + 2 * then for m in sizes]
        expected[1] += then
        assert network.ledger.payload("query").tolist() == expected
        assert network.ledger.payload("reply").sum() == (2 * E + 1) * 4 * C * 5

    def test_shard_and_validation_have_handles_of_their_own(self) -> None:
        run = make("network.query=handle")
        network = fresh(run)
        for source in ("shard", "validation"):
            network.ask(questions(run.world, 5, source), "probe", torch.tensor([0]))
        p, asker = run.world.partition, run.world.edges[0, 0]
        both = len(p.shard[asker]) + len(p.validation[asker])
        assert network.ledger.payload("query")[0] == 2 * (8 + 8 + 4 * 5) + both * INPUT

    @NAMINGS
    def test_nothing_asked_nothing_sent(self, query: str) -> None:
        run = make(f"network.query={query}")
        network = fresh(run)
        replies = network.ask(Questions.of(torch.zeros(5, 0, dtype=torch.int64), "shard"), "probe")
        assert replies.probabilities.shape == (0, C)
        assert replies.regular().shape == (len(run.world.edges), 0, C)
        network.ask(questions(run.world, 3, "shard"), "probe", torch.zeros(0, dtype=torch.int64))
        assert total(network) == 0
        assert network.ledger.summary()["by_phase"] == {}

    def test_evaluation_is_not_charged(self) -> None:
        run = make("network.query=handle")
        network, asked = fresh(run), questions(run.world, 5, "shard")
        with network.uncharged():
            free = network.ask(asked, "probe")
            with network.uncharged():
                pass
            network.send(torch.tensor([0]), {"x": torch.zeros(5, 2)}, "parameters", "probe")
        assert total(network) == 0
        assert torch.equal(free.probabilities, network.ask(asked, "probe").probabilities)
        assert network.ledger.payload("query").min() > 40 * INPUT  # what was free deposited nothing
        before = total(network)
        with pytest.raises(RuntimeError), network.uncharged():
            raise RuntimeError
        network.ask(asked, "probe")
        assert total(network) > before

    @NAMINGS
    def test_a_deployed_query_costs_what_its_messages_weigh(self, query: str) -> None:
        network = fresh(make(f"network.query={query}"))
        for members in (0, 1, 4):
            assert network.deployment_bytes(members) == members * (question(1) + answer(1))
        assert total(network) == 0


class TestWireFormat:
    """How a method's questions and replies travel, where it does not leave that to the study."""

    @pytest.fixture(scope="class")
    def one(self) -> Run:
        return make(trained=True)

    @NAMINGS
    def test_the_method_has_the_last_word_about_queries(self, one: Run, query: str) -> None:
        booked = []
        for study, method in ((query, None), ("handle", query), ("inputs", query)):
            network = fresh(make(f"network.query={study}"), wire_format=WireFormat(query=method))  # type: ignore[arg-type]
            for source in ("shard", "validation"):
                network.ask(questions(one.world, 9, source), "probe")
            booked.append(network.ledger.summary())
        assert booked[0] == booked[1] == booked[2]

    @pytest.mark.parametrize("name", ["uint8", "top1", "top3"])
    def test_replies_are_booked_and_heard_as_encoded(self, one: Run, name: str) -> None:
        encoding, asked = ReplyEncoding(name), questions(one.world, 9, "shard")
        said = fresh(one).ask(asked, "probe").regular()
        network = fresh(one, wire_format=WireFormat(reply=name))
        heard = network.ask(asked, "probe").regular()
        assert torch.equal(heard, encoding.heard(said))
        assert not torch.equal(heard, said)
        each, E = size(encoding.specs(9, C)), len(one.world.edges)
        assert network.ledger.summary()["reply"] == E * each.payload
        assert network.ledger.summary()["framing_by_kind"]["reply"] == E * each.framing
        assert network.deployment_bytes(1) == question(1) + size(encoding.specs(1, C)).total
        everything = one.population.predict_all(one.site.shard[0])
        assert torch.equal(network.heard(everything), encoding.heard(everything))
        own = one.site.shard[:, :9]  # a node hears itself as it is
        torch.testing.assert_close(network.own(own), one.population.predict_own(own))


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
    from_wrong = network.edges[:, 1] == 2
    assert right.sound.all()
    assert torch.equal(replies.sound, ~from_wrong)
    assert network.faulty.tolist() == from_wrong.long().tolist()
    assert not replies.regular()[from_wrong].any()
    assert torch.equal(replies.regular()[~from_wrong], right.regular()[~from_wrong])
    everything = run.population.predict_all(asked.ids[:4])
    others, heard = torch.arange(5) != 2, network.heard(everything)
    assert torch.equal(heard[others], everything[others])
    assert how == "not a number" or not heard[2].any()  # there it is one row of four
    resumed = fresh(run)
    resumed.load(network.state())
    assert resumed.faulty.tolist() == network.faulty.tolist()


def test_a_node_alone_has_nobody_to_ask() -> None:
    run = make("graph.nodes=1", "partition.labelled=60")
    network, none = fresh(run), torch.zeros(0, dtype=torch.int64)
    assert network.edges.shape == (0, 2)
    replies = network.ask(questions(run.world, 3, "shard"), "probe")
    assert replies.regular().shape[0] == 0
    assert network.send(none, {"x": torch.zeros(1, 2)}, "anchors", "x")["x"].shape == (0, 2)
    assert network.ledger.payload().tolist() == []
    assert total(network) == run()["bytes"]["total"] == 0


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
