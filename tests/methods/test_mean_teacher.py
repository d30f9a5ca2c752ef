"""Mean Teacher: a student that must agree with a running mean of itself."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, MIXED, TORCH, made, shared, study, told
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.experiment import Run
from lntrust.learners import Batch, Population
from lntrust.learners.views import Views
from lntrust.methods import Site, State, mean_teacher
from lntrust.methods.mean_teacher import MeanTeacher, consistency

METHOD = "mean_teacher"
NO_DROPOUT = (
    'population.learners=[{name="linear",kind="linear",view="pixels",options={dropout=0.0}},'
    '{name="mlp",kind="mlp",view="pixels",options={hidden=8,dropout=0.0}}]'
)
NAMES = ("linear", "mlp")


def own(run: Run) -> dict[str, Tensor]:
    """The parameters that the population answers with, by learner."""
    return {stack.learner.name: run.population.parameters(stack) for stack in run.population.torch_stacks}


def setting(**values: float) -> list[str]:
    return [f"methods.{METHOD}.{name}={value}" for name, value in values.items()]


class Trail:
    """What each step was given, and what it left: the state before and after, and the student."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: list[State] = []
        self.after: list[State] = []
        self.student: list[dict[str, Tensor]] = []
        self.active: list[Tensor | None] = []
        step = MeanTeacher._step

        def watched(method: MeanTeacher, site: Site, state: State, batch: Batch, *rest: Any) -> State:
            out = step(method, site, state, batch, *rest)
            self.before.append(state)
            self.after.append(out)
            self.active.append(batch.active)
            stacks = site.population.torch_stacks
            self.student.append({s.learner.name: site.population.parameters(s) for s in stacks})
            return out

        monkeypatch.setattr(MeanTeacher, "_step", watched)


class TestStudent:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_without_weight_it_is_independent(self, views64: Views, schedule: str) -> None:
        """So neither the unlabelled rows nor the teacher's noise move the masks of labelled rows."""
        how = (TORCH, FLOAT64, f"training.schedule={schedule}")
        one = made(views64, *how, *setting(weight=0), method=METHOD)
        plain = own(made(views64, *how, method="independent"))
        for name in NAMES:
            torch.testing.assert_close(one.state[f"student/{name}"], plain[name], rtol=0, atol=1e-9)

    def test_with_weight_it_is_not(self, views64: Views) -> None:
        one = shared(views64, TORCH, FLOAT64, method=METHOD)
        plain = own(shared(views64, TORCH, FLOAT64, method="independent"))
        assert all(not torch.allclose(one.state[f"student/{name}"], plain[name]) for name in NAMES)

    def test_unlabelled_examples_matter(self, views64: Views) -> None:
        full = setting(ramp=0)
        with_, without = (
            made(views64, TORCH, FLOAT64, *full, *setting(unlabelled=u), method=METHOD) for u in (64, 0)
        )
        for name in NAMES:
            assert not torch.allclose(with_.state[f"student/{name}"], without.state[f"student/{name}"])

    @pytest.mark.parametrize(
        "none", [("partition.shard=0",), ("partition.shard=0", "partition.pool=0")], ids=["shard", "pool"]
    )
    def test_no_unlabelled_examples_at_all(self, views64: Views, none: tuple[str, ...]) -> None:
        """The labelled ones are then all that student and teacher can agree on."""
        empty = made(views64, TORCH, FLOAT64, *none, method=METHOD)
        unused = made(views64, TORCH, FLOAT64, *setting(unlabelled=0), method=METHOD)
        for name in NAMES:
            assert empty.state[f"teacher/{name}"].isfinite().all()
            if none == ("partition.shard=0",):  # without a pool the partition is another
                assert torch.equal(empty.state[f"teacher/{name}"], unused.state[f"teacher/{name}"])


class TestTeacher:
    def test_it_starts_from_the_model_of_stage_1(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trail = Trail(monkeypatch)
        made(views64, TORCH, FLOAT64, method=METHOD)
        after_stage_1 = own(made(views64, TORCH, FLOAT64, "training.stage2_rounds=0", method="independent"))
        for name in NAMES:
            assert torch.equal(trail.before[0][f"teacher/{name}"], after_stage_1[name])

    @pytest.mark.parametrize("decay", [0.99, 0.7])
    def test_it_is_the_running_mean_of_the_student(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch, decay: float
    ) -> None:
        """0.7 is reached at the third step, 0.99 never in twenty: both branches of the minimum."""
        trail = Trail(monkeypatch)
        one = made(views64, TORCH, FLOAT64, *setting(decay=decay), method=METHOD)
        assert len(trail.student) == 4 * 5
        for name in NAMES:
            mean = trail.before[0][f"teacher/{name}"].clone()
            for s, student in enumerate(trail.student, 1):
                a = min(1 - 1 / (s + 1), decay)
                mean = a * mean + (1 - a) * student[name]
                torch.testing.assert_close(trail.after[s - 1][f"teacher/{name}"], mean, rtol=0, atol=1e-12)
            assert torch.equal(one.state[f"teacher/{name}"], trail.after[-1][f"teacher/{name}"])

    def test_while_the_decay_is_not_reached_it_is_the_plain_mean(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trail = Trail(monkeypatch)
        one = made(views64, TORCH, FLOAT64, *setting(decay=0.999), method=METHOD)
        for name in NAMES:
            everything = torch.stack([trail.before[0][f"teacher/{name}"], *(s[name] for s in trail.student)])
            torch.testing.assert_close(one.state[f"teacher/{name}"], everything.mean(0), rtol=0, atol=1e-12)

    def test_without_decay_it_is_the_student(self, views64: Views) -> None:
        one = made(views64, TORCH, FLOAT64, *setting(decay=0), method=METHOD)
        for name in NAMES:
            assert torch.equal(one.state[f"teacher/{name}"], one.state[f"student/{name}"])
            assert one.state[f"student/{name}"].abs().sum() > 0

    def test_who_is_not_drawn_has_a_teacher_that_stands_still(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And the decay of the others goes by the steps that they have taken, not by the steps of all."""
        trail = Trail(monkeypatch)
        one = made(views64, TORCH, FLOAT64, "training.schedule=random_node", method=METHOD)
        idle, taken = 0, torch.zeros(6, dtype=torch.int64)
        for before, after, student, active in zip(
            trail.before, trail.after, trail.student, trail.active, strict=True
        ):
            assert active is not None
            taken = taken + active
            for stack in one.population.torch_stacks:
                name = stack.learner.name
                for i in stack.nodes.tolist():
                    old, new = before[f"teacher/{name}"][i], after[f"teacher/{name}"][i]
                    a = min(1 - 1 / (int(taken[i]) + 1), 0.99)
                    idle += not active[i]
                    expected = a * old + (1 - a) * student[name][i] if active[i] else old
                    torch.testing.assert_close(new, expected, rtol=0, atol=1e-12)
        assert idle > 0
        assert torch.equal(one.state["steps"], taken)


class TestNoise:
    def first_step(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch, learners: str
    ) -> list[tuple[Tensor, Tensor]]:
        """What student and teacher say in the first step of Stage 2, when they are the same model."""
        seen: list[tuple[Tensor, Tensor]] = []

        def recorded(logits: Tensor, labels: Tensor, teacher: Tensor, weight: Tensor) -> Tensor:
            seen.append((logits.detach().softmax(-1), teacher))
            return consistency(logits, labels, teacher, weight)

        monkeypatch.setattr(mean_teacher, "consistency", recorded)
        made(views64, learners, FLOAT64, "training.stage2_rounds=1", method=METHOD)
        return seen[:2]  # one call for each architecture

    def test_student_and_teacher_have_dropout_of_their_own(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for student, teacher in self.first_step(views64, monkeypatch, TORCH):
            assert student.shape[1] == 32 + 64
            different = ((student - teacher).abs() > 1e-6).any(-1)
            assert different.double().mean() > 0.9

    def test_without_dropout_they_agree_at_first(
        self, views64: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for student, teacher in self.first_step(views64, monkeypatch, NO_DROPOUT):
            torch.testing.assert_close(student, teacher, rtol=0, atol=1e-12)


class TestLoss:
    @given(
        seed=st.integers(0, 1000), B=st.integers(1, 4), U=st.integers(0, 4), weight=st.floats(0, 100)
    )  # fmt: skip
    def test_against_loops(self, seed: int, B: int, U: int, weight: float) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(2, B + U, 3, generator=draw, dtype=torch.float64)
        teacher = torch.randn(2, B + U, 3, generator=draw, dtype=torch.float64).softmax(-1)
        labels = torch.randint(3, (2, B), generator=draw)
        got = consistency(logits, labels, teacher, torch.full((2,), weight, dtype=torch.float64))
        for i in range(2):
            p = logits[i].softmax(-1)
            apart = (p - teacher[i]).flatten().tolist()
            squared = sum(d * d for d in apart) / len(apart)
            ce = -sum(math.log(p[x, labels[i, x]]) for x in range(B)) / B
            assert float(got[i]) == pytest.approx(ce + weight * squared, rel=1e-9)

    def test_agreement_costs_nothing(self) -> None:
        logits, labels = torch.randn(1, 4, 3, dtype=torch.float64), torch.tensor([[0, 2]])
        got = consistency(logits, labels, logits.softmax(-1), torch.tensor([100.0], dtype=torch.float64))
        assert torch.equal(got, cross_entropy(logits[:, :2], labels))

    @pytest.mark.parametrize(("ceiling", "ramp"), [(100.0, 40), (7.0, 3), (5.0, 0)])
    def test_the_weight_ramps_up_over_rounds(
        self, views: Views, monkeypatch: pytest.MonkeyPatch, ceiling: float, ramp: int
    ) -> None:
        weights: list[Tensor] = []
        step = Population.step

        def recorded(self: Population, batch: Batch, *rest: Any, **more: Any) -> Tensor:
            if rest:  # steps of Stage 1 have no targets
                weights.append(rest[1][1])
            return step(self, batch, *rest, **more)

        monkeypatch.setattr(Population, "step", recorded)
        made(views, TORCH, *setting(weight=ceiling, ramp=ramp), method=METHOD)
        assert len(weights) == 4 * 5
        for t in range(1, 5):
            x = 1.0 if t >= ramp else t / ramp
            expected = ceiling * math.exp(-5 * (1 - x) ** 2)
            for w in weights[(t - 1) * 5 : t * 5]:
                assert w.tolist() == pytest.approx([expected] * 6, rel=1e-6)


class Stopped(BaseException):
    pass


def stop_after(rounds: int) -> Any:
    def progress(done: int, *_: object) -> None:
        if done == rounds:
            raise Stopped

    return progress


class TestDeployment:
    def test_in_the_end_the_population_answers_as_the_teacher(self, views64: Views) -> None:
        one = shared(views64, TORCH, FLOAT64, method=METHOD)
        for name, parameters in own(one).items():
            assert torch.equal(parameters, one.state[f"teacher/{name}"])
            assert not torch.equal(parameters, one.state[f"student/{name}"])
        predicted = one.population.predict_all(one._tested).argmax(-1).numpy()
        assert (one._evaluations[0][one.rounds]["deployed"] == predicted).all()
        assert (one._evaluations[0][one.rounds]["self"] == predicted).all()

    def test_the_student_is_reported_beside(self, views64: Views) -> None:
        one = Run(study(TORCH, FLOAT64), METHOD, 0, views64)
        summary = one()
        assert set(summary["variants"]) == {"student"}
        with one.population.using({name: one.state[f"student/{name}"] for name in NAMES}):
            predicted = one.population.predict_all(one._tested).argmax(-1).numpy()
        assert (one._evaluations[0][one.rounds]["variant/student"] == predicted).all()
        assert (one._evaluations[0][one.rounds]["deployed"] != predicted).any()

    def test_in_the_middle_too(self, views64: Views) -> None:
        """The student goes on training, but whoever looks sees the teacher, and the student beside."""
        one = Run(study(TORCH, FLOAT64), METHOD, 0, views64)
        with pytest.raises(Stopped):
            one(progress=stop_after(4))
        student = own(one)
        examples = torch.arange(50)
        deployment = one.method.deploy(one.site, one.state)
        assert deployment.answer is not None
        beside = deployment.variants["student"].answer
        assert beside is not None
        as_student = one.population.predict_all(examples)
        with one.population.using({name: one.state[f"teacher/{name}"] for name in NAMES}):
            as_teacher = one.population.predict_all(examples)
        assert not torch.allclose(as_student, as_teacher)
        assert torch.equal(deployment.answer(examples), as_teacher)
        assert torch.equal(beside(examples), as_student)
        assert all(torch.equal(p, student[name]) for name, p in own(one).items())

    def test_nothing_is_sent(self, views: Views) -> None:
        sent = Run(study(MIXED), METHOD, 0, views)()["bytes"]
        assert sent["total"] == sent["per_deployed_query"] == 0

    def test_forests_train_alone_and_the_run_says_so(self, views: Views) -> None:
        said: list[str] = []
        one = Run(study(MIXED), METHOD, 0, views, notice=said.append)
        summary = one()
        plain = Run(study(MIXED), "independent", 0, views)()
        assert [s for s in said if "forest" in s]
        forests = (one.world.kinds == 2).nonzero()[0].tolist()
        assert forests
        for i in forests:
            assert summary["per_node"]["test_pooled"][i] == plain["per_node"]["test_pooled"][i]


class TestRuns:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_loop_and_batched_are_equal_in_float64(self, views64: Views, schedule: str) -> None:
        batched, loop = (
            made(views64, TORCH, FLOAT64, f"training.schedule={schedule}", method=METHOD, backend=backend)
            for backend in ("batched", "loop")
        )
        assert set(batched.state) == set(loop.state)
        for name, tensor in (batched.state | batched.population.state()).items():
            other = (loop.state | loop.population.state())[name]
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-8, msg=name)

    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, views: Views, tmp_path: Path, schedule: str
    ) -> None:
        small = study(TORCH, "evaluation.checkpoint_every=1", f"training.schedule={schedule}")
        whole = Run(small, METHOD, 0, views, folder=tmp_path / "whole")
        summary = whole()
        for stop in (2, 3, 5, 6):
            with pytest.raises(Stopped):
                Run(small, METHOD, 0, views, folder=tmp_path / "stopped")(
                    resume=True, progress=stop_after(stop)
                )
        resumed = Run(small, METHOD, 0, views, folder=tmp_path / "stopped")
        assert told(resumed(resume=True)) == told(summary)
        assert set(resumed.state) == set(whole.state)
        for name, tensor in (whole.state | whole.population.state()).items():
            assert torch.equal(tensor, (resumed.state | resumed.population.state())[name]), name
