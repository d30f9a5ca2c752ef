"""DML: labels and neighbours at once, on every labelled batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, FOREST, LINEAR, MIXED, TORCH, made, parameters, shared, study
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.experiment import Run
from lntrust.learners import Batch, Population
from lntrust.learners.views import Views
from lntrust.methods.dml import DML, mutual, neighbours_mean
from lntrust.network import Network, Questions, Replies

METHOD = "dml"
ALONE = ("graph.nodes=1", "partition.labelled=60")
BATCH = "training.batch=64"
INPUT = 64  # bytes: 8 × 8 pixels of one byte
ROUNDS, STEPS = 4, 5


def opinion(run: Run, active: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What the neighbours of each node make of twenty examples, with which weight, and the examples."""
    assert isinstance(run.method, DML)
    examples = torch.from_numpy(run.world.partition.pool[: 20 * run.world.n]).view(run.world.n, 20)
    batch = Batch(examples, run.population.labels[examples], active)
    p_bar, weight = run.method.opinion(run.site, examples, "batch", batch)
    return p_bar, weight, examples


def neighbours(run: Run, i: int) -> list[int]:
    return sorted(run.world.graph.neighbors(i))


class TestReductions:
    def test_one_node_alone_is_independent(self, views64: Views) -> None:
        one, plain = (made(views64, *ALONE, TORCH, FLOAT64, method=m) for m in (METHOD, "independent"))
        for name, tensor in parameters(plain).items():
            torch.testing.assert_close(parameters(one)[name], tensor, rtol=0, atol=1e-9, msg=name)

    def test_without_strength_it_is_independent(self, views64: Views) -> None:
        one = made(views64, TORCH, FLOAT64, "methods.dml.strength=0", method=METHOD)
        for name, tensor in parameters(shared(views64, TORCH, FLOAT64, method="independent")).items():
            torch.testing.assert_close(parameters(one)[name], tensor, rtol=0, atol=1e-9, msg=name)

    def test_with_strength_it_is_not(self, views64: Views) -> None:
        one = shared(views64, TORCH, FLOAT64, method=METHOD)
        plain = parameters(shared(views64, TORCH, FLOAT64, method="independent"))
        assert all(not torch.allclose(t, plain[name]) for name, t in parameters(one).items())

    def test_nobody_can_be_understood(self, views64: Views) -> None:
        one = Run(study(TORCH, FLOAT64), METHOD, 0, views64)
        one.network.misbehaviour.update(dict.fromkeys(range(6), lambda p: p * torch.nan))
        one()
        assert one.network.faulty.sum() == ROUNDS * STEPS * len(one.world.edges)
        for name, tensor in parameters(shared(views64, TORCH, FLOAT64, method="independent")).items():
            torch.testing.assert_close(parameters(one)[name], tensor, rtol=0, atol=1e-9, msg=name)


class TestLoss:
    @given(
        seed=st.integers(0, 1000),
        B=st.integers(1, 5),
        C=st.integers(2, 5),
        members=st.integers(1, 4),
        strength=st.floats(0, 10),
    )
    def test_its_gradient_is_that_of_the_mean_of_divergences(
        self, seed: int, B: int, C: int, members: int, strength: float
    ) -> None:
        """One KL(p_j ‖ p_i) for each neighbour, as published; ours is the KL from their mean."""
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(1, B, C, generator=draw, dtype=torch.float64, requires_grad=True)
        said = torch.randn(members, B, C, generator=draw, dtype=torch.float64).mul(3).softmax(-1)
        labels = torch.randint(C, (1, B), generator=draw)
        weight = torch.tensor([strength], dtype=torch.float64)
        (got,) = torch.autograd.grad(mutual(logits, labels, said.mean(0)[None], weight).sum(), logits)
        divergences = [
            torch.nn.functional.kl_div(logits[0].log_softmax(-1), p, reduction="batchmean") for p in said
        ]
        plain = torch.nn.functional.cross_entropy(logits[0], labels[0])
        (wanted,) = torch.autograd.grad(plain + strength * sum(divergences) / members, logits)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)

    @given(seed=st.integers(0, 1000), B=st.integers(1, 4), U=st.integers(1, 4))
    def test_neighbours_speak_of_the_last_rows(self, seed: int, B: int, U: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(2, B + U, 3, generator=draw, dtype=torch.float64)
        p_bar = torch.randn(2, U, 3, generator=draw, dtype=torch.float64).softmax(-1)
        labels = torch.randint(3, (2, B), generator=draw)
        got = mutual(logits, labels, p_bar, torch.ones(2, dtype=torch.float64))
        for i in range(2):
            kl = torch.nn.functional.kl_div(logits[i, B:].log_softmax(-1), p_bar[i], reduction="batchmean")
            ce = torch.nn.functional.cross_entropy(logits[i, :B], labels[i])
            assert float(got[i]) == pytest.approx(float(ce + kl), rel=1e-9)

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
        mean, answered = neighbours_mean(asker, said, sound, torch.Size((n, 2)))
        for i in range(n):
            mine = [said[k] for k in range(q) if asker[k] == i and sound[k]]
            assert bool(answered[i]) == bool(mine)
            expected = sum(mine) / len(mine) if mine else torch.zeros(2, 3, dtype=torch.float64)
            torch.testing.assert_close(mean[i], expected, rtol=0, atol=1e-12)

    def test_it_is_the_mean_of_the_open_neighbourhood(self, views64: Views) -> None:
        one = shared(views64, MIXED, FLOAT64, method=METHOD)
        p_bar, weight, examples = opinion(one)
        torch_nodes = one.population.takes_steps
        assert weight.tolist() == torch_nodes.double().tolist()
        for i in torch.nonzero(torch_nodes).flatten().tolist():
            said = [one.population.predict_all(examples[i])[j] for j in neighbours(one, i)]
            torch.testing.assert_close(p_bar[i], torch.stack(said).mean(0), rtol=0, atol=1e-12)

    def test_every_example_is_learned_with_what_was_said_about_it(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[tuple[Tensor, Tensor]] = []
        step = Population.step

        def recorded(self: Population, batch: Batch, *rest: Any, **more: Any) -> Tensor:
            if rest:  # steps of Stage 1 have no targets
                p = torch.stack([self.predict_all(ids) for ids in batch.examples])  # asker, answerer
                told.append((rest[1][0], p))
            return step(self, batch, *rest, **more)

        monkeypatch.setattr(Population, "step", recorded)
        one = made(views64, TORCH, FLOAT64, "training.stage2_rounds=1", method=METHOD)
        assert len(told) == STEPS
        for p_bar, p in told:
            for i in range(6):
                mean = p[i, sorted(one.world.graph.neighbors(i))].mean(0)
                torch.testing.assert_close(p_bar[i], mean, rtol=0, atol=1e-12)

    def test_an_unsound_neighbour_is_left_out(self, views64: Views) -> None:
        one = Run(study(TORCH, FLOAT64), METHOD, 0, views64)
        one.network.misbehaviour[2] = lambda _: None
        p_bar, weight, examples = opinion(one)
        assert (one.network.faulty > 0).sum() == one.world.degrees[2]
        for i in range(6):
            sound = [j for j in neighbours(one, i) if j != 2]
            assert float(weight[i]) == bool(sound)
            said = one.population.predict_all(examples[i])[sound]
            if sound:
                torch.testing.assert_close(p_bar[i], said.mean(0), rtol=0, atol=1e-12)

    def test_a_run_with_an_unsound_neighbour_depends_on_the_others_only(self, views64: Views) -> None:
        ends = []
        for twist in (lambda _: None, lambda p: p * 3):
            one = Run(study(TORCH, FLOAT64), METHOD, 0, views64)
            one.network.misbehaviour[2] = twist
            one()
            ends.append(parameters(one))
        honest = parameters(shared(views64, TORCH, FLOAT64, method=METHOD))
        assert all(torch.equal(t, ends[1][name]) for name, t in ends[0].items())
        assert any(not torch.equal(t, honest[name]) for name, t in ends[0].items())

    def test_nobody_is_asked(self, views64: Views) -> None:
        """The opinion then still has a row for every example, and no weight."""
        one = shared(views64, TORCH, FLOAT64, method=METHOD)
        p_bar, weight, examples = opinion(one, torch.zeros(6, dtype=torch.bool))
        assert p_bar.shape == (*examples.shape, 10)
        assert weight.tolist() == [0.0] * 6

    def test_a_forest_is_heard(self, views64: Views, tmp_path: Path) -> None:
        path = tmp_path / "edges.txt"
        path.write_text("0 1\n")
        one = made(
            views64, f"population.learners=[{LINEAR},{FOREST}]", FLOAT64, "graph.nodes=2",
            "graph.kind=file", f'graph.file="{path}"', "partition.labelled=100", method=METHOD,
        )  # fmt: skip
        p_bar, weight, examples = opinion(one)
        torch.testing.assert_close(p_bar[0], one.population.predict_all(examples[0])[1], rtol=0, atol=0)
        assert weight.tolist() == [1.0, 0.0]
        linear = one.network.edges[:, 0] == 0
        asked = one.network.ledger.payload("query", "mutual")
        assert asked[linear.numpy()].min() > 0
        assert (asked[~linear.numpy()] == 0).all()


class TestMessages:
    @pytest.mark.parametrize("query", ["inputs", "ids"])
    def test_bytes(self, views: Views, query: str) -> None:
        """Labelled examples are nobody else's, so they travel as inputs also where ids would do."""
        one = shared(views, MIXED, BATCH, f"network.query={query}", method=METHOD)
        asker, answerer = one.world.edges.T
        learns = one.population.takes_steps.numpy()
        each = ROUNDS * 5 * 64
        ledger = one.network.ledger
        assert (ledger.payload("query", "mutual") == each * INPUT * learns[asker]).all()
        assert (ledger.payload("reply", "mutual") == each * 4 * 10 * learns[answerer]).all()
        assert {phase for phase, _, _ in ledger} == {"mutual"}
        assert not learns.all()

    def test_it_asks_about_its_labelled_batches(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Questions] = []
        ask = Network.ask

        def recorded(self: Network, questions: Questions, phase: str, edges: Any = None) -> Replies:
            asked.append(questions)
            return ask(self, questions, phase, edges)

        monkeypatch.setattr(Network, "ask", recorded)
        one = made(views, TORCH, method=METHOD)
        batches = [batch for t in range(ROUNDS) for batch in one.labelled.round(t)]
        assert len(asked) == len(batches)
        for questions, batch in zip(asked, batches, strict=True):
            assert questions.source == "batch"
            assert torch.equal(questions.ids.view(6, -1), batch.examples)

    def test_only_who_is_drawn_asks(self, views: Views) -> None:
        one = made(views, MIXED, "training.schedule=random_node", method=METHOD)
        asker = one.world.edges[:, 0]
        taken = np.where(one.population.takes_steps.numpy(), one.labelled.taken.numpy(), 0)
        assert len(set(taken.tolist())) > 2
        assert (one.network.ledger.payload("query", "mutual") == taken[asker] * 32 * INPUT).all()

    @pytest.mark.parametrize("seed", range(4))
    def test_steps_of_which_only_forests_are_a_part(self, views: Views, seed: int) -> None:
        """Then nobody asks; with two linear heads among four forests that comes to pass soon."""
        few = f"population.learners=[{LINEAR},{FOREST},{FOREST.replace('forest', 'wood', 1)}]"
        one = Run(study(few, "training.schedule=random_node"), METHOD, seed, views)
        one()
        assert all(t.isfinite().all() for t in parameters(one).values())

    def test_deployment_costs_nothing(self, views: Views) -> None:
        assert Run(study(TORCH), METHOD, 0, views)()["bytes"]["per_deployed_query"] == 0


class TestBackends:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_equal_in_float64(self, views64: Views, schedule: str) -> None:
        batched, loop = (
            made(views64, TORCH, FLOAT64, f"training.schedule={schedule}", method=METHOD, backend=backend)
            for backend in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-8, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
