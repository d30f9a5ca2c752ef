"""FedMD without a server: the neighbourhood's mean logits on examples that everybody shares."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, FOREST, LINEAR, MIXED, TORCH, made, parameters, shared, study
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners import Population
from lntrust.learners.views import Views
from lntrust.methods.fedmd import FedMD, centred_logits, distance
from lntrust.network import Network, Questions, Replies

METHOD = "fedmd"
ROUNDS, POOL = 4, 600
STILL = '{name="linear",kind="linear",view="pixels",options={dropout=0.0}}'
STILL_MLP = '{name="mlp",kind="mlp",view="pixels",options={hidden=8,dropout=0.0}}'


def budget(B: int) -> str:
    return f"methods.fedmd.budget={B}"


def questions_of(
    views: Views, monkeypatch: pytest.MonkeyPatch, *overrides: str
) -> tuple[Run, list[Questions]]:
    asked: list[Questions] = []
    ask = Network.ask

    def recorded(self: Network, questions: Questions, phase: str, edges: Any = None) -> Replies:
        asked.append(questions)
        return ask(self, questions, phase, edges)

    monkeypatch.setattr(Network, "ask", recorded)
    return made(views, *overrides, method=METHOD), asked


class TestQuestions:
    def test_everybody_is_asked_about_the_same_examples(
        self, views: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, asked = questions_of(views, monkeypatch, TORCH, budget(40))
        assert len(asked) == ROUNDS
        for questions in asked:
            ids = questions.ids.view(6, 40)
            assert questions.source == "pool"
            assert (ids == ids[0]).all()
            assert len(ids[0].unique()) == 40
            assert np.isin(ids[0].numpy(), one.world.partition.pool).all()

    def test_about_others_in_the_next_round(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        _, asked = questions_of(views, monkeypatch, TORCH, budget(40))
        sets = [frozenset(questions.ids.tolist()) for questions in asked]
        assert len(set(sets)) == ROUNDS

    @pytest.mark.parametrize("query", ["inputs", "ids", "handle"])
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

    def test_a_budget_beyond_the_pool(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        one, asked = questions_of(views, monkeypatch, TORCH, budget(POOL + 1))
        assert (one.network.ledger.payload("query", "digest") == ROUNDS * POOL * 4).all()
        for questions in asked:
            assert set(questions.ids.tolist()) == set(one.world.partition.pool.tolist())

    def test_deployment_costs_nothing(self, views: Views) -> None:
        assert Run(study(TORCH), METHOD, 0, views)()["bytes"]["per_deployed_query"] == 0


class TestLoss:
    @given(
        st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1, max_size=5)
    )  # fmt: skip
    def test_probabilities_tell_the_centred_logits(self, rows: list[list[float]]) -> None:
        z = torch.tensor(rows, dtype=torch.float64)
        expected = z - z.mean(-1, keepdim=True)
        torch.testing.assert_close(centred_logits(z.softmax(-1)), expected, rtol=0, atol=1e-9)

    @given(st.integers(2, 20))
    def test_certainty_is_finite(self, C: int) -> None:
        sure = torch.nn.functional.one_hot(torch.tensor(0), C).double()
        z = centred_logits(sure)
        assert z.isfinite().all()
        assert float(z.sum()) == pytest.approx(0, abs=1e-9)
        assert int(z.argmax()) == 0

    @given(seed=st.integers(0, 1000), B=st.integers(1, 5), C=st.integers(2, 6), strength=st.floats(0, 10))
    def test_against_loops(self, seed: int, B: int, C: int, strength: float) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits, mean = torch.randn(2, 2, B, C, generator=draw, dtype=torch.float64)
        got = distance(logits, mean, torch.full((2,), strength, dtype=torch.float64))
        for i in range(2):
            apart = [
                abs(float(logits[i, b, c]) - float(logits[i, b].mean()) - float(mean[i, b, c]))
                for b in range(B)
                for c in range(C)
            ]
            assert float(got[i]) == pytest.approx(strength * sum(apart) / len(apart), rel=1e-9, abs=1e-12)

    @given(seed=st.integers(0, 1000), C=st.integers(2, 6))
    def test_at_the_mean_it_is_zero_and_flat(self, seed: int, C: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(1, 3, C, generator=draw, dtype=torch.float64, requires_grad=True)
        mean = (logits - logits.mean(-1, keepdim=True)).detach()
        loss = distance(logits, mean, torch.ones(1, dtype=torch.float64))
        assert float(loss.detach()) == 0
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert (gradient == 0).all()

    @given(seed=st.integers(0, 1000), B=st.integers(1, 5), C=st.integers(2, 6), far=st.floats(1, 1e6))
    def test_however_far_the_gradient_is_bounded(self, seed: int, B: int, C: int, far: float) -> None:
        """A sign for each class less the mean of the signs: at most 2 λ / (B C), however large the gap."""
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(1, B, C, generator=draw, dtype=torch.float64, requires_grad=True)
        mean = far * torch.randn(1, B, C, generator=draw, dtype=torch.float64)
        loss = distance(logits, mean, torch.full((1,), 3.0, dtype=torch.float64))
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert float(gradient.abs().max()) <= 3.0 * 2 / (B * C) + 1e-12
        assert float(gradient.sum(-1).abs().max()) < 1e-12  # softmax does not see a shift, nor do we


class TestDigest:
    def target(self, views64: Views, monkeypatch: pytest.MonkeyPatch, silent: int | None) -> tuple[Any, ...]:
        """The run, and of its first round the targets, who takes part, and what everybody said."""
        seen: list[tuple[Any, ...]] = []
        descend = Population.descend

        def recorded(
            self: Population, purpose: str, examples: Tensor, loss: Any, targets: Any, **more: Any
        ) -> Tensor:
            if purpose == "digest":
                seen.append((targets, more["active"], self.predict_all(examples[0])))
            return descend(self, purpose, examples, loss, targets, **more)

        monkeypatch.setattr(Population, "descend", recorded)
        one = Run(study(MIXED, FLOAT64, budget(40), "methods.fedmd.strength=2.5"), METHOD, 0, views64)
        if silent is not None:
            one.network.misbehaviour[silent] = lambda _: None
        one()
        return one, *seen[0]

    @pytest.mark.parametrize("silent", [None, 1])
    def test_towards_the_mean_of_the_closed_neighbourhood(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch, silent: int | None
    ) -> None:
        """Forests are heard, though they do not listen; who does not answer is left out."""
        one, (mean, strength), active, p = self.target(views64, monkeypatch, silent)
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

    def test_identical_models_do_not_move(self, views64: Views) -> None:
        one = Run(study(f"population.learners=[{STILL}]", FLOAT64), METHOD, 0, views64)
        (stack,) = one.population.torch_stacks
        one.population.set_parameters(stack, one.population.parameters(stack)[:1].expand(6, -1))
        before = one.population.parameters(stack)
        assert isinstance(one.method, FedMD)
        one.method._digest(one.site, 1, 100)
        torch.testing.assert_close(one.population.parameters(stack), before, rtol=0, atol=1e-9)

    @given(st.lists(st.floats(-60, 60), min_size=2, max_size=6))
    def test_however_sure_a_model_is_it_agrees_with_itself(self, logits: list[float]) -> None:
        """Replies are clipped; if the student were not, it would be pulled away from what it says itself."""
        z = torch.tensor([[logits]], dtype=torch.float64, requires_grad=True)
        mean = centred_logits(z.detach().softmax(-1))
        loss = distance(z, mean, torch.ones(1, dtype=torch.float64))
        (slope,) = torch.autograd.grad(loss.sum(), z)
        assert float(loss.detach()) == 0
        assert not slope.any()

    def test_different_models_come_closer(self, views64: Views) -> None:
        heads = f"population.learners=[{STILL},{STILL_MLP}]"
        one = Run(study(heads, FLOAT64, "training.momentum=0"), METHOD, 0, views64)
        assert isinstance(one.method, FedMD)
        examples = torch.from_numpy(one.world.partition.pool)

        def spread() -> float:
            return float(centred_logits(one.population.predict_all(examples)).std(0).mean())

        spreads = [spread()]
        for t in range(1, 6):
            one.method._digest(one.site, t, 100)
            spreads.append(spread())
        assert spreads == sorted(spreads, reverse=True)


class TestReductions:
    def test_one_node_alone_is_independent(self, views64: Views) -> None:
        alone = ("graph.nodes=1", "partition.labelled=60", TORCH, FLOAT64)
        one, plain = (made(views64, *alone, method=m) for m in (METHOD, "independent"))
        for name, tensor in parameters(plain).items():
            assert torch.equal(parameters(one)[name], tensor), name

    @pytest.mark.parametrize("nothing", [budget(0), "partition.pool=0"])
    def test_without_examples_it_is_independent(self, views64: Views, nothing: str) -> None:
        how = (TORCH, FLOAT64, nothing, *(["partition.shard=0"] if "pool" in nothing else []))
        one, plain = (made(views64, *how, method=m) for m in (METHOD, "independent"))
        assert one.network.ledger.summary()["total"] == 0
        for name, tensor in parameters(plain).items():
            assert torch.equal(parameters(one)[name], tensor), name

    def test_with_examples_it_is_not(self, views64: Views) -> None:
        plain = parameters(shared(views64, TORCH, FLOAT64, method="independent"))
        one = parameters(shared(views64, TORCH, FLOAT64, method=METHOD))
        assert all(not torch.allclose(t, plain[name]) for name, t in one.items())

    def test_only_forests_have_neighbours(self, views: Views, tmp_path: Path) -> None:
        """Nobody asks then: forests take no steps, and linear heads know nobody."""
        path = tmp_path / "edges.txt"
        path.write_text("1 3\n3 5\n")
        graph = ("graph.kind=file", f'graph.file="{path}"', "graph.connected=false")
        how = (f"population.learners=[{LINEAR},{FOREST}]", *graph)
        one, plain = (made(views, *how, method=m) for m in (METHOD, "independent"))
        assert one.network.ledger.summary()["total"] == 0
        for name, tensor in parameters(plain).items():
            assert torch.equal(parameters(one)[name], tensor), name

    def test_nobody_can_be_understood(self, views64: Views) -> None:
        one = Run(study(TORCH, FLOAT64), METHOD, 0, views64)
        one.network.misbehaviour.update(dict.fromkeys(range(6), lambda p: -p))
        one()
        plain = parameters(shared(views64, TORCH, FLOAT64, method="independent"))
        assert all(torch.equal(t, plain[name]) for name, t in parameters(one).items())


class TestBackends:
    def test_equal_in_float64(self, views64: Views) -> None:
        batched, loop = (
            made(views64, TORCH, FLOAT64, method=METHOD, backend=backend) for backend in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-8, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
