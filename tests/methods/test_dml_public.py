"""DML on unlabelled examples: labelled inputs stay at home."""

from typing import Any

import numpy as np
import pytest
import torch
from small_runs import FLOAT64, MIXED, TORCH, made, parameters, shared
from torch import Tensor

from lntrust.learners import Batch, Population
from lntrust.learners.views import Views
from lntrust.network import Network, Questions, Replies

METHOD = "dml_public"
ALONE = ("graph.nodes=1", "partition.labelled=60")
ROUNDS, STEPS, U = 4, 5, 64
BYTES = {"inputs": 64, "ids": 4}  # of one example: 8 × 8 pixels of one byte, or its number


class TestReductions:
    def test_one_node_alone_is_independent(self, views64: Views) -> None:
        one, plain = (made(views64, *ALONE, TORCH, FLOAT64, method=m) for m in (METHOD, "independent"))
        for name, tensor in parameters(plain).items():
            torch.testing.assert_close(parameters(one)[name], tensor, rtol=0, atol=1e-9, msg=name)

    @pytest.mark.parametrize("nothing", ["methods.dml_public.strength=0", "partition.shard=0"])
    def test_without_strength_or_examples_it_is_independent(self, views64: Views, nothing: str) -> None:
        one = made(views64, TORCH, FLOAT64, nothing, method=METHOD)
        for name, tensor in parameters(shared(views64, TORCH, FLOAT64, method="independent")).items():
            torch.testing.assert_close(parameters(one)[name], tensor, rtol=0, atol=1e-9, msg=name)

    def test_it_is_neither_independent_nor_dml(self, views64: Views) -> None:
        one = parameters(shared(views64, TORCH, FLOAT64, method=METHOD))
        for other in ("independent", "dml"):
            theirs = parameters(shared(views64, TORCH, FLOAT64, method=other))
            assert all(not torch.allclose(t, theirs[name]) for name, t in one.items())


class TestMessages:
    @pytest.mark.parametrize("query", BYTES)
    def test_bytes(self, views: Views, query: str) -> None:
        one = shared(views, MIXED, f"network.query={query}", method=METHOD)
        asker, answerer = one.world.edges.T
        learns = one.population.takes_steps.numpy()
        each = ROUNDS * STEPS * U
        ledger = one.network.ledger
        assert (ledger.payload("query", "mutual") == each * BYTES[query] * learns[asker]).all()
        assert (ledger.payload("reply", "mutual") == each * 4 * 10 * learns[answerer]).all()
        assert {phase for phase, _, _ in ledger} == {"mutual"}
        assert not learns.all()

    def test_under_ids_dml_pays_more_for_its_questions(self, views: Views) -> None:
        how = (MIXED, "network.query=ids", "training.batch=64")
        public, private = (
            made(views, *how, method=m).network.ledger.payload("query", "mutual") for m in (METHOD, "dml")
        )
        assert (private * BYTES["ids"] == public * BYTES["inputs"]).all()
        assert public.sum() > 0

    def test_a_smaller_shard(self, views: Views) -> None:
        one = made(views, TORCH, "partition.shard=20", method=METHOD)
        assert (one.network.ledger.payload("reply", "mutual") == ROUNDS * STEPS * 20 * 40).all()

    def test_only_examples_of_the_askers_shard_leave(
        self, views: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Questions] = []
        ask = Network.ask

        def recorded(self: Network, questions: Questions, phase: str, edges: Any = None) -> Replies:
            asked.append(questions)
            return ask(self, questions, phase, edges)

        monkeypatch.setattr(Network, "ask", recorded)
        one = made(views, TORCH, method=METHOD)
        assert len(asked) == ROUNDS * STEPS
        assert len({tuple(q.ids.tolist()) for q in asked}) == len(asked)  # others in every step
        for questions in asked:
            assert questions.source == "shard"
            for i, ids in enumerate(questions.ids.view(6, U).numpy()):
                assert np.isin(ids, one.world.partition.shard[i]).all()
                assert len(set(ids.tolist())) == U

    def test_every_example_is_learned_with_what_was_said_about_it(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[tuple[Tensor, Tensor]] = []
        step = Population.step

        def recorded(self: Population, batch: Batch, *rest: Any, **more: Any) -> Tensor:
            if rest:  # steps of Stage 1 have no targets
                p = torch.stack([self.predict_all(ids) for ids in more["more"]])  # asker, answerer
                told.append((rest[1][0], p))
            return step(self, batch, *rest, **more)

        monkeypatch.setattr(Population, "step", recorded)
        one = made(views64, TORCH, FLOAT64, "training.stage2_rounds=1", method=METHOD)
        assert len(told) == STEPS
        for p_bar, p in told:
            for i in range(6):
                mean = p[i, sorted(one.world.graph.neighbors(i))].mean(0)
                torch.testing.assert_close(p_bar[i], mean, rtol=0, atol=1e-12)

    def test_only_who_is_drawn_asks(self, views: Views) -> None:
        one = made(views, MIXED, "training.schedule=random_node", method=METHOD)
        taken = np.where(one.population.takes_steps.numpy(), one.labelled.taken.numpy(), 0)
        assert len(set(taken.tolist())) > 2
        asker = one.world.edges[:, 0]
        assert (one.network.ledger.payload("query", "mutual") == taken[asker] * U * 64).all()


class TestBackends:
    def test_equal_in_float64(self, views64: Views) -> None:
        batched, loop = (
            made(views64, TORCH, FLOAT64, method=METHOD, backend=backend) for backend in ("batched", "loop")
        )
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-8, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()
