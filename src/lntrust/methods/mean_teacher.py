"""Mean Teacher (Tarvainen & Valpola, NeurIPS 2017): semi-supervised learning, every node by itself.

The teacher θ' is a running mean of the student θ. Each step of the student is

    CE(labelled) + w(t)·mean over labelled ∪ unlabelled of ‖p_θ(x; η) − p_θ'(x; η')‖² / C,
    θ' ← a·θ' + (1 − a)·θ,   a = min(1 − 1/(s + 1), α) while w ramps up, and α_late from then on,

with dropout noise of its own on either side, s the steps taken in Stage 2, and w(t) = w_max·exp(−5(1 − x)²),
x = min(1, t/ramp). α = .99 and α_late = .999, as published: while the student improves fast, the teacher
forgets fast. It starts from the model of Stage 1. Deployed is the teacher; `student` stands beside. Checked
against the authors' code (CuriousAI/mean-teacher), whose TensorFlow version has both decays, w_max = 100 and
the shape of the ramp.

Exchanged: nothing, 0 bytes. What unlabelled data alone are worth.

Where our setting differs: the noise is dropout on frozen features (the paper also augments images); the
momentum of SGD is the study's.
"""

import math
from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.methods.base import Deployment, Method, Site, State, answering, below
from lntrust.study.settings import MethodSettings, Range


class MeanTeacherSettings(MethodSettings):
    weight: Annotated[float, Range(0.1, 300.0, log=True)] = Field(100.0, ge=0)
    """w_max, the ceiling of the consistency weight"""
    ramp: int = Field(40, ge=0, description="rounds until the ceiling is reached")
    decay: Annotated[float, Range(choices=(0.9, 0.99, 0.999))] = Field(0.99, ge=0, lt=1)
    """α, the decay of the running mean during the ramp"""
    late_decay: Annotated[float, Range(choices=(0.9, 0.99, 0.999))] = Field(0.999, ge=0, lt=1)
    """α_late, its decay from the ramp's end on"""
    unlabelled: int = Field(64, ge=0, description="unlabelled examples per step")


class MeanTeacher(Method):
    about = "learn to agree with a running mean of oneself on unlabelled data; no neighbours"
    by_gradients = True
    settings_class = MeanTeacherSettings
    settings: MeanTeacherSettings

    def start(self, site: Site) -> State:
        population = site.population
        teacher = {f"teacher/{s.learner.name}": population.parameters(s) for s in population.torch_stacks}
        return {"steps": torch.zeros(population.n, dtype=torch.int64, device=population.device), **teacher}

    def round(self, site: Site, state: State, t: int) -> State:
        population, s = site.population, self.settings
        x = min(1.0, t / s.ramp) if s.ramp else 1.0
        weight = s.weight * math.exp(-5.0 * (1.0 - x) ** 2)
        w = torch.full_like(state["steps"], weight, dtype=population.dtype)
        for k, batch in enumerate(site.labelled.round(t - 1)):
            more = site.unlabelled("teacher", s.unlabelled, t, k)
            with population.using(below("teacher/", state)):
                noisy = population.noisy_logits("teacher", torch.cat([batch.examples, more], 1), batch.active)
            population.step(batch, consistency, (noisy.softmax(-1), w), more=more)
            moved = torch.ones_like(state["steps"]) if batch.active is None else batch.active.long()
            steps = state["steps"] + moved
            a = (1.0 - 1.0 / (steps + 1).to(population.dtype)).clamp(max=s.decay)
            a = a if x < 1.0 else torch.full_like(a, s.late_decay)
            a = torch.where(moved > 0, a, 1.0)[:, None]
            own = {f"teacher/{each.learner.name}": each for each in population.torch_stacks}
            mean = {n: a * state[n] + (1.0 - a) * population.parameters(each) for n, each in own.items()}
            state = {"steps": steps, **mean}
        return state

    def finish(self, site: Site, state: State) -> State:
        """The teacher takes the student's place, so that it is the teacher whom neighbours may ask."""
        population, student = site.population, {}
        for stack in population.torch_stacks:
            student[f"student/{stack.learner.name}"] = population.parameters(stack)
            population.set_parameters(stack, state[f"teacher/{stack.learner.name}"])
        return state | student

    def deploy(self, site: Site, state: State) -> Deployment:
        finished = any(name.startswith("student/") for name in state)
        alone = Deployment.alone(site.population)
        teacher = None if finished else answering(site, below("teacher/", state))
        student = answering(site, below("student/", state))
        return replace(alone, answer=teacher, variants={"student": replace(alone, answer=student)})


def consistency(
    logits: Float[Tensor, "n B+U C"],
    labels: Int[Tensor, "n B"],
    teacher: Float[Tensor, "n B+U C"],
    weight: Float[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """CE on the first B, plus weight times the mean squared difference of probabilities on all."""
    squared = (logits.softmax(-1) - teacher).square().mean((-1, -2))
    return cross_entropy(logits[:, : labels.shape[1]], labels) + weight * squared
