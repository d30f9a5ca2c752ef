"""A node whose data has changed while it was away: it goes on from the model it has, and learns from it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import SOON, Fleet, all_probed, deployed, until

from lntrust.fleet.node import Node
from lntrust.fleet.training.state import read_state

MODELS = {
    "linear": {"kind": "linear", "scale": 0.0625},
    "mlp": {"kind": "mlp", "scale": 0.0625},
    "sklearn": {"kind": "sklearn.linear_model:LogisticRegression"},
}
LONG = {"stage1_rounds": 10, "stage2_rounds": 30, "refresh": 5, "lr": 0.05, "batch": 16}


def relabelled(folder: Path) -> np.ndarray:
    """Every label is another one from now on; returns them, row by row."""
    data = dict(np.load(folder / "data.npz"))
    data["y"] = (data["y"] + 1) % 10
    np.savez(folder / "data.npz", allow_pickle=False, **data)
    return data["y"]


def accuracy(node: Node, x: np.ndarray, y: np.ndarray) -> float:
    return float((node.predict(x, "self").probabilities.argmax(1) == y).mean())


@pytest.mark.parametrize("model", list(MODELS))
def test_new_labels_are_learned_after_a_restart(tmp_path: Path, model: str) -> None:
    everybody: dict[str, Any] = {**SOON, "model": MODELS[model], "training": LONG}
    folder = Fleet.of(tmp_path, ["a"], everybody=everybody).members["a"].folder
    x = np.load(folder / "data.npz")["x"]
    with Node.from_file(folder) as node:
        before = until(node, deployed)
    y = relabelled(folder)
    with Node.from_file(folder) as node:
        after = until(node, deployed)
        assert after["round"] == 40
        assert after["model_version"] > before["model_version"], "a version is never used twice"
        assert accuracy(node, x, y) > 0.6


def test_trust_is_learned_on_the_new_labels_and_holds_until_then(tmp_path: Path) -> None:
    """b learns the new labels, too, c keeps the old ones: whom a trusts is turned around."""
    training = {"training": {**LONG, "stage2_rounds": 6}, "trust": {"weighting": "trust"}}
    fleet = Fleet.of(tmp_path, ["a", "b", "c"], everybody={**SOON, **training})
    folders = {name: member.folder for name, member in fleet.members.items()}
    relabelled(folders["b"])
    with Node.from_file(folders["b"]), Node.from_file(folders["c"]):
        with Node.from_file(folders["a"]) as a:
            before = until(a, all_probed)
        relabelled(folders["a"])
        with Node.from_file(folders["a"], train=False) as a:
            assert a.status()["trust"] == before["trust"]
        with Node.from_file(folders["a"]) as a:
            after = until(a, all_probed)
    assert before["trust"]["c"] > before["trust"]["b"]
    assert after["trust"]["b"] > after["trust"]["c"]


def test_more_labels_are_not_judged_by_what_was_learned(tmp_path: Path) -> None:
    """A model that has learned an example by heart would look better on it than it is."""
    folder = Fleet.of(tmp_path, ["a"], everybody=SOON).members["a"].folder
    data = dict(np.load(folder / "data.npz"))

    def life(size: int) -> tuple[set[int], set[int]]:
        np.savez(folder / "data.npz", allow_pickle=False, **{k: v[-size:] for k, v in data.items()})
        with Node.from_file(folder) as node:
            until(node, deployed)
        found = read_state(folder / "state", "a")
        assert found is not None
        return set(found[1]["seen/learned"].tolist()), set(found[1]["seen/withheld"].tolist())

    (learned, withheld), (learned_then, withheld_then) = life(30), life(60)
    assert not withheld_then & learned
    assert withheld < withheld_then
    assert learned < learned_then


def test_without_a_second_stage_the_first_is_had_again(tmp_path: Path) -> None:
    training = {"training": {**LONG, "stage1_rounds": 40, "stage2_rounds": 0}}
    folder = Fleet.of(tmp_path, ["a"], everybody={**SOON, **training}).members["a"].folder
    with Node.from_file(folder) as node:
        until(node, deployed)
    y = relabelled(folder)
    with Node.from_file(folder) as node:
        until(node, deployed)
        assert accuracy(node, np.load(folder / "data.npz")["x"], y) > 0.6
