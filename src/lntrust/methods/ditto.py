"""Ditto (Li, Hu, Beirami & Smith, ICML 2021), with gossip in its server's place.

Every node keeps two models. w takes part in decentralized FedAvg; v, which is deployed, learns the node's own
labels and is held near the average that w began the round with:

    w_i ← Σ_{j∈N̄(i)} W_ij (w_j after its local steps),     v_i ← argmin F_i(v) + λ/2·‖v − w_i‖²

W are the Metropolis–Hastings weights of `dfedavg`. Both models step on the same batches, as in the authors'
code (github.com/litian96/ditto), with which the update was compared. So v takes the labelled steps that every
method is granted and sees no further labels, and w takes as many again beside it: twice the work of other
methods. Those of w are not counted as labelled steps of the deployed model; they are what Ditto costs.

The proximal term enters by its proximal operator after each gradient step of v, with the study's learning
rate η and momentum μ:

    v ← (v + c·w)/(1 + c),   c = η·λ/(1 − μ)

For small c this is the paper's step −η·λ(v − w); with the momentum that multiplies the gradient by 1/(1 − μ),
c keeps the fixed points of the objective, and no λ is too large. With λ = 0 a node trains alone; a λ without
end deploys w.

Exchanged: w after each round's local steps, 4P bytes per directed edge.

Where our setting differs: an average over neighbours instead of all; the paper's steps have no momentum, here
each model has its own; v and w both begin as the model of Stage 1, and the nodes of an architecture start
from the same parameters. Who has no neighbour of its kind has no average to be near: its v trains alone.
"""

from typing import Annotated

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.methods.base import Site, State, below, under
from lntrust.methods.sharing import Sharing, subgraphs
from lntrust.study.settings import MethodSettings, Range


class DittoSettings(MethodSettings):
    strength: Annotated[float, Range(0.01, 10.0, log=True)] = Field(1.0, ge=0)
    """λ, how near the personal model is held to the average"""


class Ditto(Sharing):
    about = "a personal model beside an averaged one, held near it by a proximal term"
    common_start = True
    settings_class = DittoSettings
    settings: DittoSettings

    def start(self, site: Site) -> State:
        return models(site)

    def round(self, site: Site, state: State, t: int) -> State:
        population, batches = site.population, list(site.labelled.round(t - 1))
        v = models(site)
        load(site, state)
        average = [population.parameters(subgraph.stack) for subgraph in subgraphs(site)]
        for batch in batches:
            loss, l2 = (cross_entropy, (batch.labels,)), population.training.l2
            population.descend("average", batch.examples, *loss, l2=l2, active=batch.active)
        self.mix(site)
        w = models(site)
        load(site, v)
        for batch in batches:
            population.step(batch)
            self.pull(site, average, batch.active)
        return w

    def pull(self, site: Site, average: list[Float[Tensor, "n P"]], active: Bool[Tensor, "n"] | None) -> None:
        """v ← (v + c·w)/(1 + c) for every node that has stepped and has neighbours to average with."""
        population, training = site.population, site.population.training
        strength = training.lr * self.settings.strength / (1.0 - training.momentum)
        for subgraph, w in zip(subgraphs(site), average, strict=True):
            held = subgraph.degree > 0 if active is None else active & (subgraph.degree > 0)
            c = (strength * held.to(w.dtype))[:, None]
            v = population.parameters(subgraph.stack)
            population.set_parameters(subgraph.stack, (v + c * w) / (1.0 + c))


def models(site: Site) -> State:
    """A copy of the models that stand in the population, momentum and buffers included."""
    out: State = {}
    for stack in site.population.torch_stacks:
        out |= under(f"{stack.learner.name}/", {name: t.clone() for name, t in stack.state().items()})
    return out


def load(site: Site, state: State) -> None:
    """Let these models stand in the population, in place: a GPU has recorded where they lie."""
    for stack in site.population.torch_stacks:
        stack.load(below(f"{stack.learner.name}/", state))
