"""Training that fails: it is tried again, shown to whoever looks, and nothing of it is left in the model."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import urllib3
from fleets import DEPLOYED, SOON, Fleet, deployed, until
from prometheus_client.parser import text_string_to_metric_families

from lntrust.fleet.node import Node
from lntrust.fleet.training import loop as life
from lntrust.fleet.training.trouble import Trouble

# As `lntrust+best` has it: remembered replies of the most trusted, of whom there may be none.
RECALLS = {"recall": 3, "top_k": 1, "weighting": "trust"}


def model(name: str) -> dict[str, Any]:
    return {**SOON, "model": {"kind": f"small_nodes:{name}", "scale": 0.0625}}


def test_one_that_is_alone_learns_although_nobody_has_weight(tmp_path: Path) -> None:
    own = {**SOON, "trust": RECALLS, "life": {**SOON["life"], "wait": 0.0}}
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=own)
    with Node.from_file(fleet.members["a"].folder) as a:
        status = until(a, lambda status: deployed(status) or status["error"] is not None)
        assert (status["error"], status["round"]) == (None, 6)


def test_one_that_loses_everybody_goes_on_learning_and_takes_them_back(tmp_path: Path) -> None:
    with Fleet.of(tmp_path, "ab", everybody={"trust": RECALLS}) as fleet:
        fleet.start("a", "b")
        fleet.until("a", lambda status: status["neighbours"]["b"]["probed"])
        fleet.kill("b")
        fleet.until("a", lambda status: not status["neighbours"]["b"]["probed"])
        fleet.trains("a", 8)  # longer than replies are remembered, and over two refreshes
        fleet.start("b")
        fleet.until("a", lambda status: status["neighbours"]["b"]["probed"])
        fleet.trains("a")
        assert fleet.status("a")["training_failures"] == 0


@pytest.mark.parametrize(
    ("name", "error"),
    [("stumbling", "ArithmeticError: no more passes"), ("exiting", "SystemExit: enough")],
)
def test_training_that_fails_is_tried_again(tmp_path: Path, name: str, error: str) -> None:
    fleet = Fleet.of(tmp_path, ["a"], everybody=model(name))
    with Node.from_file(fleet.members["a"].folder) as node:
        until(node, lambda status: status["error"] == error)
        status = until(node, deployed)
        assert (status["error"], status["training_failures"], status["round"]) == (None, 2, 6)
        assert not node.failing


def test_a_save_that_fails_in_any_way_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet.of(tmp_path, ["a"], everybody={**SOON, "life": {**SOON["life"], "save_every": 0.5}})
    with Node.from_file(fleet.members["a"].folder) as node:
        until(node, deployed)
        with monkeypatch.context() as broken:
            broken.setattr(life, "write_state", None)  # no failure that saving expects
            failures = until(node, lambda status: status["saved"]["failures"] > 1)["saved"]["failures"]
        before = node.status()["saved"]["at"]
        until(node, lambda status: status["saved"]["at"] != before)
        assert node.status()["saved"]["failures"] <= failures + 1
        assert not node.failing


def test_a_round_that_fails_half_way_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    """It has taken five steps of its first round when it fails, and is kept without them."""
    fleet = Fleet.of(tmp_path, ["a"], everybody=model("failing"))
    folder = fleet.members["a"].folder
    with Node.from_file(folder, train=False) as node:
        before = node.predict(fleet.x).probabilities
    with Node.from_file(folder) as node:
        assert until(node, lambda status: status["error"] is not None)["round"] == 0
    with Node.from_file(folder, train=False) as node:
        np.testing.assert_array_equal(node.predict(fleet.x).probabilities, before)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A node that a neighbour could join, whose training fails for good after a while."""
    own = {**model("failing"), "http": {}, "training": {**SOON["training"], **DEPLOYED["training"]}}
    with Fleet.of(tmp_path_factory.mktemp("failing"), "a", everybody=own) as fleet:
        shutil.copy(Path(__file__).parents[1] / "small_nodes.py", fleet.members["a"].folder)
        fleet.start("a")
        fleet.until("a", lambda status: status["error"] is not None)
        yield fleet


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v2/health/live", 200),
        ("/v2/health/ready", 503),
        ("/v2/models/ensemble/ready", 200),
        ("/v2/models/self/ready", 200),
    ],
)
def test_while_training_fails_the_node_is_not_ready_but_its_models_are(
    failing: Fleet, path: str, code: int
) -> None:
    address = failing.members["a"].settings.http.listen
    got = urllib3.request("GET", f"http://{address}{path}", retries=False, timeout=10)
    assert got.status == code, got.data
    assert ("training fails" in got.data.decode()) == (code == 503)
    assert failing.ask("a").weights == {"a": 1.0}


def test_metrics_and_status_show_it(failing: Fleet) -> None:
    address = failing.members["a"].settings.http.listen
    text = urllib3.request("GET", f"http://{address}/metrics", retries=False, timeout=10).data.decode()
    samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert samples["lntrust_training_failing"] == 1
    assert samples["lntrust_training_failures_total"] >= 1
    assert failing.status("a")["error"] == "ArithmeticError: no more passes"


def test_pauses_grow_and_begin_anew() -> None:
    trouble = Trouble()
    pauses = [trouble.note(ValueError("no")) for _ in range(9)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == 60
    trouble.over()
    assert (trouble.error, trouble.failures, trouble.note(ValueError("no"))) == (None, 9, 1)
