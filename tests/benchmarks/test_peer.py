"""Our side by itself, and the peer's where LNTRUST_GOSSIPY_PYTHON names an interpreter that has it."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.speed import peer
from lntrust import LNTrustError, Study
from lntrust.experiment import Run
from lntrust.learners.views import Views

CPU = torch.device("cpu")
GOSSIPY = os.environ.get("LNTRUST_GOSSIPY_PYTHON")


@pytest.fixture(scope="module")
def study() -> Study:
    return peer.peer_study(nodes=20, rounds=6)


@pytest.fixture(scope="module")
def views(study: Study) -> Views:
    return peer.peer_views(study, CPU, features=16)


def test_our_updates_are_counted(study: Study, views: Views) -> None:
    """Everybody pushes once and trains once a round: as many merges as updates."""
    got = peer.ours(study, views, rounds=3)
    assert (got["rounds"], got["merges"], got["updates"]) == (3, 60, 60)
    assert (got["steps"], got["samples"]) == (120, 6000)
    training, (learner,) = study.training, study.population.learners
    assert (training.steps, training.batch, training.momentum, training.l2) == (2, 50, 0.0, 0.0)
    assert (learner.kind, learner.options) == ("linear", {"dropout": 0.0})
    assert peer.peer_study().graph.nodes == 100
    assert peer.rate(got) == 60 / got["seconds"] > 0


def test_the_peer_is_given_our_data(study: Study, views: Views, tmp_path: Path) -> None:
    path = tmp_path / "peer.npz"
    peer.pack(study, views, path)
    run = Run(study, "gossip_fedavg", 0, views)
    with np.load(path, allow_pickle=False) as got:
        assert got["x"].shape == (20, 100, 16)
        for i in (0, 19):
            ids = run.labelled.lists[i]
            assert np.array_equal(got["x"][i], views["codes"][ids].numpy())
            assert np.array_equal(got["y"][i], run.world.labels[ids])
        assert np.array_equal(got["edges"], run.world.edges)
        assert (int(got["classes"]), int(got["batch"]), float(got["lr"])) == (10, 50, 0.01)


def test_an_interpreter_without_gossipy(study: Study, views: Views) -> None:
    with pytest.raises(LNTrustError, match=r"(?s)cannot run gossipy: .*No module named .*pip install"):
        peer.theirs(Path(sys.executable), study, views, 1, [1])


@pytest.mark.skipif(not GOSSIPY, reason="LNTRUST_GOSSIPY_PYTHON names no interpreter that has gossipy")
def test_gossipy_does_what_we_count(study: Study, views: Views) -> None:
    """One merge and two steps of 50 an update, as many updates a round as there are nodes."""
    got = peer.theirs(Path(str(GOSSIPY)), study, views, 3, [1])
    (one,) = got["measured"]
    assert "gossipy-dfl" in json.dumps(got["versions"])
    assert (one["merges"], one["updates"], one["steps"], one["samples"]) == (60, 60, 120, 6000)
    assert one["seconds"] > 0
