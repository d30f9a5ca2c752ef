"""The last rounds train on validation labels too; trust is frozen by then."""

import numpy as np
import pytest
import torch
from small_runs import CHEAP, MIXED, TORCH, begun, levers, record, study
from torch import Tensor

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.world import Ragged

TWO = levers(final_rounds=2)  # of four, after two of Stage 1: the run's 5th and 6th


class Rounds:
    """A run, seen after each of its rounds."""

    def __init__(self, views: Views, *overrides: str) -> None:
        self.trained_on: dict[int, Ragged] = {}
        self.probed: dict[int, int] = {}
        self.trust: dict[int, Tensor] = {}
        self.models: dict[int, dict[str, Tensor]] = {}
        self.steps: dict[int, int] = {}
        self.run = one = begun(views, CHEAP, *overrides, method="lntrust")

        def progress(done: int, *_: object) -> None:
            self.trained_on[done] = one.labelled.lists
            self.probed[done] = int(one.network.ledger.payload(phase="probe").sum())
            self.models[done] = {name: t.clone() for name, t in one.population.state().items()}
            self.steps[done] = one.population.calls.get("supervised", 0)
            if one.state is not None:
                self.trust[done] = one.state.closed

        one(progress=progress)


class TestLabels:
    @pytest.mark.parametrize("validation", ["withheld", "fresh"])
    def test_what_was_withheld_in_the_last_rounds_only(self, views: Views, validation: str) -> None:
        """The validation set; or the labels that were given up for a fresh one."""
        seen = Rounds(views, MIXED, f"partition.validation={validation}", *TWO)
        p = seen.run.world.partition
        withheld = p.validation if validation == "withheld" else p.given_up
        for done, lists in seen.trained_on.items():
            for i, ids in enumerate(lists):
                has = np.isin(withheld[i], ids)
                given_up_later = validation == "fresh" and done < 2  # only when Stage 2 begins
                assert has.all() if done > 4 or given_up_later else not has.any()
                assert np.isin(p.train[i], ids).all()
        assert withheld.lengths.min() > 0
        held = [sorted([*p.train[i], *withheld[i]]) for i in range(6)]
        assert [sorted(ids) for ids in seen.trained_on[6]] == held

    def test_until_then_nothing_is_different(self, views: Views) -> None:
        """As many supervised steps, as many lessons; then other models, forests too, and no more probes."""
        plain, seen = Rounds(views, MIXED), Rounds(views, MIXED, *TWO)
        for name, tensor in plain.models[4].items():
            assert torch.equal(tensor, seen.models[4][name]), name
        assert torch.equal(plain.trust[4], seen.trust[4])
        for part in ("linear/", "forest/"):
            names = [name for name in plain.models[6] if name.startswith(part)]
            assert not all(torch.equal(plain.models[6][name], seen.models[6][name]) for name in names)
        assert plain.steps == seen.steps
        assert seen.steps[6] == 6 * seen.run.study.training.steps
        assert seen.probed[6] == seen.probed[4] > seen.probed[3]
        taught = [each.run.network.ledger.payload("reply", "distil").tolist() for each in (plain, seen)]
        assert taught[0] == taught[1]


class TestTrust:
    @pytest.mark.parametrize("refresh", [1, 3])
    def test_it_is_refreshed_before_and_never_again(self, views: Views, refresh: int) -> None:
        seen = Rounds(views, TORCH, *TWO, *levers(refresh=refresh))
        assert seen.run.state.log.round.tolist() == [t for t in (0, 1, 2) if t % refresh == 0 or t == 2]
        assert torch.equal(seen.trust[4], seen.trust[6])
        assert not torch.equal(seen.trust[3], seen.trust[4])

    def test_all_of_stage_2(self, views: Views) -> None:
        seen = Rounds(views, TORCH, *levers(final_rounds=50))
        assert seen.run.state.log.round.tolist() == [0]
        validation = seen.run.world.partition.validation
        for done, lists in seen.trained_on.items():
            assert np.isin(validation.values, lists.values).all() == (done > 2), done

    def test_no_certificate(self, views: Views) -> None:
        with pytest.raises(LNTrustError, match=r"--certify: .*final_rounds = 0"):
            Run(study(TORCH, *TWO), "lntrust", 0, views, certify=True)
        assert Run(study(TORCH), "lntrust", 0, views, certify=True).method.certify


def test_more_final_rounds_than_there_are_is_remarked_upon(views: Views) -> None:
    for final in (3, 4):
        said: list[str] = []
        Run(study(TORCH, *levers(final_rounds=final)), "lntrust", 0, views, notice=said.append)
        assert any("trust is learned once" in text for text in said) == (final == 4)


def test_forests_keep_what_they_were_taught(views: Views) -> None:
    """Entering the final rounds refits them: with their pseudo-labels, not without."""
    one = begun(views, MIXED, CHEAP, *levers(final_rounds=1), method="lntrust")
    with_pseudo = record(one.population, "refit", lambda _, pseudo=None: pseudo is not None)
    one()
    # At the start of Stage 2, at round 2 of it, when the last one begins, and at its end.
    assert with_pseudo == [False, True, True, True]
