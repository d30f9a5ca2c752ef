"""How a method's questions and replies travel, where it does not leave that to the study."""

from typing import Any

import pytest
import torch

from lntrust.experiment.run import Run
from lntrust.learners.views import Views
from lntrust.network import Network, Questions, WireFormat, size
from lntrust.network.encodings import ReplyEncoding
from lntrust.study.loading import load_study

SMALL = [
    "graph.nodes=5", "partition.labelled=250", "partition.pool=100", "partition.shard=40",
    "population.learners=[{name='linear', kind='linear', view='pixels'}]", "training.stage1_rounds=1",
    "training.stage2_rounds=2", "training.refresh=2", "evaluation.every=2", "methods.lntrust.warmup=0",
    "methods.lntrust.budget=20", "methods.lntrust.sample=20",
]  # fmt: skip


def ended(views: Views, *overrides: str) -> tuple[Run, dict[str, Any]]:
    one = Run(load_study("digits", [*SMALL, *overrides]), "lntrust", 0, views)
    return one, one()


class TestQueries:
    @pytest.mark.parametrize("how", ["inputs", "ids", "handle"])
    def test_the_method_s_word_books_what_the_study_s_does(self, views: Views, how: str) -> None:
        ours, theirs = (ended(views, f"{where}.query={how}")[1] for where in ("methods.lntrust", "network"))
        assert ours["bytes"] == theirs["bytes"]
        assert ours["per_node"] == theirs["per_node"]

    def test_the_ways_differ(self, views: Views) -> None:
        booked = {how: ended(views, f"methods.lntrust.query={how}")[1]["bytes"]["query"] for how in
                  ("inputs", "ids", "handle")}  # fmt: skip
        assert len(set(booked.values())) == 3

    def test_the_method_has_the_last_word(self, views: Views) -> None:
        both = ended(views, "network.query=handle", "methods.lntrust.query=inputs")[1]
        assert both["bytes"] == ended(views, "network.query=inputs")[1]["bytes"]

    def test_without_a_word_the_study_s_holds(self, views: Views) -> None:
        one, _ = ended(views)
        network = Network(one.world, one.population, WireFormat())
        network.ask(Questions.of(one.site.shard[:, :9], "shard"), "probe")
        plain = Network(one.world, one.population)
        plain.ask(Questions.of(one.site.shard[:, :9], "shard"), "probe")
        assert network.ledger.summary() == plain.ledger.summary()


class TestReplies:
    @pytest.mark.parametrize("form", ["uint8", "top1", "top3"])
    def test_booked_and_heard_in_their_form(self, views: Views, form: str) -> None:
        one, _ = ended(views)
        questions = Questions.of(one.site.shard[:, :9], "shard")
        said = Network(one.world, one.population).ask(questions, "probe").regular()
        network = Network(one.world, one.population, WireFormat(reply=form))
        heard = network.ask(questions, "probe").regular()
        assert torch.equal(heard, ReplyEncoding(form).heard(said))
        assert not torch.equal(heard, said)
        each = size(ReplyEncoding(form).specs(9, 10))
        edges = len(one.world.edges)
        assert network.ledger.summary()["reply"] == edges * each.payload
        assert network.ledger.summary()["framing_by_kind"]["reply"] == edges * each.framing
        everything = one.population.predict_all(one.site.shard[0])
        assert torch.equal(network.heard(everything), ReplyEncoding(form).heard(everything))

    def test_a_node_hears_itself_as_it_is(self, views: Views) -> None:
        one, _ = ended(views)
        coarse = Network(one.world, one.population, WireFormat(reply="top1"))
        own = coarse.own(one.site.shard[:, :9])
        torch.testing.assert_close(own, one.population.predict_own(one.site.shard[:, :9]))

    def test_silence_is_silence_in_any_form(self, views: Views) -> None:
        one, _ = ended(views)
        network = Network(one.world, one.population, WireFormat(reply="top3"))
        network.misbehaviour[2] = lambda p: p * torch.nan
        replies = network.ask(Questions.of(one.site.shard[:, :9], "shard"), "probe")
        it = one.network.edges[:, 1] == 2
        assert torch.equal(replies.sound, ~it)
        assert (replies.regular()[it] == 0).all()
        assert (network.heard(one.population.predict_all(one.site.shard[0]))[2] == 0).all()

    def test_a_run_in_a_coarser_form(self, views: Views) -> None:
        (_, fine), (_, coarse) = (ended(views, *more) for more in ([], ["methods.lntrust.reply=top3"]))
        assert coarse["bytes"]["reply"] * 40 == fine["bytes"]["reply"] * 6  # 3 classes and their codes
        assert coarse["bytes"]["query"] == fine["bytes"]["query"]
        assert coarse["bytes"]["per_deployed_query"] != fine["bytes"]["per_deployed_query"]
