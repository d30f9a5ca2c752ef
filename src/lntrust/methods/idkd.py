"""IDKD: in-distribution knowledge distillation (Ravikumar, Saha, Aketi & Roy, TMLR 2024), by answers alone.

Nodes make their data alike by labelling public examples for each other, each only those that it takes to be
of its own distribution. At every exchange all nodes answer the same B public examples. Node j keeps

    D_j = {x : max_c p_j^c(x) > τ}

and sends its ids and soft labels to the neighbours. Node i learns, on the union of what was kept, the mean
label of those members of its closed neighbourhood that kept x, on U further examples per labelled step:

    p̄_i(x) = mean_{j∈N̄(i): x∈D_j} p_j(x);     CE(p_i, y) + λ·CE(p_i, p̄_i) on U examples of ∪_j D_j

The labels stay as they are until the next exchange. No label of a public example is needed, and no validation
label.

Exchanged: |D_j|·(4 + 4C) bytes over each edge from j, at every exchange; the pool is public and goes by id.

Compared with the abstract and the authors' code (github.com/DeepakTatachar/IDKD); no more of the paper's text
could be read. Where our setting differs:
- IDKD stands on decentralized SGD with quasi-global momentum, which shares parameters. That part is left out,
  so every architecture takes part, and what the labels are worth shows by itself.
- Its public data are another dataset; its detector of foreign examples is calibrated on an ROC curve or, by
  default in the code, fixed at τ = .98, as here. Our pool has the nodes' classes: no example is foreign by
  nature, only more or less like what a node has seen, and τ is a setting.
- Where several kept an example the code takes the label of the one with most data of the class it names; the
  abstract averages, and so do we. The code exchanges every 5 epochs in the last fifth of training, this every
  `every` rounds of Stage 2.
"""

import zlib
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.errors import CannotStackError
from lntrust.core.losses import cross_entropy
from lntrust.core.randomness import choose, fold, uniform
from lntrust.core.segments import sum_by
from lntrust.methods.base import Method, Site, State
from lntrust.study.settings import MethodSettings, Range

_DRAWS = zlib.crc32(b"idkd")  # what is drawn for, so that nothing else draws the same


class IDKDSettings(MethodSettings):
    budget: int = Field(1000, ge=0, description="B, public examples per exchange")
    threshold: Annotated[float, Range(0.3, 0.99)] = Field(0.98, ge=0, lt=1)
    """τ, how sure a node must be of an example to count it as of its own distribution"""
    strength: Annotated[float, Range(0.1, 10.0, log=True)] = Field(1.0, ge=0)
    """λ, the weight of the neighbourhood's labels"""
    unlabelled: int = Field(64, ge=1, description="U, examples with such labels per step")
    every: Annotated[int, Range(choices=(1, 5, 10, 50))] = Field(10, ge=1)
    """rounds between two exchanges"""


class IDKD(Method):
    about = "label public examples for the neighbours, each those that it is sure of; learn the mean label"
    by_gradients = True
    settings_class = IDKDSettings
    settings: IDKDSettings

    def remarks(self, site: Site) -> list[str]:
        return ["no public examples: nodes train alone"] * (not _public(site)) + super().remarks(site)

    def check(self, site: Site) -> None:
        sizes = {len(world.partition.pool) for world in site.world.worlds}
        if len(sizes) > 1 and min(sizes) < self.settings.budget:
            pools = f"pools of {min(sizes)} to {max(sizes)} examples, and a budget of {self.settings.budget}"
            raise CannotStackError(f"idkd: {pools}, cannot be stacked; run these seeds one by one")

    def round(self, site: Site, state: State, t: int) -> State:
        count = min(self.settings.budget, _public(site))
        if not count or not self.settings.strength:
            return super().round(site, state, t)
        if (t - 1) % self.settings.every == 0:
            state = self.exchange(site, t, count)
        kept, population = state["kept"], site.population
        size = kept.sum(1)
        order = (~kept).long().argsort(dim=1, stable=True)  # what is kept comes first
        weight = self.settings.strength * (size > 0).to(population.dtype)
        keys = fold(fold(site.world.seeds.keys("queries", population.device), _DRAWS), t)
        for k, batch in enumerate(site.labelled.round(t - 1)):
            drawn = uniform(fold(keys, k), self.settings.unlabelled)
            place = order.gather(1, (drawn * size[:, None]).long())
            labels = state["labels"].gather(1, place[..., None].expand(-1, -1, population.classes))
            more = state["examples"].gather(1, place)
            population.step(batch, homogenised, (labels, weight), more=more)
        return state

    def exchange(self, site: Site, t: int, count: int) -> State:
        """Everybody labels the same public examples; who is sure tells the neighbours."""
        population, n = site.population, site.population.n
        key = fold(fold(site.world.seeds.roots("queries", population.device), _DRAWS), t)
        pools = [torch.from_numpy(world.partition.pool).to(population.device) for world in site.world.worlds]
        each = [pool[choose(k[None], len(pool), count)[0]] for k, pool in zip(key, pools, strict=True)]
        own = population.predict_all(torch.stack(each))
        said = site.sharing.heard(own)
        mine, sure = (p.amax(-1) > self.settings.threshold for p in (own, said))
        over = torch.nonzero(population.takes_steps[site.network.edges[:, 1]]).flatten()
        sender, receiver = site.network.edges[over].unbind(1)
        self.charge(site, over, sure.sum(1)[sender])
        labels = torch.where(sure[..., None], said, 0.0).flatten(1)
        total = sum_by(receiver, labels[sender], n).view_as(own) + torch.where(mine[..., None], own, 0.0)
        votes = sum_by(receiver, sure[sender].to(own.dtype), n) + mine
        return {
            "examples": torch.stack(each).repeat_interleave(site.world.seeds.n, 0),
            "labels": total / votes.clamp(min=1)[..., None],
            "kept": votes > 0,
        }

    def charge(self, site: Site, over: Int[Tensor, "q"], size: Int[Tensor, "q"]) -> None:
        """Ids and soft labels of so many examples over each of these edges; nothing for none."""
        for k in sorted(set(size.tolist()) - {0}):
            ids = torch.empty(1, k, dtype=torch.uint32)
            labels = torch.empty(1, k, site.population.classes, dtype=torch.float32)
            site.sharing.charge(over[size == k], {"ids": ids, "labels": labels}, "reply", "labels")


def _public(site: Site) -> int:
    """How many examples are public, in the world that has the fewest."""
    return min(len(world.partition.pool) for world in site.world.worlds)


def homogenised(
    logits: Float[Tensor, "n B+U C"],
    labels: Int[Tensor, "n B"],
    said: Float[Tensor, "n U C"],
    weight: Float[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """CE on the first B, plus weight · CE to the soft labels on the others."""
    B = labels.shape[1]
    soft = -(said * logits[:, B:].log_softmax(-1)).sum(-1).mean(-1)
    return cross_entropy(logits[:, :B], labels) + weight * soft
