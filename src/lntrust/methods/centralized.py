"""Centralized training: one model per kind of learner, on everybody's training data. A reference.

No node could do this, so nothing is counted. It is no upper bound either: one model for all ignores
that each node's test data follow the node's own skew. `label_prior`, reported beside it, multiplies
each answer by the node's class distribution, p_i(x) ∝ w̃_i · p(x), where w̃_i counts one more example of
every class: a class that a small node has not met yet may still come.

Trained by the study's SGD with larger batches until `patience` epochs in a row have not lowered the mean
loss by `tolerance` (relative), or `epochs` are over.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.learners import Labelled, Population
from lntrust.methods.base import Deployment, Method, Site, State
from lntrust.settings import MethodSettings
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
    _trained: Population | None = None  # kept between evaluations; a resumed run loads it again

    def start(self, site: Site) -> State:
        central, everything = self._central(site)
        central.refit(everything)
        if central.torch_stacks:
            self._train(central, everything, site)
        self._trained = central
        return {f"central/{name}": tensor for name, tensor in central.state().items()}

    def round(self, site: Site, state: State, t: int) -> State:
        return state  # the central model is done; the nodes' own models stay where Stage 1 left them

    def deploy(self, site: Site, state: State) -> Deployment:
        if self._trained is None:
            self._trained, _ = self._central(site)
            self._trained.load({n.removeprefix("central/"): t for n, t in state.items()})
        central = self._trained
        kind_of = torch.from_numpy(site.world.kinds).to(central.device)

        def answer(examples: Int[Tensor, "U"]) -> Float[Tensor, "n U C"]:
            return central.predict_all(examples)[kind_of]

        plain = replace(Deployment.alone(site.population), answer=answer)
        p, w = site.world.partition, site.world.class_distribution
        size = (p.train.lengths + p.validation.lengths)[:, None]
        smoothed = (w * size + 1) / (size + w.shape[1])
        prior = torch.from_numpy(smoothed).to(central.device, central.dtype)
        return replace(plain, variants={"label_prior": replace(plain, prior=prior)})

    def _central(self, site: Site) -> tuple[Population, Ragged]:
        """A population with one node per kind of learner, and all data for each of them."""
        world = site.world
        training = site.population.training.model_copy(
            update={"batch": self.settings.batch, "schedule": "every_node", "steps": 1}
        )
        learners = world.study.population.learners
        central = site.population.sibling(learners, np.arange(len(learners)), training)
        union = site.labelled.lists.values
        return central, Ragged.of([union] * len(learners))

    def _train(self, central: Population, everything: Ragged, site: Site) -> None:
        labelled = Labelled(
            everything,
            central.labels,
            central.training,
            site.world.seed,
            stage=3,
            device=central.device,
        )
        steps = -(-len(everything[0]) // self.settings.batch)
        best, waited = torch.inf, 0
        for epoch in range(self.settings.epochs):
            losses = [
                central.step(batch) for t in range(steps) for batch in labelled.round(epoch * steps + t)
            ]
            loss = float(torch.stack(losses).nanmean())
            gained = loss < best * (1 - self.settings.tolerance)
            best, waited = (loss, 0) if gained else (best, waited + 1)
            if waited == self.settings.patience:
                return
