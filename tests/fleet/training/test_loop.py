"""A live node's training over restarts, accidents and new data: what it keeps, what it takes back."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import SOON, Fleet, Member, all_probed, deployed, probed, until, without
from sklearn.neighbors import KNeighborsClassifier

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors
from lntrust.fleet.node import Node
from lntrust.fleet.training.state import read_state
from lntrust.methods.base import below

# -- training that fails --------------------------------------------------------------------------

# As `lntrust+best` has it: remembered replies of the most trusted, of whom there may be none.
RECALLS = {"recall": 3, "top_k": 1, "weighting": "trust"}


def alone(root: Path, everybody: dict[str, Any] = SOON) -> Member:
    return Fleet.of(root, ["a"], everybody=everybody).members["a"]


def of_kind(name: str) -> dict[str, Any]:
    return {**SOON, "model": {"kind": f"small_nodes:{name}", "scale": 0.0625}}


def test_one_that_is_alone_or_loses_everybody_goes_on_learning_and_takes_them_back(tmp_path: Path) -> None:
    with Fleet.of(tmp_path, "ab", everybody={"trust": RECALLS}) as fleet:
        fleet.start("a")
        fleet.until("a", lambda status: status["phase"] == "stage 2")
        fleet.trains("a", 8)  # longer than replies are remembered, and over two refreshes
        fleet.start("b")
        fleet.until("a", probed("b"))
        fleet.kill("b")
        fleet.until("a", without("b"))
        fleet.trains("a", 8)
        fleet.start("b")
        fleet.until("a", probed("b"))
        fleet.trains("a")
        assert fleet.status("a")["training_failures"] == 0


@pytest.mark.parametrize(("name", "error"), [("stumbling", "ArithmeticError"), ("exiting", "SystemExit")])
def test_training_that_fails_is_tried_again_ever_later(
    tmp_path: Path, name: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = alone(tmp_path, of_kind(name)).folder
    with Node.from_file(folder) as node:
        until(node, lambda status: status["error"] == f"{error}: no more passes")
        status = until(node, deployed)
        assert (status["error"], status["training_failures"], status["round"]) == (None, 2, 6)
        assert not node.failing
    told = [record.fields for record in caplog.records if record.message == "training fails"]  # type: ignore[attr-defined]
    assert [each["again_in"] for each in told] == [1, 2]


def test_a_disk_that_takes_nothing_stops_nothing(tmp_path: Path) -> None:
    """Saves fail and are counted, and when they are possible again they go on."""
    with Fleet.of(tmp_path, "a") as fleet:
        fleet.start("a")
        saved = fleet.until("a", lambda status: status["saved"]["round"] is not None)["saved"]
        state = fleet.members["a"].state
        state.unlink()
        state.mkdir()  # in its place: nothing can be written there
        status = fleet.until("a", lambda status: status["saved"]["failures"] >= 2)
        fleet.trains("a")
        assert fleet.ask("a").weights == {"a": 1.0}
        assert "state not saved" in fleet.members["a"].log.read_text("utf-8")
        state.rmdir()
        status = fleet.until("a", lambda now: now["saved"]["round"] > status["round"] > saved["round"])
        fleet.kill("a")
        found = read_state(state.parent, "a")
        assert found is not None
        assert found.node.done >= status["saved"]["round"]


def test_a_round_that_fails_half_way_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    """It has taken five steps of its first round when it fails, and is kept without them."""
    member = alone(tmp_path, of_kind("Failing"))
    x = np.load(member.folder / "data.npz")["x"]
    with Node.from_file(member.folder, train=False) as node:
        before = node.predict(x, "self").probabilities
    with Node.from_file(member.folder) as node:
        assert until(node, lambda status: status["error"] is not None)["round"] == 0
        assert node.failing
        node.predict(x)
    with Node.from_file(member.folder, train=False) as node:
        assert node.status()["clients"] == {"ensemble": 1}
        np.testing.assert_array_equal(node.predict(x).probabilities, before)


# -- restarts and other models ----------------------------------------------------------------------


def test_a_model_that_cannot_learn_is_not_put_in(tmp_path: Path) -> None:
    """Its fit takes no weights: the old model stays, in answers, in training and on disk."""
    folder = alone(tmp_path).folder
    x = np.load(folder / "data.npz")["x"]
    with Node.from_file(folder) as node:
        until(node, deployed)
        before, version = node.predict(x).probabilities, node.version
        with pytest.raises(LNTrustError, match="sample_weight"):
            node.replace(KNeighborsClassifier())
        assert node.version == version
        np.testing.assert_array_equal(node.predict(x).probabilities, before)
    with Node.from_file(folder, train=False) as again:
        assert again.status()["round"] == 6
        np.testing.assert_array_equal(again.predict(x).probabilities, before)


def test_the_trust_with_which_training_ended_is_kept_over_restarts(tmp_path: Path) -> None:
    """Refreshes of a deployed node start from it, however often the node is started."""
    learned = {**SOON, "trust": {"weighting": "trust"}, "life": {**SOON["life"], "refresh_every": 0.3}}
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=learned)
    a, b = (fleet.members[name].folder for name in ("a", "b"))
    settled = []
    with Node.from_file(b):
        for _ in range(3):
            with Node.from_file(a) as node:
                until(node, all_probed)
                refreshed = node.status()["queries"]["out"]["b"]
                until(node, lambda status, old=refreshed: status["queries"]["out"]["b"] > old + 6)  # type: ignore[misc]
            settled.append(below("settled/", read_tensors(a / "state" / "node.safetensors")[0]))
    assert settled[0]
    for later in settled[1:]:
        assert all(bool((later[name] == tensor).all()) for name, tensor in settled[0].items())


def test_another_weighting_after_a_restart_learns_anew(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody={**SOON, "trust": {"weighting": "uniform"}})
    a, b = (fleet.members[name].folder for name in ("a", "b"))
    text = (a / "NODE.toml").read_text("utf-8")
    with Node.from_file(b):
        for weighting in ("uniform", "trust"):
            (a / "NODE.toml").write_text(text.replace('"uniform"', f'"{weighting}"'), "utf-8")
            with Node.from_file(a) as node:
                status = until(node, all_probed)
        assert (status["error"], status["round"]) == (None, 6)


# -- a clock that is wrong ------------------------------------------------------------------------------

FIND_FAKETIME = Path(__file__).parents[2] / "find_faketime.sh"
# libfaketime spoils time.sleep where the monotonic clock is the real one; other ways to wait are sound.
WAITS_OTHERWISE = (
    sys.executable,
    "-c",
    "import threading, time; time.sleep = threading.Event().wait; from lntrust.cli import main; main()",
)


@pytest.fixture
def two_years_ahead() -> list[str]:
    """What has to stand before a program so that its clock is wrong, but no timeout."""
    found = subprocess.run([str(FIND_FAKETIME)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(found.stderr.strip().splitlines()[-1])
    faketime = found.stdout.strip().splitlines()[-1]
    # The program `faketime` would stay between us and the node, and live on when that is killed.
    show = [faketime, "-f", "+0", sys.executable, "-c", "import os; print(os.environ['LD_PRELOAD'])"]
    library = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    return ["env", f"LD_PRELOAD={library}", "FAKETIME=+2y", "FAKETIME_DONT_FAKE_MONOTONIC=1"]


def test_a_node_whose_clock_is_years_ahead_stands_alone(two_years_ahead: list[str], tmp_path: Path) -> None:
    """By its clock every certificate has run out. It answers by itself; others go on without it."""
    with Fleet.of(tmp_path, "abc") as fleet:
        fleet.start("a", "b")
        fleet.start("c", program=[*two_years_ahead, *WAITS_OTHERWISE])
        fleet.until("c", lambda status: status["phase"] == "stage 2")
        fleet.until("a", probed("b"))
        fleet.trains("c")
        assert fleet.ask("c").weights == {"c": 1.0}
        assert set(fleet.ask("a").weights) == {"a", "b"}
        status = fleet.until("c", without("a", "b"))
        assert status["certificate"]["seconds_left"] < -86400 * 365
        assert "certificate has run out" in fleet.members["c"].log.read_text("utf-8")
        assert not any(each["present"] for each in status["neighbours"].values())
        assert not fleet.status("a")["neighbours"]["c"]["present"]

        fleet.kill("c")  # and its clock is set right
        fleet.start("c")
        fleet.until("c", probed("a", "b"))
        fleet.until("a", probed("c"))


# -- data that has changed while the node was away ----------------------------------------------------

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


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("stage2", [30, 0])
def test_new_labels_are_learned_after_a_restart(tmp_path: Path, model: str, stage2: int) -> None:
    training = {**LONG, "stage1_rounds": 40 - stage2, "stage2_rounds": stage2}
    folder = alone(tmp_path, {**SOON, "model": MODELS[model], "training": training}).folder
    x = np.load(folder / "data.npz")["x"]
    with Node.from_file(folder) as node:
        before = until(node, deployed)
    y = relabelled(folder)
    with Node.from_file(folder) as node:
        after = until(node, deployed)
        assert after["round"] == 40
        assert after["model_version"] > before["model_version"], "a version is never used twice"
        assert (node.predict(x, "self").probabilities.argmax(1) == y).mean() > 0.6


def test_trust_is_learned_on_the_new_labels_and_holds_until_then(tmp_path: Path) -> None:
    """b learns the new labels, too, c keeps the old ones: whom a trusts is turned around."""
    # Without a prior a may trust itself so far that chance decides between the other two.
    trust = {"weighting": "trust", "prior": "accuracy", "prior_examples": 100.0}
    training = {"training": {**LONG, "stage2_rounds": 6}, "trust": trust}
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
    folder = alone(tmp_path).folder
    data = dict(np.load(folder / "data.npz"))

    def seen(size: int) -> tuple[set[int], set[int]]:
        np.savez(folder / "data.npz", allow_pickle=False, **{k: v[-size:] for k, v in data.items()})
        with Node.from_file(folder) as node:
            until(node, deployed)
        saved = read_state(folder / "state", "a")
        assert saved is not None
        return set(saved.seen.learned.tolist()), set(saved.seen.withheld.tolist())

    (learned, withheld), (learned_then, withheld_then) = seen(30), seen(60)
    assert not withheld_then & learned
    assert withheld < withheld_then
    assert learned < learned_then
