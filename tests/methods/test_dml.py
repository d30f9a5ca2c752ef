"""DML: labels and neighbours at once, on every labelled batch; or on unlabelled examples, `dml_public`."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FOREST, LINEAR, MIXED, ROUNDS, STEPS, begun, made, parameters, record
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.learners import Batch
from lntrust.learners.views import Views
from lntrust.methods.dml import mutual, neighbours_mean

INPUT = 64  # bytes: 8 × 8 pixels of one byte


class TestLoss:
    @given(
        st.integers(0, 1000), st.integers(1, 5), st.integers(0, 4), st.integers(2, 5), st.integers(1, 4),
        st.floats(0, 10),
    )  # fmt: skip
    def test_its_gradient_is_that_of_the_mean_of_divergences(
        self, seed: int, B: int, U: int, C: int, members: int, strength: float
    ) -> None:
        """One KL(p_j ‖ p_i) for each neighbour, as published; ours is the KL from their mean.

        They speak of U further rows, or of the labelled ones.
        """
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(1, B + U, C, generator=draw, dtype=torch.float64, requires_grad=True)
        said = torch.randn(members, U or B, C, generator=draw, dtype=torch.float64).mul(3).softmax(-1)
        labels = torch.randint(C, (1, B), generator=draw)
        weight = torch.tensor([strength], dtype=torch.float64)
        (got,) = torch.autograd.grad(mutual(logits, labels, said.mean(0)[None], weight).sum(), logits)
        about = logits[0, B if U else 0 :].log_softmax(-1)
        divergences = [torch.nn.functional.kl_div(about, p, reduction="batchmean") for p in said]
        plain = torch.nn.functional.cross_entropy(logits[0, :B], labels[0])
        (wanted,) = torch.autograd.grad(plain + strength * sum(divergences) / members, logits)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)

    def test_agreement_costs_nothing_and_certainty_is_finite(self) -> None:
        logits = torch.tensor([[[30.0, 0.0, -30.0], [1.0, 2.0, 3.0]]], dtype=torch.float64)
        labels, one = torch.tensor([[0, 2]]), torch.ones(1, dtype=torch.float64)
        agreed = mutual(logits, labels, logits.softmax(-1), one)
        torch.testing.assert_close(agreed, cross_entropy(logits, labels), rtol=0, atol=1e-12)
        sure = torch.nn.functional.one_hot(labels, 3).double()
        torch.testing.assert_close(mutual(logits, labels, sure, one), 2 * agreed, rtol=0, atol=1e-12)


class TestOpinion:
    @given(seed=st.integers(0, 1000), n=st.integers(1, 4), q=st.integers(0, 8))
    def test_the_mean_is_over_sound_replies(self, seed: int, n: int, q: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        asker = torch.randint(n, (q,), generator=draw)
        said = torch.rand(q, 2, 3, generator=draw, dtype=torch.float64)
        sound = torch.rand(q, generator=draw) < 0.6
        mean, answered = neighbours_mean(asker, said, sound, n)
        for i in range(n):
            mine = [said[k] for k in range(q) if asker[k] == i and sound[k]]
            assert bool(answered[i]) == bool(mine)
            expected = sum(mine) / len(mine) if mine else torch.zeros(2, 3, dtype=torch.float64)
            torch.testing.assert_close(mean[i], expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("method", ["dml", "dml_public"])
    def test_every_example_is_learned_with_what_was_said_about_it(self, views64: Views, method: str) -> None:
        """By the open neighbourhood; forests are asked, and do not learn."""
        one = begun(views64, MIXED, "training.stage2_rounds=1", method=method)

        def look(batch: Batch, *rest: Any, more: Tensor | None = None) -> tuple[Any, ...] | None:
            asked = batch.examples if more is None else more
            p = torch.stack([one.population.predict_all(ids) for ids in asked])  # asker, answerer
            return (*rest[1], p) if rest else None  # steps of Stage 1 have no targets

        steps = record(one.population, "step", look)
        one()
        learned = [each for each in steps if each is not None]
        learns = one.population.takes_steps
        assert len(learned) == STEPS
        for p_bar, weight, p in learned:
            assert torch.equal(weight, learns.double())
            for i in torch.nonzero(learns).flatten().tolist():
                near = sorted(one.world.graph.neighbors(i))
                torch.testing.assert_close(p_bar[i], p[i, near].mean(0), rtol=0, atol=1e-12)


class TestMessages:
    @pytest.mark.parametrize("query", ["inputs", "ids"])
    @pytest.mark.parametrize("method", ["dml", "dml_public"])
    def test_bytes_and_what_they_are_about(self, views: Views, method: str, query: str) -> None:
        """Labelled examples are nobody else's, so they travel as inputs also where ids would do."""
        one = begun(views, MIXED, "training.batch=64", f"network.query={query}", method=method)
        asked = record(one.network, "ask", lambda questions, *_: questions)
        one()
        (asker, answerer), learns = one.world.edges.T, one.population.takes_steps.numpy()
        each, ledger = ROUNDS * STEPS * 64, one.network.ledger
        of_example = 4 if (method, query) == ("dml_public", "ids") else INPUT
        assert (ledger.payload("query", "mutual") == each * of_example * learns[asker]).all()
        assert (ledger.payload("reply", "mutual") == each * 4 * 10 * learns[answerer]).all()
        assert {phase for phase, _, _ in ledger} == {"mutual"}
        assert not learns.all()
        batches = [batch for t in range(ROUNDS) for batch in one.labelled.round(t)]
        assert len({tuple(questions.ids.tolist()) for questions in asked}) == len(asked)  # never the same
        for questions, batch in zip(asked, batches, strict=True):
            ids = questions.ids.view(6, 64)
            if method == "dml":
                assert questions.source == "batch"
                assert torch.equal(ids, batch.examples)
                continue
            assert questions.source == "shard"  # labelled inputs stay at home
            for i, own in enumerate(ids.numpy()):
                assert np.isin(own, one.world.partition.shard[i]).all()
                assert len(set(own.tolist())) == 64

    @pytest.mark.parametrize(("method", "examples"), [("dml", 32), ("dml_public", 64)])
    def test_only_who_is_drawn_asks(self, views: Views, method: str, examples: int) -> None:
        """Nobody does where only forests are drawn: two linear heads among four of them are often not."""
        few = f"population.learners=[{LINEAR},{FOREST},{FOREST.replace('forest', 'wood', 1)}]"
        one = made(views, few, "training.schedule=random_node", method=method)
        asker = one.world.edges[:, 0]
        taken = np.where(one.population.takes_steps.numpy(), one.labelled.steps_taken.numpy(), 0)
        assert len(set(taken.tolist())) > 2
        assert (one.network.ledger.payload("query", "mutual") == taken[asker] * examples * INPUT).all()
        assert all(t.isfinite().all() for t in parameters(one).values())
