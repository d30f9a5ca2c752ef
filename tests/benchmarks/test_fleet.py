"""The benchmark of live nodes, in small: it really runs, and counts what it says."""

import numpy as np
import pytest

from benchmarks.speed.fleet import BATCH, CLASSES, FEATURES, latency, throughput


def test_throughput_is_measured_beside_an_echo(tmp_path_factory: pytest.TempPathFactory) -> None:
    got = throughput(tmp_path_factory.mktemp("throughput") / "t", seconds=0.1, turns=2, in_flight=2)
    assert got["ratio"] > 0
    assert (got["batch"], got["in_flight"]) == (BATCH, 2)
    assert {name: len(rates) for name, rates in got["turns"].items()} == {"node": 2, "echo": 2}
    assert min(*got["turns"]["node"], *got["turns"]["echo"]) > 0
    assert got["node_per_second"] == np.median(got["turns"]["node"])
    assert got["question_bytes"] > 4 * BATCH * FEATURES
    assert 4 * BATCH * CLASSES < got["reply_bytes"] < 5 * BATCH * CLASSES


def test_latency_is_that_of_an_answer_of_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    got = latency(tmp_path_factory.mktemp("latency") / "l", questions=20, training=False, neighbours=2)
    assert got["mean_members"] == 3, "the node itself, and its neighbours"
    assert 0 < got["p50_ms"] <= got["p99_ms"] <= got["worst_ms"]
    assert (got["questions"], got["neighbours"], got["training"]) == (20, 2, False)
    assert got["rounds_meanwhile"] == 0
