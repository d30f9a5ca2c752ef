"""FedDF without a server: distil the neighbours' plain ensemble on public examples."""

from typing import Any

import numpy as np
import pytest
import torch
from small_runs import (
    MIXED,
    ONLY_LINEAR,
    ROUNDS,
    TORCH,
    assert_differ,
    assert_same,
    begun,
    made,
    record,
    shared,
)
from torch import Tensor

from lntrust.learners.views import Views

METHOD, POOL = "feddf", 600
STILL = '{name="linear",kind="linear",view="pixels",options={dropout=0.0}}'


def sets(**settings: object) -> list[str]:
    return [f"methods.feddf.{name}={value}" for name, value in settings.items()]


FEW = sets(steps=2, batch=20)


class TestQuestions:
    @pytest.mark.parametrize(("steps", "batch", "each"), [(2, 20, [20, 20]), (2, 400, [400, 200])])
    def test_everybody_learns_from_the_same_examples(
        self, views: Views, steps: int, batch: int, each: list[int]
    ) -> None:
        """Asked about once a round, and from others in the next, while there are any."""
        one = begun(views, TORCH, *sets(steps=steps, batch=batch), method=METHOD)
        asked = record(one.network, "ask", lambda questions, *_: questions)
        taken = record(one.population, "descend", lambda purpose, ids, *_, **__: (purpose, ids))
        one()
        assert len(asked) == ROUNDS
        for questions in asked:
            ids = questions.ids.view(6, sum(each))
            assert questions.source == "pool"
            assert (ids == ids[0]).all()
            assert len(ids[0].unique()) == sum(each)
            assert np.isin(ids[0].numpy(), one.world.partition.pool).all()
        distilled = [ids for purpose, ids in taken if purpose == "distil"]
        assert [ids.shape[1] for ids in distilled] == each * ROUNDS
        assert torch.equal(torch.cat(distilled[:2], 1), asked[0].ids.view(6, -1))
        drawn = {frozenset(questions.ids.tolist()) for questions in asked}
        assert len(drawn) == (1 if sum(each) == POOL else ROUNDS)

    @pytest.mark.parametrize("query", ["inputs", "handle"])
    def test_bytes(self, views: Views, query: str) -> None:
        """Ids and predictions, over the edges of those who learn; deployed nodes ask nobody."""
        one = shared(views, MIXED, *FEW, f"network.query={query}", method=METHOD)
        asker, answerer = one.world.edges.T
        learns, ledger = one.population.takes_steps.numpy(), one.network.ledger
        assert (ledger.payload("query", "distil") == ROUNDS * 40 * 4 * learns[asker]).all()
        assert (ledger.payload("reply", "distil") == ROUNDS * 40 * 4 * 10 * learns[answerer]).all()
        assert {phase for phase, _, _ in ledger} == {"distil"}
        assert not learns.all()


@pytest.mark.parametrize("average", ["logits", "probabilities"])
class TestTargets:
    @pytest.mark.parametrize("silent", [None, 1])
    def test_the_mean_of_the_neighbours(self, views64: Views, average: str, silent: int | None) -> None:
        """Forests count, though they do not learn; who does not answer is left out."""
        one = begun(views64, MIXED, *FEW, *sets(strength=2.5, average=average), method=METHOD)
        if silent is not None:
            one.network.misbehaviour[silent] = lambda _: None

        def look(purpose: str, ids: Tensor, _: Any, targets: Any, **more: Any) -> tuple[Any, ...]:
            return purpose, targets, more.get("active"), one.population.predict_all(ids[0])

        steps = record(one.population, "descend", look)
        one()
        _, (p_bar, omega, scale), active, p = next(step for step in steps if step[0] == "distil")
        assert (omega == 1).all()
        assert scale.tolist() == [2.5 / 20] * 6
        for i in torch.nonzero(one.population.takes_steps).flatten().tolist():
            them = [j for j in one.world.graph.neighbors(i) if j != silent]
            assert bool(active[i]) == bool(them)
            if them:
                log_p = p[them].clamp(min=1e-7).log()
                mean = log_p.mean(0).softmax(-1) if average == "logits" else p[them].mean(0)
                torch.testing.assert_close(p_bar[i], mean, rtol=0, atol=1e-9)
        assert not bool(active[~one.population.takes_steps].any())

    def test_among_equals_there_is_nothing_to_learn(self, views64: Views, average: str) -> None:
        """The gradient of the divergence from what all say is 0: without momentum nobody moves."""
        heads = f"population.learners=[{STILL}]"
        one = begun(views64, heads, "training.momentum=0", *FEW, *sets(average=average), method=METHOD)
        (stack,) = one.population.torch_stacks
        theta = one.population.parameters(stack)
        one.population.set_parameters(stack, theta[:1].expand_as(theta))
        one.method.distil(one.site, 1)
        torch.testing.assert_close(
            one.population.parameters(stack), theta[:1].expand_as(theta), rtol=0, atol=1e-12
        )
        one.population.set_parameters(stack, theta)  # and among others there is
        one.method.distil(one.site, 1)
        assert (one.population.parameters(stack) - theta).abs().amax(1).min() > 1e-6


@pytest.mark.parametrize("nothing", [sets(strength=0), ["partition.pool=0", "partition.shard=0"]])
def test_without_weight_or_examples_it_is_independent_bit_for_bit(views: Views, nothing: list[str]) -> None:
    one, plain = (shared(views, MIXED, *nothing, method=m) for m in (METHOD, "independent"))
    assert_same(one, plain)
    assert one.network.ledger.summary() == plain.network.ledger.summary()
    for number, stored in one.course.evaluations[0].items():
        assert (stored["deployed"] == plain.course.evaluations[0][number]["deployed"]).all()


def test_every_setting_counts(views: Views) -> None:
    plain = made(views, ONLY_LINEAR, *FEW, method=METHOD)
    for more in (sets(strength=3), sets(steps=3), sets(batch=30), sets(average="probabilities")):
        assert_differ(made(views, ONLY_LINEAR, *FEW, *more, method=METHOD), plain)
