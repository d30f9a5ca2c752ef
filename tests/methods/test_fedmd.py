"""FedMD without a server: the neighbourhood's mean logits on examples that everybody shares."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import MIXED, ROUNDS, STEPS, TORCH, begun, record, shared
from torch import Tensor

from lntrust.learners.views import Views
from lntrust.methods.fedmd import agreed_loss, centred_logits, distance

METHOD, POOL, TRANSFER = "fedmd", 600, 3
STILL = '{name="linear",kind="linear",view="pixels",options={dropout=0.0}}'
STILL_MLP = '{name="mlp",kind="mlp",view="pixels",options={hidden=8,dropout=0.0}}'


def budget(B: int) -> str:
    return f"methods.fedmd.budget={B}"


def transfer(rounds: int) -> str:
    return f"methods.fedmd.transfer={rounds}"


class TestQuestions:
    @pytest.mark.parametrize("count", [40, POOL + 1])
    def test_everybody_is_asked_about_the_same_examples(self, views: Views, count: int) -> None:
        """And about others in the next round, while there are any."""
        one = begun(views, TORCH, budget(count), transfer(TRANSFER), method=METHOD)
        asked = record(one.network, "ask", lambda questions, *_: questions)
        one()
        rounds = TRANSFER + ROUNDS
        assert len(asked) == rounds
        assert len({frozenset(questions.ids.tolist()) for questions in asked}) == (
            rounds if count == 40 else 1
        )
        for questions in asked:
            ids = questions.ids.view(6, min(count, POOL))
            assert questions.source == "pool"
            assert (ids == ids[0]).all()
            assert len(ids[0].unique()) == min(count, POOL)
            assert np.isin(ids[0].numpy(), one.world.partition.pool).all()

    @pytest.mark.parametrize("query", ["inputs", "handle"])
    def test_bytes(self, views: Views, query: str) -> None:
        """The pool is public, so examples go by id, whatever the study says."""
        one = shared(views, MIXED, budget(40), transfer(TRANSFER), f"network.query={query}", method=METHOD)
        asker, answerer = one.world.edges.T
        learns = one.population.takes_steps.numpy()
        ledger = one.network.ledger
        for phase, rounds in (("transfer", TRANSFER), ("digest", ROUNDS)):
            assert (ledger.payload("query", phase) == rounds * 40 * 4 * learns[asker]).all()
            assert (ledger.payload("reply", phase) == rounds * 40 * 4 * 10 * learns[answerer]).all()
        assert {phase for phase, _, _ in ledger} == {"transfer", "digest"}
        assert not learns.all()


class TestLoss:
    @given(seed=st.integers(0, 1000), B=st.integers(1, 5), C=st.integers(2, 6), strength=st.floats(0, 10))
    def test_against_loops(self, seed: int, B: int, C: int, strength: float) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits, mean = torch.randn(2, 2, B, C, generator=draw, dtype=torch.float64)
        got = distance(logits, mean, torch.full((2,), strength, dtype=torch.float64))
        apart = (logits - logits.mean(-1, keepdim=True) - mean).abs().sum(2).mean(1)
        torch.testing.assert_close(got, strength * apart, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("C", [2, 10, 100])
    def test_its_slope_is_the_same_for_any_number_of_classes(self, C: int) -> None:
        """A mean over classes would be a step ever smaller: with 100 of them, next to none."""
        z = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
        mean = torch.full((1, 1, C), -1.0, dtype=torch.float64)
        mean[..., 0] = C - 1
        loss = distance(z, mean, torch.ones(1, dtype=torch.float64))
        (slope,) = torch.autograd.grad(loss.sum(), z)
        assert float(slope[0, 0, 0]) == pytest.approx(-2 * (1 - 1 / C))

    @given(st.lists(st.floats(-60, 60), min_size=2, max_size=6))
    def test_at_the_mean_it_is_zero_and_flat_however_sure_a_model_is(self, logits: list[float]) -> None:
        """Replies are clipped; if the student were not, it would be pulled away from what it says itself."""
        z = torch.tensor([[logits]], dtype=torch.float64, requires_grad=True)
        mean = centred_logits(z.detach().softmax(-1))
        loss = distance(z, mean, torch.ones(1, dtype=torch.float64))
        (slope,) = torch.autograd.grad(loss.sum(), z)
        assert float(loss.detach()) == 0
        assert not slope.any()


class TestDigest:
    @pytest.mark.parametrize("silent", [None, 1])
    def test_towards_the_mean_of_the_closed_neighbourhood(self, views64: Views, silent: int | None) -> None:
        """Forests count, though they do not learn; who does not answer is left out."""
        how = (MIXED, budget(40), transfer(0), "methods.fedmd.strength=2.5")
        one = begun(views64, *how, method=METHOD)
        if silent is not None:
            one.network.misbehaviour[silent] = lambda _: None

        def look(purpose: str, examples: Tensor, _: Any, targets: Any, **more: Any) -> tuple[Any, ...]:
            return purpose, targets, more["active"], one.population.predict_all(examples[0])

        steps = record(one.population, "descend", look)
        one()
        _, (mean, strength), active, p = next(step for step in steps if step[0] == "digest")
        z = p.clamp(min=1e-7).log()
        z = z - z.mean(-1, keepdim=True)
        learns = one.population.takes_steps
        assert strength.tolist() == [2.5] * 6
        assert not bool(learns.all())
        for i in torch.nonzero(learns).flatten().tolist():
            closed = [i, *(j for j in one.world.graph.neighbors(i) if j != silent)]
            assert bool(active[i]) == (len(closed) > 1)
            torch.testing.assert_close(mean[i], z[closed].mean(0), rtol=0, atol=1e-9)
        assert not bool(active[~learns].any())

    def test_different_models_come_closer(self, views64: Views) -> None:
        heads = f"population.learners=[{STILL},{STILL_MLP}]"
        one = begun(views64, heads, "training.momentum=0", method=METHOD)
        examples = torch.from_numpy(one.world.partition.pool)

        def spread() -> float:
            return float(centred_logits(one.population.predict_all(examples)).std(0).mean())

        spreads = [spread()]
        for t in range(1, 6):
            one.method.digest(one.site, t, 100)
            spreads.append(spread())
        assert spreads == sorted(spreads, reverse=True)

    def test_a_round_is_a_pass_over_the_public_examples_in_batches(self, views: Views) -> None:
        """Towards what the neighbourhood said before the first of them; then come the labelled steps."""
        how = (TORCH, budget(40), transfer(0), "methods.fedmd.batch=16", "training.stage2_rounds=2")
        one = begun(views, *how, method=METHOD)
        asked = record(one.network, "ask", lambda questions, *_: questions.ids.view(6, 40)[0].tolist())
        steps = record(one.population, "descend", lambda purpose, ids, *_, **__: (purpose, ids[0].tolist()))
        one()
        told = [each for each in steps if each[0] == "digest"]
        assert [len(ids) for _, ids in told] == [16, 16, 8] * 2
        assert [x for _, ids in told for x in ids] == [x for ids in asked for x in ids]
        collaborative = [purpose for purpose, _ in steps][2 * STEPS :]  # after Stage 1
        assert collaborative == (["digest"] * 3 + ["supervised"] * STEPS) * 2


class TestTransfer:
    @pytest.mark.parametrize("silent", [None, 1])
    def test_labels_are_those_that_most_of_the_closed_neighbourhood_give(
        self, views64: Views, silent: int | None
    ) -> None:
        one = begun(views64, MIXED, budget(40), transfer(1), method=METHOD)
        if silent is not None:
            one.network.misbehaviour[silent] = lambda _: None

        def look(purpose: str, examples: Tensor, _: Any, targets: Any, **more: Any) -> tuple[Any, ...]:
            return purpose, targets, more["active"], one.population.predict_all(examples[0]).argmax(-1)

        steps = record(one.population, "descend", look)
        one()
        _, (labels, kept), active, said = next(step for step in steps if step[0] == "transfer")
        for i in torch.nonzero(one.population.takes_steps).flatten().tolist():
            closed = [i, *(j for j in one.world.graph.neighbors(i) if j != silent)]
            for x in range(40):
                votes = torch.bincount(said[closed, x], minlength=10)
                assert bool(kept[i, x]) == (2 * int(votes.max()) > len(closed))
                assert not kept[i, x] or int(labels[i, x]) == int(votes.argmax())
            assert bool(active[i]) == (len(closed) > 1 and bool(kept[i].any()))
        assert 0 < float(kept.mean()) < 1

    def test_it_comes_once_before_the_first_round(self, views: Views) -> None:
        one = begun(views, TORCH, budget(40), transfer(TRANSFER), method=METHOD)
        steps = record(one.population, "descend", lambda purpose, *_, **__: purpose)
        one()
        after = steps[2 * STEPS :]
        assert after[:TRANSFER] == ["transfer"] * TRANSFER
        assert "transfer" not in after[TRANSFER:]

    @given(seed=st.integers(0, 1000), B=st.integers(1, 5), C=st.integers(2, 6))
    def test_its_loss_is_that_of_the_kept_examples_alone(self, seed: int, B: int, C: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(2, B, C, generator=draw, dtype=torch.float64)
        labels, kept = (torch.randint(top, (2, B), generator=draw) for top in (C, 2))
        got = agreed_loss(logits, labels, kept.double())
        for i in range(2):
            rows = kept[i].bool()
            plain = torch.nn.functional.cross_entropy(logits[i][rows], labels[i][rows]) if rows.any() else 0.0
            assert float(got[i]) == pytest.approx(float(plain))
