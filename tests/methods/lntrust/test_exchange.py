"""What neighbours teach: asked anew in every round, or remembered."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import CHEAP, TORCH, begun, levers, parameters
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.base import Observer
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.distil import DistillTargets
from lntrust.trust.weights import top_k

EVERYTHING = "methods.lntrust.budget=100000"  # as much as there is: the whole shard


class Watched(Observer):
    """A run, with its targets and the states in which they were learned."""

    def __init__(self, views: Views, *overrides: str, **faults: Any) -> None:
        self.lessons: list[DistillTargets] = []
        self.states: list[TrustState] = []
        self.asked: list[np.ndarray] = []  # bytes of questions by edge, to learn from the answers, so far
        self.run = begun(views, TORCH, CHEAP, *overrides, method="lntrust")
        self.run.network.misbehaviour.update({int(k[1:]): twist for k, twist in faults.items()})
        self.run(progress=self._look_on)

    def _look_on(self, *_: object) -> None:
        self.asked.append(self.run.network.ledger.payload("query", "distil"))
        self.run.site.observer = self

    def distilling(self, state: TrustState, targets: DistillTargets) -> AbstractContextManager[None]:
        self.states.append(state)
        self.lessons.append(targets)
        return nullcontext()


class TestEveryRound:
    """With everything asked about in every round, remembering changes nothing."""

    @pytest.mark.parametrize(("weighting", "silent"), [("fedfomo", False), ("weighted_majority", True)])
    def test_the_same_lessons(self, views64: Views, weighting: str, silent: bool) -> None:
        settings = (EVERYTHING, *levers(weighting=weighting, targets="soft"))
        faults: dict[str, Any] = {"n2": lambda _: None} if silent else {}
        asked = Watched(views64, *settings, **faults)
        recalled = Watched(views64, *settings, *levers(recall=1), **faults)
        assert len(asked.lessons) == len(recalled.lessons) == 3
        for one, other in zip(asked.lessons, recalled.lessons, strict=True):
            assert torch.equal(one.ids, other.ids)
            torch.testing.assert_close(one.p_bar, other.p_bar, rtol=0, atol=1e-9)
            assert torch.equal(one.kept, other.kept)
        torch.testing.assert_close(parameters(asked.run), parameters(recalled.run), rtol=0, atol=1e-9)
        assert asked.run.network.ledger.summary() == recalled.run.network.ledger.summary()


class TestMessages:
    @pytest.mark.parametrize(("recall", "asks"), [(2, [2, 4]), (9, [2])])
    def test_asked_every_so_many_rounds(self, views: Views, recall: int, asks: list[int]) -> None:
        """Rounds 2–4 of Stage 2 distil: the run's 4th to 6th."""
        seen = Watched(views, *levers(recall=recall))
        world = seen.run.world
        shard = world.partition.shard.lengths
        assert len(set(shard.tolist())) == 1
        question = int(np.prod(world.input_shape)) * np.dtype(world.input_dtype).itemsize
        grown = np.diff(seen.asked, axis=0)  # the first is from before the first round
        assert [t for t, more in enumerate(grown, start=-1) if more.any()] == asks
        assert (grown[grown.any(1)] == int(shard[0]) * question).all()
        answered = seen.run.network.ledger.payload("reply", "distil")
        assert (answered == len(asks) * int(shard[0]) * 4 * 10).all()

    @pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_k": 2}, {"top_k": 1, "recall": 9}])
    def test_of_the_most_trusted_only(self, views: Views, settings: dict[str, int]) -> None:
        """Whoever these are in this round."""
        seen = Watched(views, *levers(**settings))
        asked = np.diff(seen.asked, axis=0)[-3:] > 0
        for k, (state, edges) in enumerate(zip(seen.states, asked, strict=True)):
            best = sorted(seen.run.site.around.edge[top_k(state.open, settings["top_k"])].tolist())
            assert 0 < len(best) < len(edges)
            assert np.flatnonzero(edges).tolist() == ([] if k and "recall" in settings else best)


def by_hand(run: Run, state: TrustState, lesson: DistillTargets) -> Tensor:
    """p̄ of remembered replies: Σ_j α_ij p_j / Σ_j α_ij over those that were heard."""
    column, replies = state.replies.column, state.replies.probabilities
    out = torch.zeros_like(lesson.p_bar)
    for i, shard in enumerate(run.site.shard.tolist()):
        place = [shard.index(k) for k in lesson.ids[i].tolist()]
        heard = torch.nonzero(column[i]).flatten().tolist()
        alpha = state.open[i, column[i, heard]]
        for s, share in zip(heard, alpha / alpha.sum(), strict=True):
            out[i] += share * replies[i, s, place]
    return out


class TestMemory:
    def test_under_the_trust_of_today(self, views: Views) -> None:
        """Of examples that still differ from round to round."""
        seen = Watched(views, *levers(recall=9))
        assert len({tuple(lesson.ids[0].tolist()) for lesson in seen.lessons}) == 3
        first, last = seen.states[0], seen.states[-1]
        assert torch.equal(first.replies.probabilities, last.replies.probabilities)
        assert not torch.equal(first.open, last.open), "or the test shows nothing"
        for state, lesson in zip(seen.states, seen.lessons, strict=True):
            torch.testing.assert_close(lesson.p_bar, by_hand(seen.run, state, lesson))

    def test_a_silent_neighbour_is_not_remembered(self, views: Views) -> None:
        seen = Watched(views, *levers(recall=9), n2=lambda p: p * torch.nan)
        around, column = seen.run.site.around, seen.states[-1].replies.column
        assert not ((around.member.gather(1, column) == 2) & (column > 0)).any()
        edges = seen.run.world.edges
        assert (edges[:, 1] == 2).any()
        assert (column > 0).sum() == (edges[:, 1] != 2).sum()
        for state, lesson in zip(seen.states, seen.lessons, strict=True):
            torch.testing.assert_close(lesson.p_bar, by_hand(seen.run, state, lesson))
