"""Probes: what the closed neighbourhood says about every node's own validation set."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.methods.base import Site
from lntrust.network import Replies
from lntrust.network.neighbourhood import Neighbourhood


@dataclass(frozen=True)
class Probe:
    """p_j(x) for j ∈ N̄(i), x ∈ V_i. Column 0 is the node itself; who gave no sound reply is masked, and 0."""

    around: Neighbourhood
    mask: Bool[Tensor, "n D"]
    probabilities: Float[Tensor, "T D C"]
    labels: Int[Tensor, "T"]
    offsets: Int[Tensor, "n+1"]


def probe(site: Site, phase: str, held: Bool[Tensor, "E"] | None = None) -> Probe:
    """Ask everybody about V_i. Over edges where the asker holds a copy of the model, nothing travels."""
    population, around, questions = site.population, site.around, site.validation
    owner = torch.from_numpy(site.world.partition.validation.owner).to(population.device)
    shape = (len(questions.ids), around.mask.shape[1], population.classes)
    probabilities = torch.zeros(shape, dtype=population.dtype, device=population.device)
    probabilities[:, 0] = site.own_validation()  # a node needs no network for itself
    mask = torch.zeros_like(around.mask)
    asked: list[tuple[bool, Int[Tensor, "q"] | None]] = [(False, None)]  # everybody
    if held is not None:
        both = ((True, held), (False, ~held))
        asked = [(copied, torch.nonzero(some).flatten()) for copied, some in both if some.any()]
    for copied, edges in asked:
        with site.sharing.uncharged() if copied else nullcontext():
            replies = site.network.ask(questions, phase, edges)
        column = around.column[replies.edge]
        total = len(replies.question)
        of_reply = torch.repeat_interleave(column, replies.offsets.diff(), output_size=total)
        probabilities[replies.question, of_reply] = replies.probabilities
        mask |= sound_members(around, replies)
    mask[:, 0] = True
    labels = population.labels_of(owner, questions.ids)
    return Probe(around, mask, probabilities, labels, questions.offsets)


def sound_members(around: Neighbourhood, replies: Replies) -> Bool[Tensor, "n D"]:
    """Members whose reply was sound; the node itself always."""
    sound = torch.zeros(max(len(around.column), 1), dtype=torch.bool, device=around.edge.device)
    sound[replies.edge] = replies.sound
    out = sound[around.edge.clamp(min=0)] & (around.edge >= 0)
    out[:, 0] = True
    return out
