"""Centralized training: one model per kind of learner, on everybody's training data. A reference.

No node could do this, so nothing is counted. It is no upper bound either: one model for all ignores
that each node's test data follow the node's own skew. `label_prior`, reported beside it, multiplies
each answer by the node's class distribution, p_i(x) ∝ w̃_i · p(x), where w̃_i counts one more example of
every class: a class that a small node has not met yet may still come.

Trained by the study's SGD with larger batches until `patience` epochs in a row have not lowered the mean
loss by `tolerance` (relative), or `epochs` are over.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lntrust.learners import Labelled, Population
from lntrust.methods.base import Deployment, Method, Site, State, below
from lntrust.study.settings import MethodSettings
from lntrust.world import Ragged


class CentralizedSettings(MethodSettings):
    batch: int = Field(256, ge=1, description="examples per step")
    epochs: int = Field(200, ge=1, description="passes over the data at most")
    tolerance: float = Field(1e-3, ge=0, description="an epoch that lowers the loss by less gains nothing")
    patience: int = Field(10, ge=1, description="stop after so many epochs in a row without a gain")


class Centralized(Method):
    about = "one model per kind of learner on everybody's training data (a reference, not a bound)"
    settings_class = CentralizedSettings
    settings: CentralizedSettings
    _trained: list[Population] | None = None  # one a world, kept between evaluations; resumed runs load them

    def start(self, site: Site) -> State:
        state: State = {}
        self._trained = []
        for world, (central, everything) in enumerate(self._central(site)):
            central.refit(everything)
            if central.torch_stacks:
                self._train(central, everything)
            self._trained.append(central)
            state |= {f"central/{world}/{name}": tensor for name, tensor in central.state().items()}
        return state

    def round(self, site: Site, state: State, t: int) -> State:
        return state  # the central model is done; the nodes' own models stay where Stage 1 left them

    def deploy(self, site: Site, state: State) -> Deployment:
        if self._trained is None:
            self._trained = [central for central, _ in self._central(site)]
            for number, central in enumerate(self._trained):
                central.load(below(f"central/{number}/", state))
        trained, population = self._trained, site.population
        kinds = torch.from_numpy(site.world.kinds).to(population.device).view(len(trained), -1)

        def answer(examples: Tensor) -> Float[Tensor, "n U C"]:
            each = examples.expand(len(trained), -1)
            parts = zip(trained, each, kinds, strict=True)
            return torch.cat([central.predict_all(ids)[kind] for central, ids, kind in parts])

        plain = replace(Deployment.alone(site.population), answer=answer)
        p, w = site.world.partition, site.world.class_distribution
        size = (p.train.lengths + p.validation.lengths)[:, None]
        smoothed = (w * size + 1) / (size + w.shape[1])
        prior = torch.from_numpy(smoothed).to(population.device, population.dtype)
        return replace(plain, variants={"label_prior": replace(plain, prior=prior)})

    def _central(self, site: Site) -> Iterator[tuple[Population, Ragged]]:
        """Of each world, a population with one node per kind of learner, and all data for each of them."""
        world, lists = site.world, site.labelled.lists
        own = {"batch": self.settings.batch, "schedule": "every_node", "steps": 1}
        training = site.population.training.model_copy(update=own)
        for number in range(len(world.worlds)):
            nodes = world.nodes_of(number)
            union = lists.values[lists.offsets[nodes.start] : lists.offsets[nodes.stop]]
            central = site.population.one_of_each(training, number)
            yield central, Ragged.of([union] * central.n)

    def _train(self, central: Population, everything: Ragged) -> None:
        labelled = Labelled(
            everything, central.labels, central.training, central.seeds, stage=3, device=central.device
        )
        steps = -(-len(everything[0]) // self.settings.batch)
        best, waited = torch.inf, 0
        for epoch in range(self.settings.epochs):
            rounds = range(epoch * steps, (epoch + 1) * steps)
            losses = [central.step(batch) for t in rounds for batch in labelled.round(t)]
            loss = float(torch.stack(losses).nanmean())
            gained = loss < best * (1 - self.settings.tolerance)
            best, waited = (loss, 0) if gained else (best, waited + 1)
            if waited == self.settings.patience:
                return
