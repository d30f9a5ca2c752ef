"""Nodes in their owners' processes: `Node.from_file`, as a program uses it."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from fleets import SOON, TABLES, Fleet, all_probed, deployed, until
from sklearn.ensemble import ExtraTreesClassifier
from torch import nn

from lntrust.core.errors import LNTrustError
from lntrust.fleet.node import Node
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.state import read_state

# -- two that know each other ---------------------------------------------------------------------


Pair = tuple[Fleet, Node, Node]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    fleet = Fleet.of(tmp_path_factory.mktemp("pair"), ["a", "b"], everybody=SOON)
    with ExitStack() as stack:
        a, b = (stack.enter_context(Node.from_file(fleet.members[name].folder)) for name in ("a", "b"))
        for node in (a, b):
            until(node, all_probed)
        yield fleet, a, b


def test_it_answers_with_whom_it_trusts(pair: Pair) -> None:
    fleet, a, b = pair
    together, alone = a.predict(fleet.x), a.predict(fleet.x, "self")
    assert set(together.weights) == set(together.versions) == {"a", "b"}
    assert together.silent == {}
    assert sum(together.weights.values()) == pytest.approx(1)
    assert (alone.weights, alone.versions) == ({"a": 1.0}, {"a": a.version})
    own, other = alone.probabilities, b.predict(fleet.x, "self").probabilities
    mixed = together.weights["a"] * own + together.weights["b"] * other
    np.testing.assert_allclose(together.probabilities, mixed, atol=1e-5)


def test_inputs_of_another_kind_are_named(pair: Pair) -> None:
    fleet, a, _ = pair
    np.testing.assert_array_equal(
        a.predict(fleet.x.astype(float), "self").probabilities, a.predict(fleet.x, "self").probabilities
    )
    with pytest.raises(LNTrustError, match=r"inputs have shape \[3, 64\]; must be \[m, 8, 8\]"):
        a.predict(fleet.x.reshape(3, 64))
    with pytest.raises(LNTrustError, match="as uint8 their numbers would change"):
        a.predict(fleet.x + 0.5)


def test_status_is_json_and_adds_up(pair: Pair) -> None:
    _, a, b = pair
    one = until(a, lambda status: status["bytes"]["out"]["query"] == b.status()["bytes"]["in"]["query"])
    assert json.loads(json.dumps(one)) == one
    assert one["error"] is None
    assert (one["phase"], one["round"], one["rounds"]) == ("deployed", 6, 6)
    assert sum(one["trust"].values()) == pytest.approx(1, abs=1e-5)
    assert one["neighbours"]["b"]["present"]
    assert one["neighbours"]["b"]["round_trip"] > 0
    assert one["certificate"]["seconds_left"] > 80 * 86400
    until(b, lambda status: status["bytes"]["out"]["reply"] == a.status()["bytes"]["in"]["reply"])


def test_a_model_replaced_is_heard_by_all(pair: Pair) -> None:
    fleet, a, b = pair
    before, version = b.predict(fleet.x, "self").probabilities, b.version
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with torch.no_grad():
        expected = torch.softmax(module(torch.from_numpy(fleet.x / 16).float()), 1).numpy()
    b.replace(module)
    assert b.version > version
    after = b.predict(fleet.x, "self")
    np.testing.assert_allclose(after.probabilities, expected, atol=1e-5)
    assert not np.allclose(after.probabilities, before, atol=1e-3)
    heard = a.predict(fleet.x)
    assert heard.versions["b"] == b.version
    mixed = heard.weights["a"] * a.predict(fleet.x, "self").probabilities + heard.weights["b"] * expected
    np.testing.assert_allclose(heard.probabilities, mixed, atol=1e-5)
    b.replace(ExtraTreesClassifier(5))  # it is fitted on the node's own examples
    assert b.version > after.versions["b"]
    data = np.load(fleet.members["b"].folder / "data.npz")
    assert (b.predict(data["x"], "self").probabilities.argmax(1) == data["y"]).mean() > 0.5
    assert until(b, all_probed)["error"] is None


# -- nodes by themselves --------------------------------------------------------------------------


def test_a_node_without_neighbours(tmp_path: Path) -> None:
    """It answers before it learns, and need not learn."""
    fleet = Fleet.of(tmp_path, ["a"], everybody=SOON)
    folder = fleet.members["a"].folder
    with Node.from_file(folder, train=False) as node:
        first, version = node.predict(fleet.x).probabilities, node.version
        node.replace(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        assert node.version > version
        assert not np.array_equal(node.predict(fleet.x).probabilities, first)
        assert (node.status()["round"], node.status()["phase"]) == (0, "stage 1")
    assert not fleet.members["a"].state.exists(), "who has learned nothing has nothing to keep"
    with Node.from_file(folder) as node:
        status = until(node, deployed)
        answer = node.predict(fleet.x)
        assert (answer.weights, answer.silent) == ({"a": 1.0}, {})
        assert (status["error"], status["neighbours"], status["together"]) == (None, {}, False)
        assert status["certificate"] == {"expires": None, "seconds_left": None}
    with Node.from_file(folder) as node:
        assert node.status()["round"] == 6
        np.testing.assert_array_equal(node.predict(fleet.x).probabilities, answer.probabilities)


def test_of_those_allowed_the_fastest_is_asked(tmp_path: Path) -> None:
    few = {"network": {"choose": "allowed", "fastest": 1}, "training": {"stage2_rounds": 400}}
    fleet = Fleet.of(tmp_path, ["b", "c", "a"], {"a": few}, everybody=SOON)
    with ExitStack() as stack:
        *_, a = (stack.enter_context(Node.from_file(each.folder)) for each in fleet.members.values())
        status = until(a, lambda status: sum(n["probed"] for n in status["neighbours"].values()) == 1)
        assert all(each["present"] for each in status["neighbours"].values())
        (asked,) = [name for name, each in status["neighbours"].items() if each["probed"]]
        answer = a.predict(fleet.x)
        assert set(answer.weights) <= {"a", asked}
        times = {name: each["round_trip"] for name, each in status["neighbours"].items()}
        assert None not in times.values(), "both were met, to see who is faster"


def test_several_who_replace_the_model_wait_for_each_other(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, ["a"], everybody=SOON)
    models = [nn.Sequential(nn.Flatten(), nn.Linear(64, 10)) for _ in range(4)]
    with Node.from_file(fleet.members["a"].folder) as node, ThreadPoolExecutor(4) as pool:
        list(pool.map(node.replace, models, timeout=120))


def test_a_restart_without_the_model_that_was_put_in(tmp_path: Path) -> None:
    """Only NODE.toml's can be made again: the node says so, begins anew, and keeps what it has counted."""
    fleet = Fleet.of(tmp_path, ["a"], everybody=SOON)
    folder = fleet.members["a"].folder
    with Node.from_file(folder) as node:
        until(node, deployed)
        node.replace(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 10)))
        node.predict(fleet.x)
        version = node.version
        saved = read_state(folder / "state", "a")
        assert saved is not None
        assert (saved.node.version, saved.node.replaced) == (version, True), "it is on disk at once"
    with Node.from_file(folder, train=False) as again:
        status = again.status()
        assert status["round"] == 0
        assert again.version < version, "who has probed the other one shall notice"
        assert status["clients"] == {"ensemble": 1}


def test_a_node_that_cannot_be_made_leaves_no_door_open(tmp_path: Path) -> None:
    wide = {"input": {"shape": [600, 1000], "dtype": "int64"}}
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody={**SOON, **wide})
    member = fleet.members["a"]
    x = np.zeros((10, 600, 1000), dtype=np.int64)
    np.savez(member.folder / "data.npz", x=x, y=np.arange(10))
    np.savez(member.folder / "shard.npz", x=x[:2])
    for _ in range(2):  # the second time the port is free again
        with pytest.raises(LNTrustError, match="bytes in a message; at most"):
            Node(load_node(member.folder))
    shutil.copy(fleet.members["b"].folder / "node.pem", member.folder)
    with pytest.raises(LNTrustError, match="is b's certificate; this node is a"):
        Node(load_node(member.folder))


def test_inputs_that_no_model_can_answer_are_nobodys_failure(tmp_path: Path) -> None:
    """Inputs are float64, models see float32: a number may be finite, and too large for every one of them."""
    tables = {**SOON, "input": {**TABLES["input"], "dtype": "float64"}}
    fleet = Fleet.of(tmp_path, "abc", {"c": {"model": {"kind": "forest", "scale": 0.0625}}}, everybody=tables)
    x = fleet.x.astype(np.float64)
    with ExitStack() as stack:
        a, *_ = (stack.enter_context(Node.from_file(each.folder)) for each in fleet.members.values())
        until(a, all_probed)
        for number in (1e300, np.nan):
            bad = x.copy()
            bad[1, 2, 3] = number
            for _ in range(6):  # twice as many as open a breaker
                with pytest.raises(LNTrustError) if np.isnan(number) else nullcontext():
                    assert set(a.predict(bad).silent) == {"b", "c"}
        assert {each["state"] for each in a.status()["neighbours"].values()} == {"closed"}
        assert set(a.predict(x).weights) == {"a", "b", "c"}
