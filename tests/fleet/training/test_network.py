"""What a live node asks, in which form, and how often; to a method its network is like the simulation's."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fleets import SOON, Fleet, all_probed, until
from sklearn.ensemble import ExtraTreesClassifier
from small_nodes import settings as small_settings
from torch import Tensor, nn

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors
from lntrust.experiment.driver import Run
from lntrust.fleet.node import Node
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.network import LiveNetwork
from lntrust.fleet.training.world import node_world
from lntrust.learners import Labelled
from lntrust.learners.views import Views
from lntrust.methods import Site
from lntrust.methods.base import AnswerNetwork, below
from lntrust.network import Questions
from lntrust.network.codec import size
from lntrust.network.encodings import ReplyEncoding

# -- protocols ------------------------------------------------------------------------------------


class Garbled:
    """Neighbours of whom b replies with nonsense, and c with an older model than was probed."""

    members = dict.fromkeys(("b", "c"), SimpleNamespace(degree=3, version=1))

    def __init__(self) -> None:
        self.version = 7

    def chosen(self) -> set[str]:
        return {"b", "c"}

    def meet(self, only_new: bool = False) -> None:
        pass

    def ask(self, names: list[str], x: np.ndarray, phase: str, **_: Any) -> Any:
        self.version -= 1
        return {"c": Reply(np.full((len(x), 3), 1 / 3), self.version)}, {
            "b": Failure("malformed", "no codes")
        }


def live_site(neighbours: Any = None) -> Site:
    """A node whose neighbours are away, or such."""
    settings = small_settings(neighbours=[{"name": "b"}, {"name": "c"}])
    data = load_data(settings)
    world, own = node_world(settings, data), LiveLearner(settings, data).population
    others = neighbours or Neighbours(settings, TrafficCounters(["b", "c"]), None, dict)
    network: AnswerNetwork = LiveNetwork(settings, world, data, others, lambda: own, lambda _: None)
    lists = world.labelled(1, uses_validation=True)
    return Site(world, own, network, Labelled(lists, own.labels, settings.training, own.seeds, 1, own.device))


def test_nonsense_is_counted_and_a_model_older_than_probed_has_no_say() -> None:
    site = live_site(Garbled())
    probe = site.network.ask(site.validation, "probe")
    distil = site.network.ask(Questions.of(site.shard, "shard"), "distil")
    assert probe.sound.tolist() == [False, True]
    assert distil.sound.tolist() == [False, False]
    assert site.network.faulty.tolist() == [2, 0]
    assert site.world.degrees.tolist() == [2, 3, 3], "as they said when they met"


@pytest.mark.parametrize("live", [True, False])
def test_both_networks_are_what_a_method_needs(live: bool, tiny: Any, views: Views) -> None:
    site = live_site() if live else Run(tiny(), "lntrust", 0, views, backend="loop").site
    network, C = site.network, site.population.classes
    assert network.edges.shape == (len(site.world.edges), 2)
    assert network.faulty.tolist() == [0] * len(network.edges)
    ids = site.unlabelled("sample", 4, 1)
    with network.frozen_models():
        replies = network.ask(Questions.of(ids, "shard"), "probe")
        some = network.ask(site.validation, "probe", torch.tensor([1]))
        nobody = network.ask(site.validation, "probe", torch.zeros(0, dtype=torch.int64))
    assert replies.regular().shape == (len(network.edges), 4, C)
    assert (some.edge.tolist(), len(nobody.probabilities)) == ([1], 0)
    for got in (replies, some):
        assert got.sound.tolist() == [not live] * len(got.edge), "nobody is there to answer a live node"
        sums = got.probabilities.sum(-1)
        torch.testing.assert_close(sums, torch.full_like(sums, 0.0 if live else 1.0))
    own = network.own(ids)
    torch.testing.assert_close(own.sum(-1), torch.ones(site.population.n, 4, dtype=own.dtype))
    if live:
        with pytest.raises(LNTrustError, match="live nodes send no parameters: they answer questions"):
            _ = site.sharing


# -- what nodes ask --------------------------------------------------------------------------------------

SIX = {**SOON, "training": {**SOON["training"], "stage2_rounds": 6}, "limits": {"patience": 20.0}}


def trusting(**trust: Any) -> dict[str, dict[str, Any]]:
    return {**SIX, "trust": trust}


def saved(fleet: Fleet) -> dict[str, Tensor]:
    return read_tensors(fleet.members["a"].state)[0]


def meet(stack: ExitStack, fleet: Fleet, *names: str) -> None:
    """These are there, and answer as they are."""
    for name in names:
        stack.enter_context(Node.from_file(fleet.members[name].folder, train=False))


def start_among_all(fleet: Fleet) -> Node:
    """Node a begins when all its neighbours are there: what it asks is then no matter of chance."""
    node = Node(load_node(fleet.members["a"].folder))
    until(node, lambda status: all(each["present"] for each in status["neighbours"].values()))
    return node.start()


def test_replies_travel_in_the_form_asked_for_and_trust_has_a_rhythm_of_its_own(tmp_path: Path) -> None:
    """In every phase; what comes is what the neighbour's answers are in that form."""
    fleet = Fleet.of(tmp_path, "ab", {"a": trusting(reply="top3", refresh=3)}, everybody=SIX)
    with ExitStack() as stack:
        meet(stack, fleet, "b")
        with start_among_all(fleet) as a:
            until(a, all_probed)
            answer = a.predict(fleet.x)
    assert saved(fleet)["method/log/round"].tolist() == [0, 3, 6, 7]
    ledger = below("ledger/", saved(fleet))
    for phase, m in (("probe", None), ("distil", 20), ("deploy", len(fleet.x))):
        payload, _, messages = ledger[f"{phase}/reply"][1].tolist()
        inputs = ledger[f"{phase}/query"][0, 0] // 64  # a byte a pixel
        assert messages > 0
        assert payload == 6 * inputs, phase
        if m is not None:
            assert payload == messages * size(ReplyEncoding("top3").specs(m, 10)).payload
    assert (answer.silent, set(answer.weights)) == ({}, {"a", "b"})


def test_a_newcomer_is_probed_out_of_turn_and_training_goes_on_with_any_model(tmp_path: Path) -> None:
    endless, slow = {**SOON["training"], "stage2_rounds": 5000}, {**SOON["life"], "rest": 0.05}
    own = {**trusting(refresh=50_000), "training": endless, "life": slow}
    fleet = Fleet.of(tmp_path, "abc", {"a": own}, everybody=SIX)
    with ExitStack() as stack:
        meet(stack, fleet, "b")
        a = stack.enter_context(Node.from_file(fleet.members["a"].folder))
        until(a, lambda status: status["neighbours"]["b"]["probed"])
        meet(stack, fleet, "c")
        until(a, lambda status: status["neighbours"]["c"]["probed"] and status["trust"]["c"] > 0)
        for model in (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), ExtraTreesClassifier(3)):
            a.replace(model)
            now = a.status()["round"]
            status = until(a, lambda status, now=now: status["round"] > now + 4)  # type: ignore[misc]
            assert status["error"] is None


def test_what_is_remembered_outlives_a_restart_but_no_other_neighbours(tmp_path: Path) -> None:
    """The model is the same after both."""
    fleet = Fleet.of(tmp_path, "abc", {"a": trusting(recall=1000, top_k=2)}, everybody=SIX)
    path = fleet.members["a"].folder / "NODE.toml"

    def run() -> tuple[dict[str, Tensor], dict[str, Any], np.ndarray]:
        with start_among_all(fleet) as a:
            status = until(a, all_probed)
            answer = a.predict(fleet.x, "self").probabilities
        return saved(fleet), status, answer

    with ExitStack() as stack:
        meet(stack, fleet, "b", "c")
        before, *_ = run()
        assert before["ledger/distil/query"][:2, 2].tolist() == [1, 1], "once, about all of the shard"
        assert sorted(before["method/recall/column"][0].tolist()) == [1, 2]
        assert before["method/recall/replies"].shape == (1, 2, 100, 10)
        path.write_text(path.read_text("utf-8").replace("stage2_rounds = 6", "stage2_rounds = 9"), "utf-8")
        after, status, answer = run()
        assert (status["round"], status["error"]) == (11, None)
        assert after["ledger/distil/query"][:2, 2].tolist() == [1, 1]
        assert torch.equal(after["method/recall/replies"], before["method/recall/replies"])
        tables, *neighbours = path.read_text("utf-8").split("[[neighbours]]")
        path.write_text("[[neighbours]]".join([tables, *(f"{n.rstrip()}\n\n" for n in neighbours[::-1])]))
        other, later, same = run()
    assert not below("method/recall/", other)
    assert (other["method/closed"].shape, list(later["trust"])) == ((1, 3), ["a", "c", "b"]), "probed anew"
    assert later["model_version"] > status["model_version"], "nobody takes it for an older model"
    np.testing.assert_array_equal(same, answer)
