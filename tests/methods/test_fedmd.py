"""FedMD without a server: the neighbourhood's mean logits on examples that everybody shares."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import MIXED, ROUNDS, TORCH, begun, record, shared
from torch import Tensor

from lntrust.learners.views import Views
from lntrust.methods.fedmd import centred_logits, distance

METHOD, POOL = "fedmd", 600
STILL = '{name="linear",kind="linear",view="pixels",options={dropout=0.0}}'
STILL_MLP = '{name="mlp",kind="mlp",view="pixels",options={hidden=8,dropout=0.0}}'


def budget(B: int) -> str:
    return f"methods.fedmd.budget={B}"


class TestQuestions:
    @pytest.mark.parametrize("count", [40, POOL + 1])
    def test_everybody_is_asked_about_the_same_examples(self, views: Views, count: int) -> None:
        """And about others in the next round, while there are any."""
        one = begun(views, TORCH, budget(count), method=METHOD)
        asked = record(one.network, "ask", lambda questions, *_: questions)
        one()
        assert len(asked) == ROUNDS
        assert len({frozenset(questions.ids.tolist()) for questions in asked}) == (
            ROUNDS if count == 40 else 1
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
        one = shared(views, MIXED, budget(40), f"network.query={query}", method=METHOD)
        asker, answerer = one.world.edges.T
        learns = one.population.takes_steps.numpy()
        ledger = one.network.ledger
        assert (ledger.payload("query", "digest") == ROUNDS * 40 * 4 * learns[asker]).all()
        assert (ledger.payload("reply", "digest") == ROUNDS * 40 * 4 * 10 * learns[answerer]).all()
        assert {phase for phase, _, _ in ledger} == {"digest"}
        assert not learns.all()


class TestLoss:
    @given(seed=st.integers(0, 1000), B=st.integers(1, 5), C=st.integers(2, 6), strength=st.floats(0, 10))
    def test_against_loops(self, seed: int, B: int, C: int, strength: float) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits, mean = torch.randn(2, 2, B, C, generator=draw, dtype=torch.float64)
        got = distance(logits, mean, torch.full((2,), strength, dtype=torch.float64))
        apart = (logits - logits.mean(-1, keepdim=True) - mean).abs().mean((1, 2))
        torch.testing.assert_close(got, strength * apart, rtol=1e-9, atol=1e-12)

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
        one = begun(views64, MIXED, budget(40), "methods.fedmd.strength=2.5", method=METHOD)
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
