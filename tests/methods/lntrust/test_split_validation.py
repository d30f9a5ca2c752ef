"""Half of V_i for training's gates and weights, the other half for the last fit."""

import numpy as np
import torch
from small_runs import FORESTS, MIXED, begun, levers, parameters, shared

from lntrust.experiment import Run
from lntrust.learners.views import Views

SPLIT = levers(split_validation="true")


def relabelled(views: Views, half: int, *sets: str) -> Run:
    """A run in which every node is told wrong labels of one half of its validation set; it has ended."""
    one = begun(views, MIXED, *sets, method="lntrust")
    for owner, ids in zip(range(6), one.world.partition.validation.halves()[half], strict=True):
        wrong = (one.world.labels[ids] + 1 + owner) % 10
        one.world.labels[ids] = wrong
        one.population.labels[torch.from_numpy(ids)] = torch.from_numpy(wrong)
    one()
    return one


def test_the_halves_are_all_of_it(views: Views) -> None:
    validation = begun(views, MIXED, "partition.labelled=330", method="lntrust").world.partition.validation
    first, last = validation.halves()
    assert set((last.lengths - first.lengths).tolist()) == {1}
    for whole, *both in zip(validation, first, last, strict=True):
        assert sorted(np.concatenate(both)) == sorted(whole)


def test_no_model_knows_the_labels_that_decide_whom_it_answers_with(views: Views) -> None:
    """Those of the first half change what is learned, forests included; without a split all do."""
    plain = shared(views, MIXED, *SPLIT)
    other = relabelled(views, 1, *SPLIT)
    for name, tensor in plain.population.state().items():
        assert torch.equal(tensor, other.population.state()[name]), name
    assert not torch.equal(plain.state.closed, other.state.closed)
    assert torch.equal(plain.state.log.closed[:-1], other.state.log.closed[:-1]), "until the last fit"
    for half, sets in ((0, SPLIT), (1, [])):
        one, taught = relabelled(views, half, *sets), shared(views, MIXED, *sets)
        assert not all(torch.equal(t, parameters(one)[name]) for name, t in parameters(taught).items())


def test_the_last_fit_looks_at_the_other_half_only(views: Views) -> None:
    untaught = ["training.stage2_rounds=0"]
    for sets, rounds in (([], [0, 2, 4, 5]), (levers(final_rounds=2), [0, 2]), (untaught, [0])):
        one = begun(views, FORESTS, *SPLIT, *sets, method="lntrust")
        one()
        assert one.state.log.round.tolist() == rounds
        last = one.world.partition.validation.halves()[1]
        assert one.state.evidence.offsets.tolist() == last.offsets.tolist()


def test_it_costs_no_more_questions(views: Views) -> None:
    split, plain = (shared(views, MIXED, *sets) for sets in (SPLIT, []))
    asked = [run.network.ledger.payload("reply", "probe").sum() for run in (split, plain)]
    assert asked[0] < asked[1]
