"""Probes: what the closed neighbourhood says about every node's own validation set."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.methods.base import Site
from lntrust.network import Questions, Replies
from lntrust.trust.neighbourhood import Neighbourhood


@dataclass(frozen=True)
class Probe:
    """p_j(x) for j ∈ N̄(i), x ∈ V_i. Column 0 is the node itself; who was not heard is masked, and 0."""

    around: Neighbourhood
    mask: Bool[Tensor, "n D"]
    probabilities: Float[Tensor, "T D C"]
    labels: Int[Tensor, "T"]
    offsets: Int[Tensor, "n+1"]


def probe(site: Site, phase: str, held: Bool[Tensor, "E"] | None = None) -> Probe:
    """Ask everybody about V_i. Over edges where the asker holds a copy of the model, nothing travels."""
    population, network = site.population, site.network
    around = Neighbourhood.of(network.edges, population.n)
    questions = Questions.ragged(site.world.partition.validation, "validation", population.device)
    owner = torch.from_numpy(site.world.partition.validation.owner).to(population.device)
    shape = (len(questions.ids), around.mask.shape[1], population.classes)
    probabilities = torch.zeros(shape, dtype=population.dtype, device=population.device)
    probabilities[:, 0] = population.predict(owner, questions.ids)  # a node needs no network for itself
    column = columns(around, len(network.edges))
    mask = torch.zeros_like(around.mask)
    asked = torch.zeros(len(network.edges), dtype=torch.bool, device=population.device)
    for copied, edges in ((True, held), (False, ~asked if held is None else ~held)):
        if edges is None or not bool(edges.any()):
            continue
        with network.uncharged() if copied else nullcontext():
            replies = network.ask(questions, phase, torch.nonzero(edges).flatten())
        of_reply = torch.repeat_interleave(column[replies.edge], replies.offsets.diff())
        probabilities[replies.question, of_reply] = replies.probabilities
        mask |= heard(around, replies)
    mask[:, 0] = True
    return Probe(around, mask, probabilities, population.labels[questions.ids], questions.offsets)


def columns(around: Neighbourhood, edges: int) -> Int[Tensor, "E"]:
    """The column of each edge's answerer in its asker's row."""
    out = torch.zeros(edges, dtype=torch.int64, device=around.edge.device)
    node, column = torch.nonzero(around.edge >= 0, as_tuple=True)
    out[around.edge[node, column]] = column
    return out


def heard(around: Neighbourhood, replies: Replies) -> Bool[Tensor, "n D"]:
    """Members whose reply was sound; the node itself always."""
    count = int(around.edge.max()) + 1 if around.edge.numel() else 0
    sound = torch.zeros(max(count, 1), dtype=torch.bool, device=around.edge.device)
    sound[replies.edge] = replies.sound
    out = sound[around.edge.clamp(min=0)] & (around.edge >= 0)
    out[:, 0] = True
    return out
