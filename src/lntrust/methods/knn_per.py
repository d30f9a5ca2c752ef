"""kNN-Per (Marfoq, Neglia, Kameni & Vidal, ICML 2022): a node's model, mixed with its nearest examples.

    p_i^deploy(x) = λ_i·p_i^kNN(x) + (1 − λ_i)·p_i(x)
    p_i^kNN(x)^c ∝ Σ of exp(−d²/(σ·D)) over the k_i nearest training examples of node i that are of class c

d is the Euclidean distance in the node's own view of x, which has D numbers: the frozen backbone's features
where there is a backbone, else the raw input. λ_i and k_i are those of `WEIGHTS` and `NEAREST` with the
lowest log-loss on V_i (probabilities below .01 count as .01; ties go to less of λ, then of k).

Here everybody trains alone on train only; `deploy = "knn"` puts the same on any other method's training.
`dfedavg` with it is the nearest to what was published, whose model is one that all have trained together.

Exchanged: nothing, neither in training nor at deployment.

Where our setting differs: the representation is the backbone's and not that of a trained layer. The kernel
is the released code's (d² over D); it was not checked against the paper's text. That code scores a grid of λ
on test; here V_i decides, and its examples are never among the nearest. `weight` and `k` set one for all
nodes.
"""

from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.methods.base import ALL, Deployment, Method, Site, State
from lntrust.study.settings import MethodSettings, Range

WEIGHTS = tuple(w / 10 for w in range(11))
NEAREST = (1, 3, 5, 7, 10, 20)
_LEAST = 0.01  # a probability; one example of a class that nobody near belongs to shall not decide alone


class KNNPerSettings(MethodSettings):
    weight: float | None = Field(None, ge=0, le=1)
    """λ, how much the nearest examples count; none: chosen on V_i, node by node"""
    k: int | None = Field(None, ge=1)
    """how many are near; none: chosen on V_i, node by node"""
    scale: Annotated[float, Range(0.03, 3.0, log=True)] = Field(1.0, gt=0)
    """σ, the width of the kernel"""


class KNNPer(Method):
    about = "train alone; mix the model's answer with that of the nearest labelled examples"
    uses_validation = True
    settings_class = KNNPerSettings
    settings: KNNPerSettings

    def finish(self, site: Site, state: State) -> State:
        """Choose λ and k, node by node, on answers about V_i."""
        s, offsets = self.settings, site.validation.offsets.tolist()
        weights = torch.tensor(WEIGHTS if s.weight is None else [s.weight], dtype=site.population.dtype)
        nearest = torch.tensor(NEAREST if s.k is None else [s.k])
        weights, nearest = weights.to(site.population.device), nearest.to(site.population.device)
        owner = torch.from_numpy(site.world.partition.validation.owner).to(weights.device)
        ids = site.validation.ids
        own, labels = site.population.asked(owner, ids)(), site.population.labels_of(owner, ids)
        best = torch.zeros(site.population.n, dtype=torch.int64, device=weights.device)
        if len(weights) * len(nearest) > 1:
            for i, store in enumerate(stores(site)):
                part = slice(offsets[i], offsets[i + 1])
                near = store.answers(ids[part], nearest, s.scale)
                p = torch.lerp(own[part], near, weights[:, None, None, None])  # [λ, k, T, C]
                q = p[..., torch.arange(p.shape[2], device=p.device), labels[part]]
                loss = -q.clamp(min=_LEAST).log().sum(-1)
                best[i] = loss.flatten().argmin()
        return {"weight": weights[best // len(nearest)], "k": nearest[best % len(nearest)]}

    def deploy(self, site: Site, state: State) -> Deployment:
        alone = Deployment.alone(site.population)
        if "weight" not in state:  # chosen once, after the last round
            return alone
        weight, known = state["weight"].tolist(), stores(site)

        def combine(i: int, said: Float[Tensor, "1 U C"], ids: Int[Tensor, "U"]) -> Float[Tensor, "U C"]:
            if weight[i] == 0:
                return said[0]
            near = known[i].answers(ids, state["k"][i : i + 1], self.settings.scale)[0]
            return torch.lerp(said[0], near, weight[i])

        return Deployment(alone.members, alone.weights, combine=combine)

    def report(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
        if "weight" not in state:
            return {}
        return {"weight": state["weight"][nodes].tolist(), "k": state["k"][nodes].tolist()}


class Store:
    """One node's training examples, as it sees them."""

    def __init__(self, view: Tensor, ids: Int[Tensor, "m"], labels: Int[Tensor, "m"], classes: int) -> None:
        self._view, self._ids = view, ids
        self._truth = torch.nn.functional.one_hot(labels, classes).to(view.dtype)

    def answers(
        self, ids: Int[Tensor, "U"], nearest: Int[Tensor, "q"], scale: float
    ) -> Float[Tensor, "q U C"]:
        """p^kNN on these examples, for several k; of all examples where there are fewer than k."""
        x, known = self._view[ids].flatten(1), self._view[self._ids].flatten(1)
        last = nearest.clamp(max=len(known)) - 1
        away, which = torch.cdist(x, known).square().topk(int(last.max()) + 1, largest=False)
        near = torch.exp((away[:, :1] - away) / (scale * x.shape[1]))  # the nearest weighs 1
        votes = (near[..., None] * self._truth[which]).cumsum(1)
        return (votes / near.cumsum(1)[..., None])[:, last].transpose(0, 1)


def stores(site: Site) -> list[Store]:
    """Every node's, of what it trains on: never a validation label."""
    population, lists = site.population, site.labelled.lists
    view = {i: stack.view for stack in population.stacks for i in stack.nodes.tolist()}
    out = []
    for i, own in enumerate(lists):
        ids = torch.from_numpy(own.copy()).to(population.device)
        out.append(
            Store(view[i], ids, population.labels_of(torch.full_like(ids, i), ids), population.classes)
        )
    return out
