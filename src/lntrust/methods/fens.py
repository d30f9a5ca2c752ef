"""FENS (Allouah et al., NeurIPS 2024) without its server: a small network on the neighbourhood's answers.

Everybody trains alone on train only. Then each node asks its neighbours about its validation set V_i, and
trains an aggregator on the concatenated logits of its closed neighbourhood, by Adam on minibatches of V_i:

    mlp:      q_i(x) = softmax(W₂ᵀ·relu(W₁ᵀ·[z_j(x)]_{j∈N̄(i)} + b₁) + b₂),   d·|N̄(i)| hidden units
    weights:  q_i(x) = softmax(Σ_{j∈N̄(i)} w_ij ∘ z_j(x)),   a weight per member and class, 1/|N̄(i)| at first

Both are published, one or the other by dataset. Defaults are those of the released script for CIFAR-10: mlp,
d = 2, 500 steps at .001, batches of 128, no penalty.

Exchanged: V_i once, after training, |V_i|·(input + 4C) bytes per directed edge. At deployment: one query to
and one reply from each neighbour.

Where our setting differs: FENS has one aggregator for all, which clients train together by FedAdam on the
answers of everybody's model, sent once. Without a server each node has its own neighbours, hence its own
aggregator, and V_i alone to fit it to. The released code reports the best round on test; here it is the last
step. Replies are probabilities; their centred logarithms are the logits up to a constant per example (below
1e-7 they count as 1e-7). A node answers by itself if no neighbour has answered, or if V_i has fewer than two
classes.
"""

from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.randomness import batches, fold, uniform
from lntrust.methods.base import ALL, Deployment, Method, Site, State
from lntrust.methods.fedmd import centred_logits
from lntrust.methods.stacking import asking_all, rows_of, those_who_combine
from lntrust.study.settings import MethodSettings, Range

_FIRST, _FIRST_BIAS, _SECOND, _SECOND_BIAS, _BATCHES = range(5)  # what a node draws


class FENSSettings(MethodSettings):
    aggregator: Annotated[Literal["mlp", "weights"], Range(choices=("mlp", "weights"))] = "mlp"
    """mlp: two layers; weights: a weight per member and class"""
    hidden: int = Field(2, ge=1, description="d, hidden units per member")
    steps: Annotated[int, Range(choices=(50, 150, 500, 1500))] = Field(500, ge=0)
    """steps of Adam"""
    rate: Annotated[float, Range(0.0003, 0.1, log=True)] = Field(0.001, gt=0)
    """Adam's learning rate"""
    batch: int = Field(128, ge=1, description="validation examples per step")


class FENS(Method):
    about = "train alone; answer with a small network on the neighbourhood's answers, fitted to V_i"
    uses_validation = True
    settings_class = FENSSettings
    settings: FENSSettings

    def finish(self, site: Site, state: State) -> State:
        """Ask about V_i, and fit the aggregators of all nodes at once."""
        s, around = self.settings, site.around
        got = site.probe("select")
        use = those_who_combine(site, got)
        node, column = torch.nonzero(use, as_tuple=True)
        members, able = torch.stack([node, around.member[node, column]], 1), torch.unique(node)
        if not len(able):
            return {"members": members}
        key, seeds = site.world.seeds.keys("aggregator", site.population.device)[able], site.world.seeds
        z, number = centred_logits(got.probabilities), around.member[able] % seeds.n
        start = fresh(s, key, number, use[able].to(z.dtype), site.population.classes)
        first, size = site.validation.offsets[:-1][able], site.validation.offsets.diff()[able]
        fitted = fit(s, start, key, z, got.labels, first, size)
        learned = {"weights": fitted.pop("weights")[torch.searchsorted(able, node), column]}  # row by row
        for name, value in fitted.items():  # node by node
            learned[name] = value.new_zeros(site.population.n, *value.shape[1:]).index_copy_(0, able, value)
        return learned | {"members": members}

    def deploy(self, site: Site, state: State) -> Deployment:
        if "members" not in state:  # fitted once, after the last round
            return Deployment.alone(site.population)
        first = rows_of(state, site.population.n)

        def combine(i: int, said: Float[Tensor, "k U C"], _: Int[Tensor, "U"]) -> Float[Tensor, "U C"]:
            own = {name: t[i : i + 1] for name, t in state.items() if name not in ("members", "weights")}
            own["weights"] = state["weights"][None, first[i] : first[i + 1]]
            return aggregate(own, centred_logits(said).transpose(0, 1)[None])[0].softmax(-1)

        return asking_all(state, site, combine)

    def report(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
        if "members" not in state:
            return {}
        first, last, _ = nodes.indices(site.population.n)
        node = torch.unique(state["members"][:, 0])
        return {"alone": last - first - int(((node >= first) & (node < last)).sum())}


Aggregators = dict[str, Tensor]  # of several nodes, by name; `weights` has a row for each member


def fresh(
    s: FENSSettings, key: Int[Tensor, "n"], number: Int[Tensor, "n D"], mask: Float[Tensor, "n D"], C: int
) -> Aggregators:
    """As nn.Linear begins, drawn by the numbers of the members that a weight lies between: in what order they
    stand, or who else is fitted, does not matter. Of padding all is 0, and stays so."""
    k, d, (n, D) = mask.sum(1), s.hidden, mask.shape
    if s.aggregator == "weights":
        return {"weights": (mask / k[:, None])[..., None].repeat(1, 1, C)}

    def drawn(words: Int[Tensor, "n *s"], count: int, inputs: Float[Tensor, "n"]) -> Tensor:
        bound = inputs.rsqrt().view(-1, *[1] * words.ndim)
        return (2.0 * uniform(words, count) - 1.0).to(mask.dtype) * bound

    into = fold(fold(fold(key, _FIRST)[:, None, None], number[:, :, None]), number[:, None, :])
    between = (mask[:, :, None] * mask[:, None, :])[..., None, None]
    first = drawn(into, C * d, k * C).view(n, D, D, C, d) * between
    bias = drawn(fold(fold(key, _FIRST_BIAS)[:, None], number), d, k * C) * mask[..., None]
    second = drawn(fold(fold(key, _SECOND)[:, None], number), d * C, k * d) * mask[..., None]
    return {
        "weights": first.transpose(2, 3).reshape(n, D, C, D * d), "bias": bias.reshape(n, D * d),
        "second": second.reshape(n, D * d, C), "second bias": drawn(fold(key, _SECOND_BIAS), C, k * d),
    }  # fmt: skip


def fit(
    s: FENSSettings, start: Aggregators, key: Int[Tensor, "n"], z: Float[Tensor, "T D C"],
    labels: Int[Tensor, "T"], first: Int[Tensor, "n"], size: Int[Tensor, "n"],
) -> Aggregators:  # fmt: skip
    """Adam on minibatches: node i has the `size[i]` rows of z and of the labels from `first[i]` on."""
    parameters = {name: value.clone().requires_grad_() for name, value in start.items()}
    optimiser, key = torch.optim.Adam(parameters.values(), lr=s.rate), fold(key, _BATCHES)
    for step in range(s.steps):
        row = first[:, None] + batches(key, size, torch.full_like(size, step * s.batch), s.batch)
        log_q = aggregate(parameters, z[row]).log_softmax(-1)
        losses = -log_q.gather(-1, labels[row][..., None]).mean((1, 2))
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return {name: value.detach() for name, value in parameters.items()}


def aggregate(parameters: Aggregators, z: Float[Tensor, "n B k C"]) -> Float[Tensor, "n B C"]:
    """The logits that nodes' aggregators make of their members'."""
    weights = parameters["weights"]
    if "second" not in parameters:
        return torch.einsum("nbkc,nkc->nbc", z, weights)
    hidden = torch.bmm(z.flatten(2), weights.flatten(1, 2)) + parameters["bias"][:, None]
    return torch.bmm(hidden.relu(), parameters["second"]) + parameters["second bias"][:, None]
