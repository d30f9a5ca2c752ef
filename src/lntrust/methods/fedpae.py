"""FedPAE: personalized ensembles of peers' models (Mueller et al. 2024), over a graph.

Everybody trains alone on train only. Then each node receives its neighbours' models, judges them on its own
validation set V_i, and selects an ensemble S ⊆ N̄(i) by two objectives at once:

    strength(S)  = mean_{j∈S} accuracy of j on V_i
    diversity(S) = mean_{x∈V_i} det(F_S F_Sᵀ),  rows of F_S: p_j(x) without the true class, scaled to length 1

(diversity as Pang et al. 2019 define it; 0 for fewer than two members). The determinant never grows with a
member, nor does mean strength with the weakest one, so almost no front holds more than two;
`diversity = "geometric"` takes the |S|-th root, which can be compared across sizes. Of the Pareto front, the
ensemble of the highest validation accuracy is deployed, the smaller one where two tie; its members'
probabilities are averaged. |S| ≤ C − 1, since more than C − 1 such vectors are never independent.

This is what the authors' code does (briannamueller/FedPAE, c440f10): both objectives, 0 for fewer than two
members and a floor at 0, |S| ≤ C − 1, population 40, 40 generations, soft vote, ties to the smaller. Of
ensembles of equal accuracy and size it takes the more diverse, we the earlier, the node itself first. Of the
paper's text only the abstract could be read.

Up to `enumerate` candidates the exact front is found by trying all subsets; beyond, by NSGA-II (pymoo).

Exchanged: every model once, after training, 4P bytes per directed edge; the backbone is public. A learner
without parameters is asked about V_i instead, and again in deployment. Held models cost nothing to ask.

Where our setting differs: peers are neighbours, not everybody; a node brings one model, not one of each kind;
diversity is judged on the first `examples` of V_i, which are in random order; pymoo's crossover cuts at two
points, where theirs is uniform.
"""

from importlib.util import find_spec
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.methods.base import ALL, Deployment, Method, Site, State
from lntrust.study.settings import MethodSettings, Range

_AT_ONCE = 4_000_000  # numbers in the determinants computed together


class FedPAESettings(MethodSettings):
    population: int = Field(40, ge=2, description="NSGA-II: ensembles per generation")
    generations: Annotated[int, Range(choices=(10, 20, 40, 80))] = Field(40, ge=1)
    """NSGA-II: generations"""
    diversity: Literal["determinant", "geometric"] = "determinant"
    """determinant: as published; geometric: its |S|-th root"""
    enumerate: int = Field(12, ge=0, le=16, description="candidates up to which all subsets are tried")
    examples: Annotated[int, Range(choices=(32, 64, 128, 256))] = Field(256, ge=1)
    """validation examples that diversity is judged on, at most"""


class FedPAE(Method):
    about = "train alone; select an ensemble of neighbours' models by strength and diversity"
    uses_validation = True
    settings_class = FedPAESettings
    settings: FedPAESettings

    def check(self, site: Site) -> None:
        most = int(site.world.degrees.max(initial=0)) + 1
        if most > self.settings.enumerate and find_spec("pymoo") is None:
            missing = "NSGA-II comes from pymoo, which is not installed; pip install 'lntrust[fedpae]'"
            raise LNTrustError(f"fedpae: {most} candidates are too many to try all subsets, and {missing}")

    def finish(self, site: Site, state: State) -> State:
        """Receive the models of every torch learner, judge them, select."""
        sender, receiver = site.network.edges.unbind(1)
        for stack in site.population.torch_stacks:
            over = torch.nonzero(torch.isin(sender, stack.nodes)).flatten()
            site.sharing.charge(over, {"parameters": stack.flat()}, "parameters", "models")
        held = site.population.takes_steps[receiver]  # who answers: its model came the other way
        around = site.around
        got, use = site.probe("select", held), torch.zeros_like(around.mask)
        for i, (first, last) in enumerate(pairwise(site.validation.offsets.tolist())):
            column = torch.nonzero(got.mask[i]).flatten()
            p, labels = got.probabilities[first:last, column], got.labels[first:last]
            use[i, column[self._select(site, p, labels, i)]] = True
        node, column = torch.nonzero(use, as_tuple=True)
        held = torch.cat([held, held.new_zeros(1)])  # edge −1: the node itself
        return state | {
            "members": torch.stack([node, around.member[node, column]], 1),
            "weights": 1.0 / use.sum(1)[node].to(site.population.dtype),
            "held": held[around.edge[node, column]],
        }

    def deploy(self, site: Site, state: State) -> Deployment:
        if "members" not in state:  # selected once, after the last round
            return Deployment.alone(site.population)
        return Deployment(state["members"], state["weights"], held=state["held"])

    def report(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, object]:
        if "members" not in state:
            return {}
        first, last, _ = nodes.indices(site.population.n)
        node = state["members"][:, 0]
        rows = state["members"][(node >= first) & (node < last)] - first
        size = torch.bincount(rows[:, 0], minlength=last - first)
        return {"mean_size": float(size.double().mean()), "members": rows.tolist()}

    def _select(
        self, site: Site, p: Float[Tensor, "T d C"], labels: Int[Tensor, "T"], node: int
    ) -> Int[Tensor, "s"]:
        """The chosen candidates; the node itself, candidate 0, where there is nothing to judge by."""
        d, largest = p.shape[1], max(1, p.shape[2] - 1)
        if d == 1 or len(labels) == 0:
            return torch.zeros(1, dtype=torch.int64, device=p.device)
        judge = Judge(p, labels, self.settings.examples, self.settings.diversity == "geometric")
        if d <= self.settings.enumerate:
            subsets = all_subsets(d, largest)
            subsets = subsets[pareto_front(judge(subsets))]
        else:
            seed = site.world.seeds.small_seed("selection", node)
            subsets = evolve(judge, d, largest, self.settings.population, self.settings.generations, seed)
        return torch.from_numpy(np.flatnonzero(best_vote(p, labels, subsets))).to(p.device)


class Judge:
    """Strength and diversity of subsets of d candidates, on one node's validation answers."""

    def __init__(
        self, p: Float[Tensor, "T d C"], labels: Int[Tensor, "T"], examples: int, geometric: bool = False
    ) -> None:
        self._geometric = geometric
        self._accuracy = (p.argmax(-1) == labels[:, None]).double().mean(0)
        p, labels = p[:examples].double(), labels[:examples]
        wrong = p.masked_fill(torch.nn.functional.one_hot(labels, p.shape[-1]).bool()[:, None], 0.0)
        unit = wrong / torch.linalg.vector_norm(wrong, dim=-1, keepdim=True).clamp(min=1e-12)
        self._gram: Float[Tensor, "T d d"] = unit @ unit.transpose(1, 2)

    def __call__(self, subsets: Bool[ndarray, "s d"]) -> Float[ndarray, "s 2"]:
        """(strength, diversity) of each subset; both shall be large."""
        member = torch.from_numpy(subsets).to(self._accuracy.device)
        size = member.sum(1)
        strength = (member.double() @ self._accuracy) / size.clamp(min=1)
        diversity = torch.zeros_like(strength)
        for m in sorted(set(size.tolist()) - {0, 1}):
            index = torch.nonzero(member[size == m])[:, 1].view(-1, m)
            each = []
            for i in torch.split(index, max(1, _AT_ONCE // (len(self._gram) * m * m))):
                volume = torch.linalg.det(self._gram[:, i[:, :, None], i[:, None, :]]).clamp(min=0.0)
                each.append((volume ** (1.0 / m) if self._geometric else volume).mean(0))
            diversity[size == m] = torch.cat(each)
        return torch.stack([strength, diversity], 1).cpu().numpy()


def all_subsets(d: int, largest: int) -> Bool[ndarray, "s d"]:
    """Every non-empty subset of at most `largest` of d candidates, small ones first."""
    bits = (np.arange(2**d - 1, 0, -1)[:, None] >> np.arange(d)[::-1] & 1).astype(bool)
    small = bits[bits.sum(1) <= largest]
    subsets: Bool[ndarray, "s d"] = small[small.sum(1).argsort(kind="stable")]
    return subsets


def pareto_front(scores: Float[ndarray, "s 2"]) -> Bool[ndarray, "s"]:
    """Rows that no other row beats: as good in both, better in one."""
    strength, diversity = scores.T
    levels, level = np.unique(-strength, return_inverse=True)  # the strongest first
    top = np.full(len(levels), -np.inf)
    np.fmax.at(top, level, diversity)
    stronger = np.concatenate([[-np.inf], np.maximum.accumulate(top)[:-1]])
    front: Bool[ndarray, "s"] = (diversity == top[level]) & (top > stronger)[level]
    return front


def evolve(
    judge: Judge, d: int, largest: int, population: int, generations: int, seed: int
) -> Bool[ndarray, "s d"]:
    """The front that NSGA-II finds."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.pntx import TwoPointCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation
    from pymoo.operators.sampling.rnd import BinaryRandomSampling
    from pymoo.optimize import minimize

    class Ensembles(Problem):  # type: ignore[misc]
        def _evaluate(self, x: ndarray, out: dict[str, ndarray], *_: object, **__: object) -> None:
            size = x.sum(1)
            out["F"] = -judge(x.astype(bool))  # pymoo makes everything small
            out["G"] = np.stack([size - largest, 1 - size], 1)

    problem = Ensembles(n_var=d, n_obj=2, n_ieq_constr=2, xl=0, xu=1, vtype=bool)
    algorithm = NSGA2(
        pop_size=population, sampling=BinaryRandomSampling(), crossover=TwoPointCrossover(),
        mutation=BitflipMutation(), eliminate_duplicates=True,
    )  # fmt: skip
    result = minimize(problem, algorithm, ("n_gen", generations), seed=seed, verbose=False)
    if result.X is None:  # chance has found no ensemble that is small enough
        return np.eye(d, dtype=bool)
    return np.unique(np.atleast_2d(result.X).astype(bool), axis=0)[::-1].copy()  # the node itself first


def best_vote(
    p: Float[Tensor, "T d C"], labels: Int[Tensor, "T"], subsets: Bool[ndarray, "s d"]
) -> Bool[ndarray, "d"]:
    """The subset whose mean answer is right most often; ties go to the smaller, then to the earlier."""

    def rank(subset: Bool[ndarray, "d"]) -> tuple[int, int]:
        vote = p[:, torch.from_numpy(subset).to(p.device)].mean(1).argmax(-1)
        return -int((vote == labels).sum()), int(subset.sum())

    return min(subsets, key=rank)
