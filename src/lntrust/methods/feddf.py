"""FedDF (Lin, Kong, Stich & Jaggi, NeurIPS 2020) without its server: distil the neighbours' plain ensemble.

Each round, after the supervised steps, the neighbours say what they predict for S·B examples of the public
pool, the same for everybody. The node then takes S steps, each on B of them, towards what they say on
average:

    p̄_i(x) = softmax(mean_{j∈N(i)} z_j(x)),     λ·mean over x of KL(p̄_i(x) ‖ p_i(x)),   temperature 1

or, with `average = "probabilities"`, p̄_i = mean_j p_j. No trust, no gate, no filter; each node deploys its
own model.

Exchanged: S·B ids and the predictions on them, S·B·(4 + 4C) bytes a round per directed edge. The pool is
public here, as FedDF's unlabelled data are, so its examples go by id whatever the study says of queries.

Where our setting differs: FedDF's server distils the ensemble of all clients into one model, which begins at
the mean of their parameters, by Adam (.001, cosine) until validation accuracy has not risen for 1,000 of at
most 10,000 steps, and sends it to all. Here each node distils its neighbours into its own model, by the SGD
of its other steps, S of them a round, with weight λ; both can be tuned. No parameters travel. Replies are
probabilities; their centred logarithms are the logits up to a constant per example (below 1e-7 they count as
1e-7).
"""

from typing import Annotated, Literal

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from lntrust.core.errors import CannotStackError
from lntrust.core.randomness import choose, fold
from lntrust.methods.base import Method, Site, State
from lntrust.methods.dml import neighbours_mean
from lntrust.methods.fedmd import centred_logits
from lntrust.network import Questions
from lntrust.study.settings import MethodSettings, Range
from lntrust.trust.distil import soft_loss


class FedDFSettings(MethodSettings):
    strength: Annotated[float, Range(0.03, 3.0, log=True)] = Field(0.1, ge=0)
    """λ, the weight of a step towards the ensemble (as published there is none: no labels stand beside it)"""
    steps: Annotated[int, Range(choices=(1, 2, 5, 10))] = Field(5, ge=1)
    """S, steps of distillation per round"""
    batch: int = Field(128, ge=1, description="B, public examples per step")
    average: Annotated[Literal["logits", "probabilities"], Range(choices=("logits", "probabilities"))] = (
        "logits"
    )
    """what is averaged over the neighbours; logits as published"""


class FedDF(Method):
    about = "distil the plain mean of the neighbours' answers on public examples"
    by_gradients = True
    settings_class = FedDFSettings
    settings: FedDFSettings

    def remarks(self, site: Site) -> list[str]:
        empty = ["no public examples: nodes train alone"] * (0 in _pools(site))
        return empty + super().remarks(site)

    def check(self, site: Site) -> None:
        sizes, wanted = _pools(site), self.settings.steps * self.settings.batch
        if len(sizes) > 1 and min(sizes) < wanted:
            pools = f"pools of {min(sizes)} to {max(sizes)} examples, and {wanted} a round"
            raise CannotStackError(f"feddf: {pools}, cannot be stacked; run these seeds one by one")

    def round(self, site: Site, state: State, t: int) -> State:
        site.learn(t)
        if min(_pools(site)) and len(site.network.edges) and self.settings.strength:
            self.distil(site, t)
        return state

    def distil(self, site: Site, t: int) -> None:
        """Ask once, as the models stand now, and take all steps."""
        population, edges = site.population, site.network.edges
        ids = self.drawn(site, t)
        asks = torch.nonzero(population.takes_steps[edges[:, 0]]).flatten()
        replies = site.network.ask(Questions.of(ids, "pool"), "distil", asks)
        asker, said, logits = edges[replies.edge, 0], replies.regular(), self.settings.average == "logits"
        if logits:
            said = centred_logits(said)
        mean, answered = neighbours_mean(asker, said, replies.sound, population.n)
        p_bar = mean.softmax(-1) if logits else mean
        parts = (torch.split(each, self.settings.batch, 1) for each in (ids, p_bar))
        for some, towards in zip(*parts, strict=True):
            omega = torch.ones_like(towards[..., 0])
            scale = omega[:, 0] * (self.settings.strength / some.shape[1])
            population.descend("distil", some, soft_loss, (towards, omega, scale), active=answered)

    def drawn(self, site: Site, t: int) -> Int[Tensor, "n S*B"]:
        """Public examples, the same for everybody in a world."""
        seeds, device, s = site.world.seeds, site.population.device, self.settings
        each = []
        for world, key in zip(site.world.worlds, fold(seeds.roots("queries", device), t), strict=True):
            pool = torch.from_numpy(world.partition.pool).to(device)
            each.append(pool[choose(key[None], len(pool), min(s.steps * s.batch, len(pool)))[0]])
        return torch.stack(each).repeat_interleave(seeds.n, 0)


def _pools(site: Site) -> set[int]:
    """How many examples are public, in each world."""
    return {len(world.partition.pool) for world in site.world.worlds}
