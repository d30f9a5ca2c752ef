"""The last rounds train on validation labels too; trust is frozen by then."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import MIXED, TORCH, assert_resumes, ended, levers, made, shared, study
from torch import Tensor

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.population import PseudoLabels
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
        self.run = one = Run(study(*overrides), "lntrust", 0, views)

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
        plain, seen = Rounds(views, MIXED), Rounds(views, MIXED, *TWO)
        for name, tensor in plain.models[4].items():
            assert torch.equal(tensor, seen.models[4][name]), name
        assert torch.equal(plain.trust[4], seen.trust[4])
        assert any(not torch.equal(tensor, seen.models[6][name]) for name, tensor in plain.models[6].items())

    def test_as_many_supervised_steps_as_granted(self, views: Views) -> None:
        plain, seen = Rounds(views, TORCH), Rounds(views, TORCH, *TWO)
        assert plain.steps == seen.steps
        steps = seen.run.study.training.steps
        assert seen.steps[6] == 6 * steps

    def test_forests_are_grown_from_them_too(self, views: Views) -> None:
        seen = Rounds(views, MIXED, *TWO)
        forests = [name for name in seen.models[4] if name.startswith("forest/")]
        assert forests
        assert any(
            seen.models[4][name].shape != seen.models[5].get(name, seen.models[4][name][:0]).shape
            or not torch.equal(seen.models[4][name], seen.models[5][name])
            for name in forests
        )


class TestTrust:
    @pytest.mark.parametrize("refresh", [1, 2, 3])
    def test_it_is_refreshed_before_and_never_again(self, views: Views, refresh: int) -> None:
        seen = Rounds(views, TORCH, *TWO, *levers(refresh=refresh))
        assert seen.run.state.log.round.tolist() == [t for t in (0, 1, 2) if t % refresh == 0 or t == 2]
        assert torch.equal(seen.trust[4], seen.trust[6])
        assert not torch.equal(seen.trust[3], seen.trust[4])

    def test_no_probes_are_sent_then(self, views: Views) -> None:
        seen = Rounds(views, TORCH, *TWO)
        assert seen.probed[6] == seen.probed[4] > seen.probed[3]

    def test_neighbours_still_teach(self, views: Views) -> None:
        one, plain = made(views, TORCH, *TWO), shared(views, TORCH)
        taught = [r.network.ledger.payload("reply", "distil").tolist() for r in (one, plain)]
        assert taught[0] == taught[1]

    @pytest.mark.parametrize("final", [4, 50])
    def test_all_of_stage_2(self, views: Views, final: int) -> None:
        seen = Rounds(views, TORCH, *levers(final_rounds=final))
        assert seen.run.state.log.round.tolist() == [0]
        validation = seen.run.world.partition.validation
        for done, lists in seen.trained_on.items():
            assert np.isin(validation.values, lists.values).all() == (done > 2), done

    def test_what_was_validated_is_said_of_models_as_they_were_then(self, views: Views) -> None:
        one, summary = ended(views, TORCH, *TWO, method="lntrust")
        assert one.state.validated.shape == (6, 2)
        assert 0 <= summary["test"] <= 1


class TestRecords:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, views: Views, tmp_path: Path, schedule: str
    ) -> None:
        assert_resumes(views, tmp_path, MIXED, *TWO, f"training.schedule={schedule}")

    def test_no_certificate(self, views: Views) -> None:
        with pytest.raises(LNTrustError, match=r"--certify: .*final_rounds = 0"):
            Run(study(TORCH, *TWO), "lntrust", 0, views, certify=True)
        assert Run(study(TORCH), "lntrust", 0, views, certify=True).method.certify


def test_more_final_rounds_than_there_are_is_remarked_upon(views: Views) -> None:
    said: list[str] = []
    Run(study(TORCH, *levers(final_rounds=4)), "lntrust", 0, views, notice=said.append)
    assert any("trust is learned once" in text for text in said)
    said.clear()
    Run(study(TORCH, *levers(final_rounds=3)), "lntrust", 0, views, notice=said.append)
    assert not any("trust is learned once" in text for text in said)


def test_forests_keep_what_they_were_taught(views: Views) -> None:
    """Entering the final rounds refits them: with their pseudo-labels, not without."""
    one = Run(study(MIXED, *levers(final_rounds=1)), "lntrust", 0, views)
    with_pseudo: list[bool] = []
    refit = one.population.refit

    def watched(lists: Ragged, pseudo: PseudoLabels | None = None) -> None:
        with_pseudo.append(pseudo is not None)
        refit(lists, pseudo)

    one.population.refit = watched  # type: ignore[method-assign]
    one()
    # At the start of Stage 2, at round 2 of it, when the last one begins, and at its end.
    assert with_pseudo == [False, True, True, True]
