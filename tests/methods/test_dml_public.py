"""DML on unlabelled examples: labelled inputs stay at home. What it shares with DML is tested with DML."""

import numpy as np
import pytest
from small_runs import MIXED, ROUNDS, STEPS, TORCH, begun, made, record, shared

from lntrust.learners.views import Views

METHOD, U = "dml_public", 64
BYTES = {"inputs": 64, "ids": 4}  # of one example: 8 × 8 pixels of one byte, or its number


@pytest.mark.parametrize("query", BYTES)
def test_bytes(views: Views, query: str) -> None:
    one = shared(views, MIXED, f"network.query={query}", method=METHOD)
    asker, answerer = one.world.edges.T
    learns = one.population.takes_steps.numpy()
    each = ROUNDS * STEPS * U
    ledger = one.network.ledger
    assert (ledger.payload("query", "mutual") == each * BYTES[query] * learns[asker]).all()
    assert (ledger.payload("reply", "mutual") == each * 4 * 10 * learns[answerer]).all()
    assert {phase for phase, _, _ in ledger} == {"mutual"}
    assert not learns.all()


def test_a_smaller_shard(views: Views) -> None:
    one = made(views, TORCH, "partition.shard=20", method=METHOD)
    assert (one.network.ledger.payload("reply", "mutual") == ROUNDS * STEPS * 20 * 40).all()


def test_only_examples_of_the_askers_shard_leave(views: Views) -> None:
    one = begun(views, TORCH, method=METHOD)
    asked = record(one.network, "ask")
    one()
    assert len(asked) == ROUNDS * STEPS
    assert len({tuple(questions.ids.tolist()) for questions, *_ in asked}) == len(asked)  # never the same
    for questions, *_ in asked:
        assert questions.source == "shard"
        for i, ids in enumerate(questions.ids.view(6, U).numpy()):
            assert np.isin(ids, one.world.partition.shard[i]).all()
            assert len(set(ids.tolist())) == U
