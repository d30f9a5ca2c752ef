"""`--certify`: the paper's bounds beside what a run really did, node by node.

A twin of the population is trained beside it on the same batches and masks, without distillation: the
"self-only trajectory" ϑ. The drift ‖θ − ϑ‖ is measured, and so is every ingredient of its bound: β of each
supervised batch (exact for linear heads; for other models it is not known and the bound is absent) and the
norm λG of each distillation gradient. What the propositions assume is reported one by one, and why it is not
so here; `assumptions_hold` says whether all of it is.

ξ is a true upper bound: the risk of α̂ on V_i, less a number that no weights on the simplex can be below
(`bounds.lowest_risk`). Since that is the whole simplex, the deployment bound assumes nothing of the trust
network. It speaks of the mixture Σ_j α̂_ij p_j, with which a node answers whose deployment gate is open.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lntrust.learners import Batch
from lntrust.methods.base import Observer, Site, Tensors, below, under
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust import bounds
from lntrust.trust.distil import DistillTargets
from lntrust.trust.evidence import Evidence


class Certificate(Observer):
    """Watches one run of LNTrust."""

    def __init__(self, site: Site, state: Tensors | None = None) -> None:
        self._site, like = site, site.population
        self._twin = replace(like)  # another of the same making, which has learned nothing yet
        self._twin.load(like.state() if state is None else below("twin/", state))
        zeros = torch.zeros(3, like.n, device=like.device, dtype=torch.float64)
        names = ("eta beta", "perturbation", "gradient ratio")
        self._sums = dict(zip(names, zeros, strict=True)) if state is None else below("sum/", state)

    def state(self) -> Tensors:
        return under("twin/", self._twin.state()) | under("sum/", self._sums)

    # -- watching ---------------------------------------------------------------------------------

    def supervised(self, batch: Batch) -> None:
        """Before the population's own step on this batch: the twin takes it too, and β is measured."""
        training = self._twin.training
        for stack, x in self._site.population.head_inputs("supervised", batch.examples):
            beta = bounds.softmax_smoothness(x, training.l2).double()
            turn = 1.0 if batch.active is None else batch.active[stack.nodes].double()
            self._sums["eta beta"][stack.nodes] += training.lr * beta * turn
        self._twin.step(batch)

    @contextmanager
    def distilling(self, state: TrustState, targets: DistillTargets) -> Iterator[None]:
        """g = v' − μv is the gradient that was applied, λ included: η·‖g‖ enters the drift bound."""
        population, training = self._site.population, self._twin.training
        before = [{n: v.clone() for n, v in stack.momentum.items()} for stack in population.torch_stacks]
        limit = torch.full((population.n,), torch.nan, dtype=torch.float64, device=population.device)
        for stack, x in population.head_inputs("distil", targets.ids):
            M = bounds.linear_jacobian_norm(x * targets.kept[stack.nodes][..., None])
            largest = targets.omega[stack.nodes].amax(-1)
            limit[stack.nodes] = bounds.distillation_gradient_bound(largest, M).double()
        yield
        active = targets.kept.any(-1)
        for stack, momentum in zip(population.torch_stacks, before, strict=True):
            g = [v - training.momentum * momentum[name] for name, v in stack.momentum.items()]
            norm = _norm(g) * active[stack.nodes]
            self._sums["perturbation"][stack.nodes] += training.lr * norm
            ratio = norm / (state.strength[stack.nodes].double() * limit[stack.nodes])
            seen = self._sums["gradient ratio"][stack.nodes]
            self._sums["gradient ratio"][stack.nodes] = torch.fmax(seen, ratio.nan_to_num(0.0, posinf=0.0))

    # -- the certificate --------------------------------------------------------------------------

    def drift(self) -> Float[Tensor, "n"]:
        """‖θ_i − ϑ_i‖ over all parameters; NaN for learners that take no gradient steps."""
        population = self._site.population
        out = torch.full((population.n,), torch.nan, dtype=torch.float64, device=population.device)
        for stack, twin in zip(population.torch_stacks, self._twin.torch_stacks, strict=True):
            out[stack.nodes] = _norm([p - twin.params[name] for name, p in stack.params.items()])
        return out

    def report(self, state: TrustState, settings: LNTrustSettings) -> dict[str, Any]:
        """Per node: validation risk, the deployment bound's terms, drift and its bound, the gate's path."""
        evidence, sums, epsilon, delta = state.evidence, self._sums, settings.epsilon_dep, settings.delta
        risk, xi, at_least = _risks(evidence, state.closed, epsilon)
        members, examples = evidence.mask.sum(-1).tolist(), evidence.offsets.diff().tolist()
        each = zip(members, examples, strict=True)
        deployment = [bounds.deployment_bound(d, m, epsilon, delta) if m else None for d, m in each]
        linear = torch.zeros_like(state.together)
        for stack in self._site.population.torch_stacks:
            linear[stack.nodes] = stack.is_head
        known = torch.where(linear, 0.0, torch.nan)  # what is known of linear heads only
        assumed = self._assumptions(settings, bool(linear.all()))
        log_bound = bounds.drift_bound_log10(sums["eta beta"], sums["perturbation"])
        return {
            "epsilon_dep": epsilon,
            "delta": delta,
            "assumptions_hold": all(each["holds"] for each in assumed),
            "assumptions": assumed,
            "per_node": {
                "validation_examples": examples,
                "members": members,
                "validation_risk": risk,
                "xi": xi,
                "xi_at_least": at_least,
                "complexity": [terms and terms[0] for terms in deployment],
                "confidence": [terms and terms[1] for terms in deployment],
                "excess_bound": [terms and sum(terms) for terms in deployment],
                "drift": as_numbers(self.drift()),
                "drift_bound_log10": as_numbers(log_bound + known),
                "eta_beta": as_numbers(sums["eta beta"] + known),
                "perturbation": as_numbers(sums["perturbation"]),
                "gradient_ratio": as_numbers(sums["gradient ratio"] + known),
                "gate": [as_numbers(path) for path in state.log.strength.T],
            },
        }

    def _assumptions(self, settings: LNTrustSettings, linear: bool) -> list[dict[str, Any]]:
        """What each bound assumes, and if it does not hold here, why."""
        site, partition = self._site, self._site.world.study.partition
        rounds, shards = site.schedule.rounds, site.world.partition.shard.lengths
        taught = settings.budget * settings.strength > 0 and rounds > settings.warmup
        taught = taught and settings.unlabelled and int(shards.min()) > 0 and len(site.network.edges) > 0
        steers = "V_i sets the gate and the weights of distillation; split_validation = true keeps half apart"
        momentum = self._twin.training.momentum
        given = [
            ("deployment", "the models that answer owe nothing to V_i", {
                steers: taught and not settings.split_validation,
                "draws overlap: other nodes train on examples of V_i": partition.draws == "overlapping",
                "the pool holds examples of V_i": taught and partition.pool_draws == "overlapping",
            }),
            ("deployment", "V_i is a random sample of the node's examples", {
                f"partition.split = {partition.split}": partition.split != "random",
                "fresh validation sets have the node's shares of classes": partition.validation == "fresh",
                "whole segments of a person go to V_i": partition.by == "subject",
            }),
            ("deployment", "the answer is a mixture, with one weight per member", {
                f"weighting = {settings.weighting} has weights for each class":
                    settings.weighting == "weighted_majority",
                "a node that is certain stops asking": settings.certainty is not None,
            }),
            ("drift", "training is plain SGD", {f"momentum = {momentum}": momentum != 0}),
            ("drift", "the smoothness β of the supervised loss is known", {
                "it is of linear heads only": not linear,
            }),
        ]  # fmt: skip
        broken = [(bound, says, [why for why, so in but.items() if so]) for bound, says, but in given]
        return [{"bound": b, "says": says, "holds": not why, "why_not": why} for b, says, why in broken]


def _risks(
    evidence: Evidence, alpha: Float[Tensor, "n D"], epsilon: float
) -> tuple[list[float], list[float], list[float]]:
    """R̂(α̂); ξ, which is at least how far it lies above the lowest on the simplex; and how far at least."""
    risks, most, least = [], [], []
    for i, members in enumerate(evidence.mask):
        p_true = evidence.at(slice(i, i + 1)).p_true[:, members].double().cpu()
        risk, low = 0.0, bounds.LowestRisk(0.0, 0.0)
        if len(p_true):
            risk = float(bounds.clipped_risk(p_true, alpha[i, members].double().cpu(), epsilon))
            low = bounds.lowest_risk(p_true, epsilon)
        risks.append(risk)
        most.append(max(0.0, risk - low.floor))
        least.append(max(0.0, risk - low.reached))
    return risks, most, least


def _norm(tensors: list[Float[Tensor, "k *s"]]) -> Float[Tensor, "k"]:
    """‖·‖ of every node's numbers, all tensors together."""
    return torch.as_tensor(sum(t.double().flatten(1).square().sum(1) for t in tensors)).sqrt()


def as_numbers(values: Float[Tensor, "n"]) -> list[float | None]:
    """For JSON, which has neither NaN nor infinity."""
    return [float(v) if torch.isfinite(v) else None for v in values]
