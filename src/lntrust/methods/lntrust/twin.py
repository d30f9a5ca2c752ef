"""Looking back: a twin of each model that never learns from neighbours shows what distillation has done.

The twin takes the same batches under the same dropout masks. At a refresh both are compared on the node's
validation set, example by example. Where the twin is better beyond reasonable doubt, the model takes its
parameters and momentum: what was distilled is undone, and from then on the node distils half as strongly.
Nothing is exchanged for it. Learners that are refitted have no twin: their pseudo-labels are dropped anyway
at the next refit.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.learners import Batch
from lntrust.methods.base import Site, State
from lntrust.trust.gates import better


class Twin:
    """Kept beside one run of LNTrust; all that it knows is in `state()`."""

    def __init__(self, site: Site, state: State | None = None) -> None:
        like = site.population
        self._twin = like.twin()
        self._twin.load(like.state() if state is None else state)

    def state(self) -> State:
        return self._twin.state()

    def step(self, batch: Batch) -> None:
        self._twin.step(batch)

    def is_better(self, site: Site) -> Float[Tensor, "n"]:
        """The probability that the twin is the better model, by who is right on which validation example."""
        questions = site.validation
        owner = torch.from_numpy(site.world.partition.validation.owner).to(questions.ids.device)
        labels = site.population.labels_of(owner, questions.ids)
        theirs = self._twin.answer(site.own_validation_plan).argmax(-1) == labels
        ours = site.own_validation().argmax(-1) == labels
        chance = better(theirs, ours, questions.offsets)
        return torch.where(site.population.takes_steps, chance, 0.0)

    def undo(self, site: Site, nodes: Bool[Tensor, "n"]) -> None:
        """Put the twin in the place of these nodes' models."""
        for stack, twin in zip(site.population.torch_stacks, self._twin.torch_stacks, strict=True):
            which = nodes[stack.nodes]
            for name, own in stack.state().items():
                turn = which.view(-1, *[1] * (own.ndim - 1))
                own.copy_(torch.where(turn, twin.state()[name], own))
