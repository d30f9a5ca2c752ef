"""FedMD (Li & Wang 2019) without its server: agree with the neighbourhood's mean on public examples.

Each round everybody looks at the same B examples of the public pool and takes one pass over them, in batches,
towards the mean logits that its closed neighbourhood had before ("digest"); then come the supervised steps
("revisit"):

    z̄_i(x) = mean_{j∈N̄(i)} z_j(x),     λ·mean over x of Σ_c |z_i^c(x) − z̄_i^c(x)|

Before the first round there is a transfer phase: some rounds in which the same exchange gives labels. Those
that more than half of the closed neighbourhood give are trained on, with cross-entropy.

Exchanged: B ids and the predictions on them, B·(4 + 4C) bytes per directed edge for every round of either
phase. The pool is public here, which is FedMD's premise, so its examples go by id whatever the study says of
queries.

Checked against the authors' code (diogenes0319/FedMD_clean). The same: fresh public examples every round, the
mean of logits, the absolute distance, batches of 256, first digest and then revisit. Where our setting
differs:

- The mean is over the closed neighbourhood instead of all.
- The public set has no labels, so the transfer phase, which there comes first of all, follows Stage 1 and has
  agreed labels.
- They average |·| over classes, too, and use Adam, which does not see such a factor. Under SGD it would
  divide the step by C, so we sum over classes.
- Replies are probabilities, as from everybody else; their centred logarithms are the logits up to a constant
  per example, and z is centred alike on both sides (probabilities below 1e-7 count as 1e-7).
"""

from collections.abc import Callable
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from lntrust.core.errors import CannotStackError
from lntrust.core.randomness import choose, fold
from lntrust.methods.base import Method, Site, State
from lntrust.methods.dml import neighbours_mean
from lntrust.network import Questions
from lntrust.study.settings import MethodSettings, Range

_FLOOR = 1e-7
_ROUNDING = 1e-5
Of = Callable[[Float[Tensor, "*s C"]], Float[Tensor, "*s C"]]  # what is averaged


class FedMDSettings(MethodSettings):
    budget: int = Field(1000, ge=0, description="B, public examples per round")
    batch: int = Field(256, ge=1, description="of them in a step: a round takes B/batch steps")
    strength: Annotated[float, Range(0.003, 0.3, log=True)] = Field(0.025, ge=0)
    """λ, the weight of a step towards the mean"""
    transfer: Annotated[int, Range(choices=(0, 10, 40))] = Field(10, ge=0)
    """rounds of the transfer phase"""


class FedMD(Method):
    about = "approach the neighbourhood's mean logits on shared public examples"
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
        count = min(self.settings.budget, _public(site))
        if count and len(site.network.edges):
            for k in range(self.settings.transfer if t == 1 else 0):
                self.transfer(site, k, count)
            if self.settings.strength:
                self.digest(site, t, count)
        return super().round(site, state, t)  # revisit

    def transfer(self, site: Site, k: int, count: int) -> None:
        """Train on the public examples whose label more than half of the closed neighbourhood agree on."""
        keys = fold(fold(site.world.seeds.roots("queries", site.population.device), 0), k)
        ids, share, answered = self._neighbourhoods(site, "transfer", keys, count, votes)
        most, labels = share.max(-1)
        for batch in self._batches(count):
            kept = most[:, batch] > 0.5
            goal = (labels[:, batch], kept.to(share.dtype))
            site.population.descend(
                "transfer", ids[:, batch], agreed_loss, goal, active=answered & kept.any(-1)
            )

    def digest(self, site: Site, t: int, count: int) -> None:
        """One pass towards the mean logits."""
        keys = fold(site.world.seeds.roots("queries", site.population.device), t)
        ids, mean, answered = self._neighbourhoods(site, "digest", keys, count, centred_logits)
        strength = torch.full_like(mean[:, 0, 0], self.settings.strength)
        for batch in self._batches(count):
            goal = (mean[:, batch], strength)
            site.population.descend("digest", ids[:, batch], distance, goal, active=answered)

    def _batches(self, count: int) -> list[slice]:
        return [slice(k, k + self.settings.batch) for k in range(0, count, self.settings.batch)]

    def _neighbourhoods(
        self, site: Site, phase: str, keys: Int[Tensor, "worlds"], count: int, of: Of
    ) -> tuple[Int[Tensor, "n B"], Float[Tensor, "n B C"], Bool[Tensor, "n"]]:
        """B public examples, the mean of this function of p_j over j ∈ N̄(i), and who got any answer."""
        population, edges = site.population, site.network.edges
        pools = [torch.from_numpy(world.partition.pool).to(population.device) for world in site.world.worlds]
        each = [pool[choose(k[None], len(pool), count)[0]] for k, pool in zip(keys, pools, strict=True)]
        drawn = torch.stack(each)
        ids = drawn.repeat_interleave(site.world.seeds.n, 0)  # the same for everybody in a world
        asks = torch.nonzero(population.takes_steps[edges[:, 0]]).flatten()
        replies = site.network.ask(Questions.of(ids, "pool"), phase, asks)
        asker = edges[replies.edge, 0]
        others, answered = neighbours_mean(asker, of(replies.regular()), replies.sound, population.n)
        d = torch.bincount(asker[replies.sound], minlength=population.n).to(others.dtype)[:, None, None]
        return ids, (d * others + of(population.predict_all(drawn))) / (d + 1), answered


def _public(site: Site) -> int:
    """How many examples are public, in the world that has the fewest."""
    return min(len(world.partition.pool) for world in site.world.worlds)


def centred_logits(probabilities: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
    """log p minus its mean over classes: the logits, up to the constant that softmax does not see."""
    log_p = probabilities.clamp(min=_FLOOR).log()
    return log_p - log_p.mean(-1, keepdim=True)


def votes(probabilities: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
    """1 for the likeliest class, 0 for the others."""
    return one_hot(probabilities.argmax(-1), probabilities.shape[-1]).to(probabilities.dtype)


def agreed_loss(
    logits: Float[Tensor, "n B C"], labels: Int[Tensor, "n B"], kept: Float[Tensor, "n B"]
) -> Float[Tensor, "n"]:
    """Cross-entropy, mean over the kept examples."""
    true = logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return -(true * kept).sum(-1) / kept.sum(-1).clamp(min=1)


def distance(
    logits: Float[Tensor, "n B C"], mean: Float[Tensor, "n B C"], strength: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """λ · mean over examples of Σ_c |z − z̄|, where it is more than rounding.

    The slope of |·| is ±1 however small the difference: without the limit, equal models would walk about.
    """
    away = (centred_logits(logits.softmax(-1)) - mean).abs()
    return strength * torch.where(away > _ROUNDING, away, 0.0).sum(-1).mean(-1)
