"""All that is off by default, switched on at once; and temperatures, which touch every answer."""

from pathlib import Path

import pytest
import torch
from small_runs import ALL_LEVERS, FLOAT64, MIXED, TORCH, assert_resumes, ended, levers, made, shared

from lntrust.core.losses import tempered
from lntrust.learners.views import Views
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.network import Questions
from lntrust.study.settings import Later


def test_no_lever_is_forgotten_here() -> None:
    younger = {
        name
        for name, field in LNTrustSettings.model_fields.items()
        if any(isinstance(mark, Later) for mark in field.metadata)
    }
    assert younger <= {change.split(".")[2].split("=")[0] for change in ALL_LEVERS}


class TestAllAtOnce:
    def test_backends_agree(self, views64: Views) -> None:
        batched, loop = (
            made(views64, TORCH, FLOAT64, *ALL_LEVERS, backend=backend) for backend in ("batched", "loop")
        )
        assert set(batched.state) == set(loop.state)
        for name, tensor in batched.state.items():
            if name != "memory/bias 2":  # see test_lntrust.py: it only collects rounding
                atol = 1e-7 if name.startswith("memory/") else 1e-8
                torch.testing.assert_close(tensor, loop.state[name], rtol=0, atol=atol, msg=name)
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-8, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()

    def test_a_resumed_run_equals_an_uninterrupted_one(self, views: Views, tmp_path: Path) -> None:
        assert_resumes(views, tmp_path, MIXED, *ALL_LEVERS)

    def test_it_says_less(self, views: Views) -> None:
        lean, summary = ended(views, MIXED, *ALL_LEVERS, method="lntrust")
        plain = shared(views, MIXED)
        replies = [r.network.ledger.payload("reply").sum() for r in (lean, plain)]
        assert replies[0] < replies[1]
        assert all(t.isfinite().all() for t in lean.state.values())
        assert 0 <= summary["test"] <= 1


class TestTemperatures:
    @pytest.mark.parametrize("learners", [MIXED, TORCH])  # which answer questions in ways of their own
    def test_neighbours_hear_tempered_answers(self, views: Views, learners: str) -> None:
        one = made(views, learners, *levers(calibrate="true"))
        T = one.population.temperature
        assert T is not None
        assert len(set(T.tolist())) > 1
        questions, all_ids = Questions.of(one.site.shard[:, :7], "shard"), one.site.shard[0]
        said = one.network.ask(questions, "probe").regular()
        own = one.population.predict_own(one.site.shard[:, :7])
        everything = one.population.predict_all(all_ids)
        one.population.temperature = None
        plain = one.network.ask(questions, "probe").regular()
        answerer = one.network.edges[:, 1]
        torch.testing.assert_close(said, tempered(plain, T[answerer][:, None].expand(plain.shape[:-1])))
        assert not torch.allclose(said, plain)
        # So does everybody who asks in another way.
        for now, then in (
            (own, one.population.predict_own(one.site.shard[:, :7])),
            (everything, one.population.predict_all(all_ids)),
        ):
            torch.testing.assert_close(now, tempered(then, T[:, None].expand(then.shape[:-1])))

    def test_own_answers_stay_the_same_classes(self, views: Views) -> None:
        """Nothing is distilled, so that the models are those of the run without temperatures."""
        hot, plain = (
            ended(views, MIXED, *levers(budget=0), *more, method="lntrust")[1]
            for more in (levers(calibrate="true"), [])
        )
        assert hot["per_node"]["self"] == plain["per_node"]["self"]

    def test_off_there_are_none(self, views: Views) -> None:
        one = shared(views, MIXED)
        assert one.population.temperature is None
        assert "temperature" not in one.population.state()

    def test_a_resumed_run_equals_an_uninterrupted_one(self, views: Views, tmp_path: Path) -> None:
        whole = assert_resumes(views, tmp_path, MIXED, *levers(calibrate="true"))
        assert "temperature" in whole.population.state()

    @pytest.mark.parametrize("weighting", ["uniform", "weighted_majority"])
    def test_with_other_weightings(self, views: Views, weighting: str) -> None:
        one = made(views, MIXED, *levers(calibrate="true", weighting=weighting))
        assert all(t.isfinite().all() for t in one.state.values())
