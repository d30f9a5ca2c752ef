"""Stacked generalisation (Wolpert 1992; Ting & Witten 1999) over a graph: a classifier of members' answers.

Everybody trains alone on train only. Then each node asks its neighbours about its validation set V_i, and
fits a multinomial logistic regression on the concatenated answers of its closed neighbourhood:

    q_i(x) = softmax(b_i + Σ_{j∈N̄(i)} A_ijᵀ z_j(x)),   z_j = log p_j, centred over the classes
    min over A, b of  mean_{V_i} −log q_i^y(x) + μ/2·(Σ_j ‖A_ij − A⁰_ij‖² + ‖b_i‖²)

μ is one of `PENALTIES`, chosen by cross-validation of the log-loss over `folds` parts of V_i; ties go to the
larger. A⁰ = 0 is the usual ridge. A⁰_ij = I/|N̄(i)| is the neighbourhood's geometric mean: where V_i is
small, a large μ then leaves that, and not a guess.

Exchanged: V_i once, after training, |V_i|·(input + 4C) bytes per directed edge. At deployment: one query to
and one reply from each neighbour.

Where our setting differs: the members are neighbours' models, which have not seen V_i, so that no
cross-validation is needed to get their answers. Ting & Witten stack probabilities, by least squares. Here it
is their logarithms (below 1e-7 they count as 1e-7): so each member's own answer at any temperature, and the
members' geometric mean, are among the regressions that can be found. The intercept is penalised too, so that
a class that V_i lacks can still be answered. A node answers by itself if no neighbour has answered, or if
V_i has one class only or fewer examples than folds. The folds are consecutive parts of V_i, which is in
random order; where windows overlap, those of one segment mostly stay together.
"""

from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.methods.base import ALL, Combine, Deployment, Method, Probe, Site, State
from lntrust.methods.fedmd import centred_logits
from lntrust.study.settings import MethodSettings, Range

PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
_CHOOSE, _FIT = 40, 120  # steps at most: in each fold with each penalty, and with the one that was chosen
_LOOK, _SMALL = 20, 1e-4  # every so many steps the slope is looked at, and below this the descent ends


class StackingSettings(MethodSettings):
    towards: Annotated[Literal["mean", "zero"], Range(choices=("mean", "zero"))] = "mean"
    """where the penalty draws the regression: mean: the members' geometric mean; zero: as usual"""
    folds: int = Field(5, ge=2, description="parts of V_i that the penalty is chosen by")


class Stacking(Method):
    about = "train alone; answer with a logistic regression on the neighbourhood's answers, fitted to V_i"
    uses_validation = True
    settings_class = StackingSettings
    settings: StackingSettings

    def finish(self, site: Site, state: State) -> State:
        """Ask about V_i, and fit: one node after another, all penalties and folds at once."""
        got = site.probe("select")
        use = those_who_combine(site, got, self.settings.folds)
        node, column = torch.nonzero(use, as_tuple=True)
        n, C, offsets = site.population.n, site.population.classes, site.validation.offsets.tolist()
        matrices, bias = got.probabilities.new_zeros(len(node), C, C), got.probabilities.new_zeros(n, C)
        penalty = bias.new_zeros(n)
        for i in torch.unique(node).tolist():
            part = slice(offsets[i], offsets[i + 1])
            z = centred_logits(got.probabilities[part][:, use[i]])
            matrices[node == i], bias[i], penalty[i] = stack(
                z, got.labels[part], self.settings.towards, self.settings.folds
            )
        members = torch.stack([node, site.around.member[node, column]], 1)
        return {"members": members, "matrices": matrices, "bias": bias, "penalty": penalty}

    def deploy(self, site: Site, state: State) -> Deployment:
        if "members" not in state:  # fitted once, after the last round
            return Deployment.alone(site.population)
        first = rows_of(state, site.population.n)

        def combine(i: int, said: Float[Tensor, "k U C"], _: Int[Tensor, "U"]) -> Float[Tensor, "U C"]:
            A = state["matrices"][first[i] : first[i + 1]]
            return (torch.einsum("kuc,kcd->ud", centred_logits(said), A) + state["bias"][i]).softmax(-1)

        return asking_all(state, site, combine)

    def report(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
        if "members" not in state:
            return {}
        chosen = [round(mu, 6) for mu in state["penalty"][nodes].tolist()]
        return {"alone": chosen.count(0.0), "penalties": {str(mu): chosen.count(mu) for mu in PENALTIES}}


def those_who_combine(site: Site, got: Probe, least: int = 2) -> Bool[Tensor, "n D"]:
    """The members whose answers each node combines; none where it has nobody, or too little, to judge by."""
    owner = torch.from_numpy(site.world.partition.validation.owner).to(got.labels.device)
    seen = torch.zeros(site.population.n, site.population.classes, dtype=torch.bool, device=owner.device)
    seen[owner, got.labels] = True
    broken = torch.zeros_like(seen[:, 0])  # whose own model has diverged
    broken[owner[~got.probabilities[:, 0].isfinite().all(1)]] = True
    able = (got.mask.sum(1) > 1) & (seen.sum(1) > 1) & (site.validation.offsets.diff() >= least) & ~broken
    return got.mask & able[:, None]


def rows_of(state: State, n: int) -> list[int]:
    """Where the rows of each node begin."""
    return [0, *torch.bincount(state["members"][:, 0], minlength=n).cumsum(0).tolist()]


def asking_all(state: State, site: Site, combine: Combine) -> Deployment:
    """Every node hears all its members, and makes of it what it has learned."""
    node = state["members"][:, 0]
    size = torch.bincount(node, minlength=site.population.n)[node]
    return Deployment(state["members"], 1.0 / size.to(site.population.dtype), combine=combine)


def stack(
    z: Float[Tensor, "T k C"], labels: Int[Tensor, "T"], towards: str, folds: int
) -> tuple[Float[Tensor, "k C C"], Float[Tensor, "C"], float]:
    """A and b of one node, from what its k members have said of T examples, and μ."""
    T, k, C = z.shape
    mu = torch.tensor(PENALTIES, dtype=z.dtype, device=z.device)
    start = torch.zeros(k * C + 1, C, dtype=z.dtype, device=z.device)  # the last row is the intercept's
    if towards == "mean":
        start[:-1] = torch.eye(C).repeat(k, 1) / k
    x = torch.cat([z.flatten(1), z.new_ones(T, 1)], 1)
    part = torch.arange(T, device=z.device) * folds // T
    held_out = part == torch.arange(folds, device=z.device)[:, None]
    logits, _ = ridge(x, start, labels, ~held_out, mu, _CHOOSE)
    log_q = logits.log_softmax(-1)[..., torch.arange(T, device=z.device), labels]
    best = (log_q * held_out[:, None]).sum((0, 2)).argmax()
    _, found = ridge(x, start, labels, torch.ones_like(held_out[:1]), mu[best, None], _FIT)
    W = found[0, 0]
    return W[:-1].view(k, C, C), W[-1], float(mu[best])


def ridge(
    x: Float[Tensor, "T F"], start: Float[Tensor, "F C"], labels: Int[Tensor, "T"],
    used: Bool[Tensor, "P T"], mu: Float[Tensor, "M"], steps: int,
) -> tuple[Float[Tensor, "P M T C"], Float[Tensor, "P M F C"]]:  # fmt: skip
    """min_W mean over the used rows of −log softmax(xW)_y + μ/2·‖W − W⁰‖², for every part and every μ.

    The solution lies in the span of the rows, and is the same in any basis of it. In that of x's singular
    vectors a bound on the curvature, ½(I − 11ᵀ/C) ⊗ xᵀx/T + μ (Böhning 1992), is below a diagonal: Nesterov's
    descent under it, begun anew where it climbs (O'Donoghue & Candès 2015).
    """
    U, S, V = torch.linalg.svd(x, full_matrices=False)
    rows, truth = U * S, torch.nn.functional.one_hot(labels, start.shape[1]).to(x.dtype)
    count = used.sum(1).clamp(min=1).to(x.dtype)[:, None, None, None]
    weight, mu = used.to(x.dtype)[:, None, :, None] / count, mu[:, None, None]
    bound = 0.5 * (S.square()[:, None] / count) + mu
    at = x @ start
    B = x.new_zeros(len(used), len(mu), len(S), start.shape[1])
    ahead, momentum = B, torch.ones_like(bound[:, :, :1])
    for step in range(steps):
        logits = at + torch.einsum("tr,pmrc->pmtc", rows, ahead)
        slope = torch.einsum("tr,pmtc->pmrc", rows, (logits.softmax(-1) - truth) * weight) + mu * ahead
        after = ahead - slope / bound
        climbs = ((ahead - after) * (after - B) * bound).sum((-1, -2), keepdim=True) > 0
        momentum = torch.where(climbs, 1.0, momentum)
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum.square()).sqrt())
        ahead, B = after + (momentum - 1.0) / grown * (after - B), after
        momentum = grown
        if step % _LOOK == _LOOK - 1 and bool(slope.abs().amax() < _SMALL):
            break
    logits = at + torch.einsum("tr,pmrc->pmtc", rows, B)
    return logits, start + torch.einsum("rf,pmrc->pmfc", V, B)
