"""A node's life over restarts and accidents: what it keeps, what it takes back, whom it believes."""

from pathlib import Path

import numpy as np
import pytest
from fleets import SOON, Fleet, all_probed, deployed, until
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors
from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.state import read_state
from lntrust.methods.base import below


def rewrite(folder: Path, old: str, new: str) -> None:
    text = (folder / "NODE.toml").read_text("utf-8")
    assert old in text
    (folder / "NODE.toml").write_text(text.replace(old, new), "utf-8")


def test_a_model_that_cannot_learn_is_not_put_in(tmp_path: Path) -> None:
    """Its fit takes no weights: the old model stays, in answers, in training and on disk."""
    fleet = Fleet.of(tmp_path, ["a"], everybody=SOON)
    folder = fleet.members["a"].folder
    with Node.from_file(folder) as node:
        until(node, deployed)
        before, version = node.predict(fleet.x).probabilities, node.version
        with pytest.raises(LNTrustError, match="sample_weight"):
            node.replace(KNeighborsClassifier())
        assert node.version == version
        np.testing.assert_array_equal(node.predict(fleet.x).probabilities, before)
    with Node.from_file(folder, train=False) as again:
        assert again.status()["round"] == 6
        np.testing.assert_array_equal(again.predict(fleet.x).probabilities, before)


def test_a_model_put_in_is_on_disk_at_once(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, ["a"], everybody=SOON)
    with Node.from_file(fleet.members["a"].folder) as node:
        until(node, deployed)
        node.replace(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        kept = read_state(fleet.members["a"].folder / "state", "a")
        assert kept is not None
        assert kept[0].version == node.version
        assert kept[0].replaced


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
    with Node.from_file(b):
        with Node.from_file(a) as node:
            until(node, all_probed)
        rewrite(a, '"uniform"', '"trust"')
        with Node.from_file(a) as node:
            status = until(node, all_probed)
            assert status["error"] is None
            assert status["round"] == 6


def test_counters_are_kept_although_training_has_failed(tmp_path: Path) -> None:
    fleet = Fleet.of(
        tmp_path,
        ["a"],
        everybody={**SOON, "model": {"kind": "small_nodes:failing", "scale": 0.0625}},
    )
    folder = fleet.members["a"].folder
    with Node.from_file(folder) as node:
        until(node, lambda status: status["error"] is not None)
        for _ in range(3):
            node.predict(fleet.x)
    with Node.from_file(folder, train=False) as again:
        assert again.status()["clients"] == {"ensemble": 3}


def test_another_nodes_certificate_is_refused(tmp_path: Path) -> None:
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    for name in ("node.pem", "node.key"):
        (fleet.members["a"].folder / name).write_bytes((fleet.members["b"].folder / name).read_bytes())
    with pytest.raises(LNTrustError, match="is b's certificate; this node is a"):
        Node(load_node(fleet.members["a"].folder))


def test_a_link_does_not_outlive_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet.of(tmp_path, ["a", "b"], everybody=SOON)
    from datetime import timedelta

    from lntrust.fleet.operations import certificates

    monkeypatch.setattr(
        certificates, "timedelta", lambda days=0, **more: timedelta(seconds=30 * days, **more)
    )
    authority = Authority(tmp_path / "certificates")
    authority.renew("b", days=1)
    for name in ("node.pem", "node.key"):
        (fleet.members["b"].folder / name).write_bytes((authority.folder / "b" / name).read_bytes())
    with Node.from_file(fleet.members["a"].folder) as a, Node.from_file(fleet.members["b"].folder) as b:
        until(a, all_probed, 25)
        assert set(a.predict(fleet.x).weights) == {"a", "b"}
        # A certificate is good for all of its last second: links may be closed and made again in it.
        until(b, lambda status: status["certificate"]["seconds_left"] < -2, 40)
        until(a, lambda status: not status["neighbours"]["b"]["present"], 30)
        assert b.expired
        assert set(b.predict(fleet.x).weights) == {"b"}
        assert set(a.predict(fleet.x).weights) == {"a"}
