"""Settings for fewer bytes and for safety, in nodes that live: what they ask, keep, and take back."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import Fleet, all_probed, deployed, until
from rogue import ANSWERS, Rogue
from sklearn.ensemble import ExtraTreesClassifier
from small_nodes import settings as small_settings
from torch import Tensor, nn

from lntrust.core.files import read_tensors
from lntrust.core.losses import tempered
from lntrust.fleet.node import Node
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.loop import TrainingLoop
from lntrust.fleet.training.trust_state import still_true
from lntrust.methods.base import below
from lntrust.network.codec import Message, encode, size
from lntrust.network.encodings import ReplyEncoding
from lntrust.world import Ragged

SOON: dict[str, dict[str, Any]] = {
    "http": {"listen": "off"},
    "life": {"rest": 0.0, "refresh_every": 600.0, "save_every": 600.0, "wait": 20.0},
    "training": {"stage1_rounds": 2, "stage2_rounds": 6, "refresh": 2},
    "limits": {"patience": 20.0, "deadline": 20.0, "retries": 1},
}
UNIFORM = {"weighting": "uniform", "deployment_gate": "off", "budget": 20, "sample": 20, "warmup": 1}


def trusting(**trust: Any) -> dict[str, dict[str, Any]]:
    return {**SOON, "trust": {**UNIFORM, **trust}}


def kept(fleet: Fleet, name: str = "a") -> dict[str, Tensor]:
    return read_tensors(fleet.members[name].state)[0]


def booked(node: Node, phase: str, kind: str) -> Any:
    return next((book for p, k, book in node._books.ledger if (p, k) == (phase, kind)), np.zeros((99, 3)))


def met(stack: ExitStack, fleet: Fleet, *names: str) -> None:
    """These are there, and answer as they are."""
    for name in names:
        stack.enter_context(Node.from_file(fleet.members[name].folder, train=False))


def living(path: Path) -> Node:
    """A node that begins when all its neighbours are there: what it asks is then no matter of chance."""
    node = Node(load_node(path))
    deadline = time.monotonic() + 60
    while len(node._circle.present) < len(node.settings.neighbours):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return node.start()


# -- replies --------------------------------------------------------------------------------------


def test_replies_travel_in_the_form_asked_for(tmp_path: Path) -> None:
    """In every phase; what comes is what the neighbour's answers are in that form."""
    fleet = Fleet.of(tmp_path, "ab", {"a": trusting(reply="top3")}, everybody=SOON)
    with ExitStack() as stack:
        met(stack, fleet, "b")
        a = stack.enter_context(living(fleet.members["a"].folder))
        until(a, all_probed)
        answer = a.predict(fleet.x)
        for phase, m in (("probe", None), ("distil", 20), ("deploy", len(fleet.x))):
            payload, _, messages = booked(a, phase, "reply")[1]
            inputs = booked(a, phase, "query")[0, 0] // 64  # a byte a pixel
            assert messages > 0
            assert payload == 6 * inputs, phase
            if m is not None:
                assert payload == messages * size(ReplyEncoding("top3").specs(m, 10)).payload
        assert answer.silent == {}
        assert set(answer.weights) == {"a", "b"}


def test_one_that_knows_only_float32_is_understood_and_one_that_cheats_is_not(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "ar", {"a": trusting(reply="top3")}, everybody=SOON)
    with ExitStack() as stack:
        rogue = stack.enter_context(Rogue(fleet.place("r"), fleet.members["r"].settings))
        a = stack.enter_context(living(fleet.members["a"].folder))
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


# -- one after another ----------------------------------------------------------------------------


def test_a_node_asks_in_turn_and_only_about_what_is_open(tmp_path: Path) -> None:
    """All weigh a third. r, who is sure, is asked about what the node does not know by itself; q about the
    rest."""
    fleet = Fleet.of(tmp_path, "arq", {"a": trusting(certainty=0.7)}, everybody=SOON)
    x = np.concatenate([np.load(fleet.members[name].folder / "shard.npz")["x"] for name in "arq"])[:200]
    with ExitStack() as stack:
        rogues = {n: stack.enter_context(Rogue(fleet.place(n), fleet.members[n].settings)) for n in "rq"}
        a = stack.enter_context(living(fleet.members["a"].folder))
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


# -- refreshes ------------------------------------------------------------------------------------


def test_trust_has_a_rhythm_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    original = TrainingLoop._refreshed

    def refreshed(life: TrainingLoop) -> None:
        told.append(int(life._state["log/round"][-1]))
        original(life)

    monkeypatch.setattr(TrainingLoop, "_refreshed", refreshed)
    fleet = Fleet.of(tmp_path, "ab", {"a": trusting(refresh=3)}, everybody=SOON)
    with ExitStack() as stack:
        met(stack, fleet, "b")
        until(stack.enter_context(living(fleet.members["a"].folder)), all_probed)
    assert told == [0, 3, 6, 7]
    assert kept(fleet)["method/log/round"].tolist() == told


def test_who_is_probed_seldom_is_known_by_what_it_said_last_and_a_newcomer_at_once(tmp_path: Path) -> None:
    """Only one is probed each time; the other keeps its weight. One that comes is probed out of turn."""
    slow = {
        "training": {**SOON["training"], "stage2_rounds": 100_000},
        "life": {**SOON["life"], "rest": 0.05},
    }
    fleet = Fleet.of(
        tmp_path, "abcd", {"a": {**trusting(top_k=1, probe_others=1000), **slow}}, everybody=SOON
    )
    with ExitStack() as stack:
        met(stack, fleet, "b", "c")
        a = stack.enter_context(Node.from_file(fleet.members["a"].folder))
        until(a, lambda s: s["neighbours"]["b"]["probed"] and s["neighbours"]["c"]["probed"])
        first = booked(a, "probe", "query")[:3, 2].copy()
        until(a, lambda _: (booked(a, "probe", "query")[:3, 2] - first).max() >= 8)
        status = a.status()
        more = sorted((booked(a, "probe", "query")[:2, 2] - first[:2]).tolist())
        assert more[1] >= 4 * max(1, more[0]), more
        assert status["trust"]["b"] == pytest.approx(status["trust"]["c"])
        assert all(status["neighbours"][n]["probed"] for n in "bc")
        assert set(a.predict(fleet.x).weights) == set("abc")
        met(stack, fleet, "d")
        until(a, lambda s: s["neighbours"]["d"]["probed"] and s["trust"]["d"] > 0)
        assert a.status()["error"] is None


# -- restarts -------------------------------------------------------------------------------------


def reordered(path: Path) -> None:
    tables, *neighbours = path.read_text("utf-8").split("[[neighbours]]")
    path.write_text(
        "[[neighbours]]".join([tables, *(f"{each.rstrip()}\n\n" for each in neighbours[::-1])]), "utf-8"
    )


def test_what_is_remembered_outlives_a_restart_but_no_other_circle(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "abc", {"a": trusting(recall=1000, top_k=2, probe_others=3)}, everybody=SOON)
    path = fleet.members["a"].folder / "NODE.toml"
    with ExitStack() as stack:
        met(stack, fleet, "b", "c")
        with living(path) as a:
            until(a, all_probed)
            asked = booked(a, "distil", "query")[:2, 2].tolist()
            assert asked == [1, 1], "once, about all of the shard"
        before = below("method/", kept(fleet))
        assert sorted(before["recall/column"][0].tolist()) == [1, 2]
        assert before["recall/replies"].shape == (1, 2, 100, 10)
        text = path.read_text("utf-8")
        path.write_text(text.replace("stage2_rounds = 6", "stage2_rounds = 9"))
        with living(path) as a:  # the same circle: it goes on with what it remembers
            until(a, lambda s: deployed(s) and s["round"] == 11)
            assert booked(a, "distil", "query")[:2, 2].tolist() == asked
        after = below("method/", kept(fleet))
        assert torch.equal(after["recall/replies"], before["recall/replies"])
        reordered(path)
        with living(path) as a:
            status = until(a, all_probed)
            assert list(status["trust"]) == ["a", "c", "b"]
        other = below("method/", kept(fleet))
        assert not below("recall/", other)
        assert below("probe/", other)["mask"].shape == (1, 3), "they were probed anew"


STATE = {
    name: torch.zeros(1)
    for name in (
        "memory/w", "open", "closed votes", "recall/column", "recall/replies", "probe/mask", "pseudo/ids",
        "twin/own/param", "doubt", "undone", "log/round",
    )
}  # fmt: skip
SAME = dict.fromkeys(("same_model", "same_weighting", "same_circle", "same_data"), True)


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        ("", set(STATE) - {"probe/mask"}),
        ("same_circle", {"memory/w", "twin/own/param", "doubt", "undone"}),
        ("same_weighting", {"twin/own/param", "doubt", "undone"}),
        ("same_model", {"memory/w"}),
        ("same_data", {"memory/w", "twin/own/param", "doubt", "undone"}),
    ],
)
def test_what_still_holds(changed: str, left: set[str]) -> None:
    assert set(still_true(STATE, **{**SAME, **({changed: False} if changed else {})})) == left


# -- temperatures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "mlp", "small_nodes:logistic"])
def test_snapshots_are_as_sure_as_the_population(kind: str) -> None:
    mine = small_settings(model={"kind": kind})
    data = load_data(mine)
    learner = LiveLearner(mine, data)
    if learner.refits:
        learner.population.refit(Ragged.of([data.train]))
    ids = torch.arange(10)
    plain = learner.snapshot(1).predict(data.inputs[:10])
    learner.population.temperature = torch.tensor([2.0])
    snapshot = learner.snapshot(2)
    learner.population.temperature = None
    np.testing.assert_allclose(
        snapshot.predict(data.inputs[:10]),
        tempered(torch.from_numpy(plain), torch.full((10,), 2.0)).numpy(), atol=1e-6,
    )  # fmt: skip
    learner.population.temperature = torch.tensor([2.0])
    expected = learner.population.predict_own(ids[None])[0].numpy()
    np.testing.assert_allclose(snapshot.predict(data.inputs[:10]), expected, atol=1e-6)
    assert snapshot.predict(data.inputs[:10]).dtype == np.float32
    learner.close()


def test_a_temperature_is_heard_by_all_and_outlives_a_restart(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, "ab", everybody=trusting(calibrate=True))
    path = fleet.members["b"].folder / "NODE.toml"
    with ExitStack() as stack:
        a = stack.enter_context(Node.from_file(fleet.members["a"].folder))
        with Node.from_file(path) as b:
            for node in (a, b):
                until(node, all_probed)
            own = b.predict(fleet.x, "self").probabilities
            mixed = (a.predict(fleet.x, "self").probabilities + own) / 2
            np.testing.assert_allclose(a.predict(fleet.x).probabilities, mixed, atol=1e-5)
        T = kept(fleet, "b")["population/temperature"]
        assert T.shape == (1,)
        assert float(T) != 1
        with Node.from_file(path, train=False) as b:
            np.testing.assert_array_equal(b.predict(fleet.x, "self").probabilities, own)
        path.write_text(path.read_text("utf-8").replace("calibrate = true", "calibrate = false"), "utf-8")
        with Node.from_file(path, train=False) as b:
            raw = torch.from_numpy(b.predict(fleet.x, "self").probabilities)
            assert not np.allclose(raw.numpy(), own, atol=1e-4)
            np.testing.assert_allclose(tempered(raw, T.float().expand(len(raw))).numpy(), own, atol=1e-5)


# -- looking back ---------------------------------------------------------------------------------


def test_a_twin_keeps_step_over_restarts_and_with_models_put_in(tmp_path: Path) -> None:
    short = {**trusting(look_back=0.51), "training": {**SOON["training"], "stage2_rounds": 5, "refresh": 3}}
    fleet = Fleet.of(tmp_path, "ab", {"a": short}, everybody=SOON)
    path = fleet.members["a"].folder / "NODE.toml"
    text = path.read_text("utf-8").replace(
        'kind = "linear"', 'kind = "mlp"\noptions = { hidden = 8, dropout = 0.3 }'
    )
    path.write_text(text, "utf-8")

    def in_step() -> None:
        tensors = kept(fleet)
        population, twin = below("population/", tensors), below("method/twin/", tensors)
        assert population.keys() - twin.keys() <= {"steps/distil"}
        assert torch.equal(population["steps/supervised"], twin["steps/supervised"])
        assert all(population[name].shape == tensor.shape for name, tensor in twin.items())

    with ExitStack() as stack:
        met(stack, fleet, "b")
        with living(path) as a:
            until(a, all_probed)
        in_step()
        path.write_text(path.read_text("utf-8").replace("stage2_rounds = 5", "stage2_rounds = 10"), "utf-8")
        with living(path) as a:
            until(a, lambda s: deployed(s) and s["round"] == 12)
        in_step()
        path.write_text(
            path.read_text("utf-8").replace("stage2_rounds = 10", "stage2_rounds = 100000"), "utf-8"
        )
        with living(path) as a:
            until(a, lambda s: s["round"] > 14)
            a.replace(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
            now = a.status()["round"]
            until(a, lambda s: s["round"] > now + 6)
            a.replace(ExtraTreesClassifier(3))
            now = a.status()["round"]
            until(a, lambda s: s["round"] > now + 6)
            a.replace(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
            now = a.status()["round"]
            until(a, lambda s: s["round"] > now + 4)
        tensors = kept(fleet)
        assert below("method/twin/", tensors)["own/param/1.weight"].shape == (1, 10, 64)
