"""FedMD (Li & Wang 2019) without its server: agree with the neighbourhood's mean on public examples.

Each round, after the supervised steps, everybody looks at the same B examples of the public pool, and takes
one step towards the mean logits of its closed neighbourhood:

    z̄_i(x) = mean_{j∈N̄(i)} z_j(x),     λ·mean over x, c of |z_i^c(x) − z̄_i^c(x)|

Exchanged: B ids and the predictions on them, B·(4 + 4C) bytes a round per directed edge. The pool is public
here, which is FedMD's premise, so its examples go by id whatever the study says of queries.

Where our setting differs: the mean is over the closed neighbourhood instead of all; there is no transfer
learning on labelled public data, since the pool has no labels. Replies are probabilities, as from everybody
else; their centred logarithms are the logits up to a constant per example, and z is centred alike on both
sides (probabilities below 1e-7 count as 1e-7). "Digest" and "revisit" are this step and the supervised ones.
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lntrust.core.errors import CannotStackError
from lntrust.core.randomness import choose, fold
from lntrust.methods.base import Method, Site, State
from lntrust.methods.dml import neighbours_mean
from lntrust.network import Questions
from lntrust.study.settings import MethodSettings, Range

_FLOOR = 1e-7
_ROUNDING = 1e-5


class FedMDSettings(MethodSettings):
    budget: int = Field(1000, ge=0, description="B, public examples per round")
    strength: Annotated[float, Range(0.1, 10.0, log=True)] = Field(1.0, ge=0)
    """λ, the weight of the step towards the mean"""


class FedMD(Method):
    about = "step towards the neighbourhood's mean logits on shared public examples"
    by_gradients = True
    settings_class = FedMDSettings
    settings: FedMDSettings

    def remarks(self, site: Site) -> list[str]:
        empty = [] if _public(site) else ["no public examples: nodes train alone"]
        return empty + super().remarks(site)

    def check(self, site: Site) -> None:
        sizes = {len(world.partition.pool) for world in site.world.worlds}
        if len(sizes) > 1 and min(sizes) < self.settings.budget:
            pools = f"pools of {min(sizes)} to {max(sizes)} examples, and a budget of {self.settings.budget}"
            raise CannotStackError(f"fedmd: {pools}, cannot be stacked; run these seeds one by one")

    def round(self, site: Site, state: State, t: int) -> State:
        state = super().round(site, state, t)
        count = min(self.settings.budget, _public(site))
        if count and len(site.network.edges) and self.settings.strength:
            self.digest(site, t, count)
        return state

    def digest(self, site: Site, t: int, count: int) -> None:
        population, edges = site.population, site.network.edges
        key = fold(site.world.seeds.roots("queries", population.device), t)
        pools = [torch.from_numpy(world.partition.pool).to(population.device) for world in site.world.worlds]
        each = [pool[choose(k[None], len(pool), count)[0]] for k, pool in zip(key, pools, strict=True)]
        drawn = torch.stack(each)
        ids = drawn.repeat_interleave(site.world.seeds.n, 0)  # the same for everybody in a world
        asks = torch.nonzero(population.takes_steps[edges[:, 0]]).flatten()
        replies = site.network.ask(Questions.of(ids, "pool"), "digest", asks)
        asker, said = edges[replies.edge, 0], centred_logits(replies.regular())
        others, answered = neighbours_mean(asker, said, replies.sound, population.n)
        d = torch.bincount(asker[replies.sound], minlength=population.n).to(said.dtype)[:, None, None]
        own = centred_logits(population.predict_all(drawn))
        strength = torch.full_like(d[:, 0, 0], self.settings.strength)
        population.descend("digest", ids, distance, ((d * others + own) / (d + 1), strength), active=answered)


def _public(site: Site) -> int:
    """How many examples are public, in the world that has the fewest."""
    return min(len(world.partition.pool) for world in site.world.worlds)


def centred_logits(probabilities: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
    """log p minus its mean over classes: the logits, up to the constant that softmax does not see."""
    log_p = probabilities.clamp(min=_FLOOR).log()
    return log_p - log_p.mean(-1, keepdim=True)


def distance(
    logits: Float[Tensor, "n B C"], mean: Float[Tensor, "n B C"], strength: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """λ · mean |z − z̄| over examples and classes, where it is more than rounding.

    The slope of |·| is ±1 however small the difference: without the limit, equal models would walk about.
    """
    away = (centred_logits(logits.softmax(-1)) - mean).abs()
    return strength * torch.where(away > _ROUNDING, away, 0.0).mean((-1, -2))
