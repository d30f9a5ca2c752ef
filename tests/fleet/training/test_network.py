"""What a live node asks, in which form, and how often; to a method its network is like the simulation's."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import Fleet, all_probed, deployed, until
from rogue import ANSWERS, Rogue
from small_nodes import settings as small_settings
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors
from lntrust.experiment.run import Run
from lntrust.fleet.node import Node
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.learner import LiveLearner, OwnView
from lntrust.fleet.training.network import LiveNetwork
from lntrust.fleet.training.world import node_world
from lntrust.learners import Labelled
from lntrust.learners.views import ExampleViews, Views
from lntrust.methods import Site
from lntrust.methods.base import below
from lntrust.methods.protocols import AnswerNetwork, SharingNetwork
from lntrust.network import Questions
from lntrust.network.codec import Message, encode, size
from lntrust.network.encodings import ReplyEncoding

# -- protocols ------------------------------------------------------------------------------------


def live_site() -> Site:
    """A node whose neighbours are away."""
    settings = small_settings(neighbours=[{"name": "b"}, {"name": "c"}])
    data = load_data(settings)
    world, population = node_world(settings, data), LiveLearner(settings, data).population
    neighbours = Neighbours(settings, TrafficCounters(["b", "c"]), None, dict)
    network: AnswerNetwork = LiveNetwork(
        settings, world, lambda: population, data, neighbours, lambda _: None
    )
    lists = world.labelled(1, uses_validation=True)
    labelled = Labelled(lists, population.labels, settings.training, population.seeds, 1, population.device)
    return Site(world, population, network, labelled)


def simulated_site(study: Any, views: Views) -> Site:
    run = Run(study, "lntrust", 0, views, backend="loop")
    network: SharingNetwork = run.network
    return Site(run.world, run.population, network, run.labelled)


@pytest.mark.parametrize("live", [True, False])
def test_both_networks_are_what_a_method_needs(live: bool, tiny: Any, views: Views) -> None:
    site = live_site() if live else simulated_site(tiny(), views)
    network, C = site.network, site.population.classes
    assert network.edges.shape == (len(site.world.edges), 2)
    assert network.faulty.tolist() == [0] * len(network.edges)
    ids = site.unlabelled("sample", 4, 1)
    with network.frozen_models():
        replies = network.ask(Questions.of(ids, "shard"), "probe")
        some = network.ask(site.validation, "probe", torch.tensor([1]))
    assert replies.regular().shape == (len(network.edges), 4, C)
    assert some.edge.tolist() == [1]
    for got in (replies, some):
        assert got.sound.tolist() == [not live] * len(got.edge), "nobody is there to answer a live node"
        sums = got.probabilities.sum(-1)
        torch.testing.assert_close(sums, torch.full_like(sums, 0.0 if live else 1.0))
    own = network.own(ids)
    torch.testing.assert_close(own.sum(-1), torch.ones(site.population.n, 4, dtype=own.dtype))
    if live:
        with pytest.raises(LNTrustError, match="live nodes send no parameters: they answer questions"):
            _ = site.sharing
    else:
        assert site.sharing is network


def test_both_views_are_what_a_population_needs(views: Views) -> None:
    mine: ExampleViews = OwnView(torch.ones(5, 3, dtype=torch.float64))
    theirs: ExampleViews = views
    for view, name in ((mine, "own"), (theirs, "pixels")):
        assert (view[name].device, view[name].dtype) == (view.device, view.dtype)
        assert view[name] is view[name]


# -- replies --------------------------------------------------------------------------------------

SOON: dict[str, dict[str, Any]] = {
    "http": {"listen": "off"},
    "life": {"rest": 0.0, "refresh_every": 600.0, "save_every": 600.0, "wait": 20.0},
    "training": {"stage1_rounds": 2, "stage2_rounds": 6, "refresh": 2},
    "limits": {"patience": 20.0, "deadline": 20.0, "retries": 1},
}
UNIFORM = {"weighting": "uniform", "deployment_gate": "off", "budget": 20, "sample": 20, "warmup": 1}


def trusting(**trust: Any) -> dict[str, dict[str, Any]]:
    return {**SOON, "trust": {**UNIFORM, **trust}}


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


def test_replies_travel_in_the_form_asked_for(tmp_path: Path) -> None:
    """In every phase; what comes is what the neighbour's answers are in that form."""
    fleet = Fleet.of(tmp_path, "ab", {"a": trusting(reply="top3")}, everybody=SOON)
    with ExitStack() as stack:
        meet(stack, fleet, "b")
        with start_among_all(fleet) as a:
            until(a, all_probed)
            answer = a.predict(fleet.x)
    ledger = below("ledger/", saved(fleet))
    for phase, m in (("probe", None), ("distil", 20), ("deploy", len(fleet.x))):
        payload, _, messages = ledger[f"{phase}/reply"][1].tolist()
        inputs = ledger[f"{phase}/query"][0, 0] // 64  # a byte a pixel
        assert messages > 0
        assert payload == 6 * inputs, phase
        if m is not None:
            assert payload == messages * size(ReplyEncoding("top3").specs(m, 10)).payload
    assert answer.silent == {}
    assert set(answer.weights) == {"a", "b"}


def _codes(codes: Any, classes: Any) -> Callable[[Rogue, np.ndarray], bytes]:
    def said(rogue: Rogue, x: np.ndarray) -> bytes:
        tensors = {"codes": np.array([codes] * len(x)), "classes": np.array([classes] * len(x))}
        tensors = {name: t.astype(np.uint8) if t.max() < 256 else t for name, t in tensors.items()}
        return encode(Message("reply", tensors, version=rogue.version))

    return said


CODES = {
    "a class twice": _codes([200, 50, 1], [1, 1, 2]),
    "a class that is none": _codes([200, 50, 1], [1, 2, 10]),
    "codes of nothing": _codes([0, 0, 0], [1, 2, 3]),
    "codes of another type": _codes([20000, 50, 1], [1, 2, 3]),
    "too few codes": _codes([200, 50], [1, 2]),
}
ANSWERS.update(CODES)


def test_one_that_knows_only_float32_is_understood_and_one_that_cheats_is_not(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "ar", {"a": trusting(reply="top3")}, everybody=SOON)
    with Rogue(fleet.place("r"), fleet.members["r"].settings) as rogue, start_among_all(fleet) as a:
        until(a, all_probed)
        answer, own = a.predict(fleet.x), a.predict(fleet.x, "self").probabilities
        np.testing.assert_allclose(answer.probabilities, (own + rogue.right(fleet.x)) / 2, atol=1e-5)
        for mode in CODES:
            rogue.mode = mode
            assert a.predict(fleet.x).weights == {"a": 1.0}, mode
            rogue.mode = "honest"
            until(a, lambda status: status["neighbours"]["r"]["state"] != "open")
            assert set(a.predict(fleet.x).weights) == {"a", "r"}
        assert a.status()["failures"]["malformed"] == len(CODES)


# -- how often ------------------------------------------------------------------------------------


def test_a_node_asks_in_turn_and_only_about_what_is_open(tmp_path: Path) -> None:
    """All weigh a third. r, who is sure, is asked about what the node does not know by itself; q about the
    rest."""
    fleet = Fleet.of(tmp_path, "arq", {"a": trusting(certainty=0.7)}, everybody=SOON)
    x = np.concatenate([np.load(fleet.members[name].folder / "shard.npz")["x"] for name in "arq"])[:200]
    with ExitStack() as stack:
        rogues = {n: stack.enter_context(Rogue(fleet.place(n), fleet.members[n].settings)) for n in "rq"}
        a = stack.enter_context(start_among_all(fleet))
        until(a, all_probed)
        for rogue in rogues.values():
            rogue.asked.clear()
        before = a.status()["queries"]["out"]
        answer, own = a.predict(x), a.predict(x, "self").probabilities
        right = rogues["r"].right(x)

        def lead(p: np.ndarray) -> np.ndarray:
            return np.diff(np.sort(p, axis=1)[:, -2:], axis=1)[:, 0]

        first = ~(lead(own / 3) > 0.7 * 2 / 3)
        second = ~(lead((own + right) / 3) > 0.7 / 3) & first
        assert first.all(), "a third is never enough"
        assert 0 < second.sum() < len(x)
        ((_, to_r),), ((_, to_q),) = rogues["r"].asked, rogues["q"].asked
        np.testing.assert_array_equal(to_r, x)
        np.testing.assert_array_equal(to_q, x[second])
        after = a.status()["queries"]["out"]
        assert {name: after[name] - before[name] for name in "rq"} == {"r": 1, "q": 1}
        assert list(answer.weights) == ["a", "r", "q"]
        share = second.mean()
        assert answer.weights["q"] == pytest.approx(share / 3, abs=1e-5)
        assert answer.weights["a"] == pytest.approx(share / 3 + (1 - share) / 2, abs=1e-5)
        expected = np.where(second[:, None], (own + 2 * right) / 3, (own + right) / 2)
        np.testing.assert_allclose(answer.probabilities, expected, atol=1e-5)
        rogues["r"].mode = "garbage"  # then its weight is not waited for
        rogues["q"].asked.clear()
        assert set(a.predict(x).weights) == {"a", "q"}
        np.testing.assert_array_equal(rogues["q"].asked[0][1], x[~(lead(own) > 0.7)])
        a.predict(x[:0])


def test_trust_has_a_rhythm_of_its_own(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "ab", {"a": trusting(refresh=3)}, everybody=SOON)
    with ExitStack() as stack:
        meet(stack, fleet, "b")
        with start_among_all(fleet) as a:
            until(a, all_probed)
    assert saved(fleet)["method/log/round"].tolist() == [0, 3, 6, 7]


def test_what_is_remembered_outlives_a_restart_but_no_other_neighbours(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "abc", {"a": trusting(recall=1000, top_k=2)}, everybody=SOON)
    path = fleet.members["a"].folder / "NODE.toml"

    def run(done: Callable[[dict[str, Any]], bool]) -> dict[str, Tensor]:
        with start_among_all(fleet) as a:
            until(a, done)
        return saved(fleet)

    with ExitStack() as stack:
        meet(stack, fleet, "b", "c")
        before = run(all_probed)
        assert before["ledger/distil/query"][:2, 2].tolist() == [1, 1], "once, about all of the shard"
        assert sorted(before["method/recall/column"][0].tolist()) == [1, 2]
        assert before["method/recall/replies"].shape == (1, 2, 100, 10)
        path.write_text(path.read_text("utf-8").replace("stage2_rounds = 6", "stage2_rounds = 9"), "utf-8")
        after = run(lambda status: deployed(status) and status["round"] == 11)
        assert after["ledger/distil/query"][:2, 2].tolist() == [1, 1]
        assert torch.equal(after["method/recall/replies"], before["method/recall/replies"])
        tables, *neighbours = path.read_text("utf-8").split("[[neighbours]]")
        path.write_text("[[neighbours]]".join([tables, *(f"{n.rstrip()}\n\n" for n in neighbours[::-1])]))
        other = run(all_probed)
    assert not below("method/recall/", other)
    assert other["method/closed"].shape == (1, 3), "they were probed anew"
