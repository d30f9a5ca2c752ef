"""The labelled schedule: who learns from which of its examples, and how often."""

from typing import Any

import numpy as np
import pytest
import torch
from toy import CPU, LABELS, lists, training

from lntrust.learners import Batch, Labelled
from lntrust.learners import batch as batch_module

N = 6


def make(n: int = N, stage: int = 1, seed: int = 0, **changes: Any) -> Labelled:
    return Labelled(lists(n), LABELS, training(**changes), seed=seed, stage=stage, device=CPU)


def rounds(source: Labelled, count: int, start: int = 0) -> list[Batch]:
    return [batch for t in range(start, start + count) for batch in source.round(t)]


@pytest.mark.parametrize("schedule", ["every_node", "random_node"])
def test_a_node_learns_only_from_its_own_list(schedule: str) -> None:
    source = make(schedule=schedule)
    seen: list[set[int]] = [set() for _ in range(N)]
    for batch in rounds(source, 5):
        assert batch.examples.shape == batch.labels.shape == (N, 8)
        assert torch.equal(batch.labels, LABELS[batch.examples])
        for i in range(N):
            seen[i] |= set(batch.examples[i].tolist())
    for i, ids in enumerate(source.lists):
        assert seen[i] == set(ids.tolist())


def test_all_examples_are_used_equally_often() -> None:
    """A batch runs on into the next shuffle: after any number of steps, counts differ by one at most."""
    source = make()
    batches = rounds(source, 7)
    for i, ids in enumerate(source.lists):
        used = torch.cat([batch.examples[i] for batch in batches]).numpy()
        counts = np.array([(used == example).sum() for example in ids])
        assert counts.sum() == 7 * 5 * 8
        assert counts.max() - counts.min() <= 1


def test_the_random_schedule_deals_out_n_times_steps() -> None:
    source = make(schedule="random_node")
    totals = torch.zeros(N, dtype=torch.int64)
    shares = []
    for t in range(40):
        rows = [batch.active for batch in source.round(t)]
        assert all(row is not None and row.any() for row in rows)
        taken = torch.stack([row for row in rows if row is not None]).sum(0)
        assert taken.sum() == N * 5
        assert source.drawn == len(rows) == taken.max()
        totals += taken
        shares.append(tuple(taken.tolist()))
    assert len(set(shares)) > 30  # every round falls differently
    assert torch.equal(source.steps_taken, totals)
    assert (totals - 200).abs().max() < 5 * np.sqrt(200)


def test_the_random_schedule_leaves_out_nothing_of_a_nodes_sequence() -> None:
    """A node's k-th step has the same batch under both schedules."""
    plain = rounds(make(), 6)
    source = make(schedule="random_node")
    step = torch.zeros(N, dtype=torch.int64)
    for batch in rounds(source, 3):
        assert batch.active is not None
        for i in torch.nonzero(batch.active).flatten().tolist():
            if step[i] < len(plain):
                assert torch.equal(batch.examples[i], plain[int(step[i])].examples[i])
            step[i] += 1


@pytest.mark.parametrize("schedule", ["every_node", "random_node"])
def test_a_later_round_can_be_drawn_without_the_earlier_ones(schedule: str) -> None:
    """What a resumed run does: a fresh source, `steps_taken` set from the checkpoint."""
    through = make(schedule=schedule)
    rounds(through, 3)
    taken = through.steps_taken.clone()
    resumed = make(schedule=schedule)
    resumed.steps_taken = taken
    for a, b in zip(rounds(through, 2, start=3), rounds(resumed, 2, start=3), strict=True):
        assert torch.equal(a.examples, b.examples)
        assert (a.active is None) == (b.active is None)
        assert a.active is None or b.active is None or torch.equal(a.active, b.active)


@pytest.mark.parametrize("at_once", [1, 100, 500])
def test_drawing_many_steps_at_once_changes_nothing(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rounds(make(), 6)
    monkeypatch.setattr(batch_module, "_DRAWN_AT_ONCE", at_once)
    for a, b in zip(rounds(make(), 6), expected, strict=True):
        assert torch.equal(a.examples, b.examples)


def test_stages_and_seeds_shuffle_anew() -> None:
    first = torch.stack([batch.examples for batch in rounds(make(), 2)])
    for other in (make(stage=2), make(seed=1)):
        assert not torch.equal(first, torch.stack([batch.examples for batch in rounds(other, 2)]))
