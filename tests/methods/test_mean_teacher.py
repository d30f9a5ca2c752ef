"""Mean Teacher: a student that must agree with a running mean of itself."""

import math

import pytest
import small_runs as small
import torch
from hypothesis import given
from hypothesis import strategies as st
from stopped_runs import stop
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.mean_teacher import consistency

METHOD = "mean_teacher"
NAMES = ("linear", "mlp")


def own(run: Run) -> dict[str, Tensor]:
    """The parameters that the population answers with, by learner."""
    return {stack.learner.name: run.population.parameters(stack) for stack in run.population.torch_stacks}


def setting(**values: float) -> list[str]:
    return [f"methods.{METHOD}.{name}={value}" for name, value in values.items()]


def test_unlabelled_examples_matter(views64: Views) -> None:
    with_, without, empty = (
        small.made(views64, small.TORCH, *setting(ramp=0), change, method=METHOD)
        for change in (*setting(unlabelled=64), *setting(unlabelled=0), "partition.shard=0")
    )
    for student in (f"student/{name}" for name in NAMES):
        assert not torch.allclose(with_.state[student], without.state[student])
        # The labelled ones are then all that student and teacher can agree on.
        assert torch.equal(empty.state[student], without.state[student])


@pytest.mark.parametrize(
    ("decay", "schedule", "ramp"),
    [
        (0.99, "every_node", 40), (0.7, "random_node", 40), (0, "random_node", 40),
        (0.7, "every_node", 3), (0.7, "random_node", 2), (0.7, "every_node", 0),
    ],
)  # fmt: skip
def test_the_teacher_is_the_running_mean_of_the_student(
    views64: Views, decay: float, schedule: str, ramp: int
) -> None:
    """0.7 is reached at the third step, 0.99 never in twenty: both branches of the minimum.

    From the end of the ramp on, in a round among the four, it remembers longer. Who is not drawn has a
    teacher that stands still, and the decay of the others goes by the steps that they have taken, not by the
    steps of all.
    """
    how = (small.TORCH, f"training.schedule={schedule}")
    one = small.begun(views64, *how, *setting(decay=decay, ramp=ramp), method=METHOD)
    # Before each step: the round, who takes it, the student, and whether it is of Stage 2.
    calls = small.record(
        one.population, "step", lambda batch, *rest, **_: (one.done, batch.active, own(one), rest)
    )
    one()
    steps = [(done - (one.done - small.ROUNDS), *more) for done, *more, rest in calls if rest]
    teacher = own(small.made(views64, *how, "training.stage2_rounds=0", method="independent"))
    students = [student for _, _, student in steps[1:]]
    students.append({name: one.state[f"student/{name}"] for name in NAMES})
    taken = torch.zeros(6, dtype=torch.int64)
    for (t, active, _), student in zip(steps, students, strict=True):
        active = torch.ones(6, dtype=torch.bool) if active is None else active
        taken = taken + active
        for name, i in ((name, i) for name in NAMES for i in torch.nonzero(active).flatten().tolist()):
            a = min(1 - 1 / (int(taken[i]) + 1), decay) if t < ramp else 0.999
            teacher[name][i] = a * teacher[name][i] + (1 - a) * student[name][i]
    for name in NAMES:
        torch.testing.assert_close(one.state[f"teacher/{name}"], teacher[name], rtol=0, atol=1e-12)
    assert torch.equal(one.state["steps"], taken)
    assert (len(set(taken.tolist())) > 1) == (schedule == "random_node")


@pytest.mark.parametrize("dropout", [0.2, 0.0])
def test_student_and_teacher_have_dropout_of_their_own(
    views64: Views, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any they agree in the first step, when they are the same model."""
    seen: list[tuple[Tensor, Tensor]] = []

    def watched(logits: Tensor, labels: Tensor, teacher: Tensor, weight: Tensor) -> Tensor:
        seen.append((logits.detach().softmax(-1), teacher))
        return consistency(logits, labels, teacher, weight)

    monkeypatch.setattr("lntrust.methods.mean_teacher.consistency", watched)
    small.made(views64, small.TORCH.replace("dropout=0.2", f"dropout={dropout}"), *small.SHORT, method=METHOD)
    for student, teacher in seen[:2]:  # one call for each architecture
        assert student.shape[1] == 32 + 64
        different = ((student - teacher).abs() > 1e-6).any(-1)
        assert different.double().mean() > 0.9 if dropout else not different.any()


class TestLoss:
    @given(st.integers(0, 1000), st.integers(1, 4), st.integers(0, 4), st.floats(0, 100))
    def test_against_loops(self, seed: int, B: int, U: int, weight: float) -> None:
        draw = torch.Generator().manual_seed(seed)
        logits = torch.randn(2, B + U, 3, generator=draw, dtype=torch.float64)
        teacher = torch.randn(2, B + U, 3, generator=draw, dtype=torch.float64).softmax(-1)
        labels = torch.randint(3, (2, B), generator=draw)
        got = consistency(logits, labels, teacher, torch.full((2,), weight, dtype=torch.float64))
        squared = (logits.softmax(-1) - teacher).square().mean((1, 2))
        for i in range(2):
            ce = float(torch.nn.functional.cross_entropy(logits[i, :B], labels[i]))
            assert float(got[i]) == pytest.approx(ce + weight * float(squared[i]), rel=1e-9)

    @pytest.mark.parametrize(("ceiling", "ramp"), [(7.0, 3), (5.0, 0)])
    def test_the_weight_ramps_up_over_rounds(self, views: Views, ceiling: float, ramp: int) -> None:
        one = small.begun(views, small.TORCH, *setting(weight=ceiling, ramp=ramp), method=METHOD)
        steps = small.record(one.population, "step", lambda _, *rest, **more: rest[1][1] if rest else None)
        one()
        weights = [each for each in steps if each is not None]  # steps of Stage 1 have none
        assert len(weights) == small.ROUNDS * small.STEPS
        for t in range(1, small.ROUNDS + 1):
            x = 1.0 if t >= ramp else t / ramp
            expected = ceiling * math.exp(-5 * (1 - x) ** 2)
            for w in weights[(t - 1) * small.STEPS : t * small.STEPS]:
                assert w.tolist() == pytest.approx([expected] * 6, rel=1e-6)


class TestDeployment:
    def test_in_the_end_the_population_answers_as_the_teacher(self, views64: Views) -> None:
        """And the student is reported beside."""
        one, summary = small.shared_end(views64, small.TORCH, method=METHOD)
        for name, parameters in own(one).items():
            assert torch.equal(parameters, one.state[f"teacher/{name}"])
            assert not torch.equal(parameters, one.state[f"student/{name}"])
        deployment = one.method.deploy(one.site, one.state)
        assert deployment.answer is None
        assert set(deployment.variants) == set(summary["variants"]) == {"student"}
        beside = deployment.variants["student"].answer
        with one.population.using({name: one.state[f"student/{name}"] for name in NAMES}):
            assert torch.equal(
                beside(small.all_tested(one)), one.population.predict_all(small.all_tested(one))
            )
        assert summary["test_pooled"] == summary["self_pooled"]
        assert summary["test_pooled"] != summary["variants"]["student"]["test_pooled"]

    def test_in_the_middle_too(self, views64: Views) -> None:
        """The student goes on training, but whoever looks sees the teacher, and the student beside."""
        one = small.begun(views64, small.TORCH, method=METHOD)
        stop(one, 4)
        examples, student = torch.arange(50), one.population.predict_all(torch.arange(50))
        deployment = one.method.deploy(one.site, one.state)
        with one.population.using({name: one.state[f"teacher/{name}"] for name in NAMES}):
            teacher = one.population.predict_all(examples)
        assert not torch.allclose(student, teacher)
        assert torch.equal(deployment.answer(examples), teacher)
        assert torch.equal(deployment.variants["student"].answer(examples), student)
        assert torch.equal(one.population.predict_all(examples), student)
