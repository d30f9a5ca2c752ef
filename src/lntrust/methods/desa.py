"""DeSA: synthetic anchors (Huang et al., ICML 2024), on features.

Once, between the stages, every node condenses its labelled data into A anchors per class, sends them to its
neighbours, and averages what arrives with its own, class by class and index by index. The averages S_i travel
once more. Every round neighbours send their logits on them, z̄_i(s) is the mean of those, and each supervised
step descends

    CE on D_i ∪ S_i + λ_KD·[κT²·KL(softmax(z̄/T) ‖ softmax(z/T)) + (1 − κ)·CE] on S_i + λ_REG·SupCon(D_i, S_i)

CE on the union weighs batch and anchors by |D_i| and |S_i|. SupCon (Khosla et al. 2020, temperature τ) pulls
the representation of an example towards those of its class's anchors, which stand still; a representation is
the input of the last linear layer, so with a linear head nothing can move and the term is left out.

Condensing is Zhao & Bilen's distribution matching: for random embeddings f_R(x) = ReLU(xR), R ~ N(0, 1/D)
drawn afresh at every step, the anchors S_c of class c descend

    Σ_c ‖ mean_{x∈D_c} f_R(x) − mean_{s∈S_c} f_R(s) ‖²

They start as noise with the mean and the spread of the node's inputs, so no example is ever sent.

Exchanged, per directed edge: the anchors of the classes that the sender has, twice, inside one architecture
(4·A·D + 2 bytes a class); then each round 4·C bytes for each anchor, between all torch learners.

Where our setting differs: DeSA makes images; ours works from frozen features, so anchors live in each
architecture's own inputs and are shared inside it. Across architectures a neighbour sends its logits on its
own anchor of the same class and index. With raw images at hand the pixel version is the faithful one. Each
step sees `batch` of the anchors, drawn at random. λ_REG is 1, as in the authors' code; λ_KD is 1 there and
0.1 here. At high temperature the soft term is κ/2C·‖z − z̄‖², so its curvature is κλ_KD‖x‖²/C, and ‖x‖² is
several hundred for features that nothing normalises. Two neighbours that know only each other then swap
places and, with momentum, overshoot more every round. At C = 10 the published 1 diverges on sparse graphs;
with C = 100 the curvature is a tenth, and it does not.
"""

import hashlib
import math
from itertools import groupby
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.core.randomness import Seeds, fold, generator, normal, stream_key
from lntrust.core.segments import segment_mean, sum_by
from lntrust.learners.training import Stack
from lntrust.methods.base import Method, Site, State, random_order
from lntrust.methods.sharing import subgraphs
from lntrust.study.settings import MethodSettings, Range
from lntrust.world import Ragged


class DeSASettings(MethodSettings):
    per_class: int = Field(10, ge=1, description="A, anchors per class")
    batch: int = Field(64, ge=1, description="anchors in each step")
    kd: Annotated[float, Range(0.01, 1.0, log=True)] = Field(0.1, ge=0)
    """λ_KD; 1 as published, which can diverge on a sparse graph"""
    regulariser: float = Field(1.0, ge=0, description="λ_REG, weight of SupCon; no effect on linear heads")
    temperature: float = Field(20.0, gt=0, description="T of the logits that are distilled")
    soft_share: float = Field(0.9, ge=0, le=1, description="κ, the soft part of distillation")
    contrast_temperature: float = Field(0.07, gt=0, description="τ of SupCon")
    condense_steps: int = Field(1000, ge=0, description="steps of distribution matching")
    condense_lr: float = Field(1.0, gt=0, description="its learning rate")
    condense_momentum: float = Field(0.5, ge=0, lt=1, description="its momentum")
    condense_width: int = Field(128, ge=1, description="width of the random embeddings")
    condense_examples: int = Field(256, ge=1, description="real examples per class at most")


class DeSA(Method):
    about = "learn from synthetic anchors that neighbours average, and from their logits on them"
    by_gradients = True
    settings_class = DeSASettings
    settings: DeSASettings

    # -- once: anchors ----------------------------------------------------------------------------

    def start(self, site: Site) -> State:
        """S_i: the mean over the members of the closed neighbourhood that have the class."""
        population, lists, A = site.population, site.labelled.lists, self.settings.per_class
        has = torch.zeros(population.n, population.classes, dtype=torch.bool, device=population.device)
        state: State = {}
        for subgraph in subgraphs(site):
            stack, edges, sender = subgraph.stack, subgraph.edges, subgraph.sender
            anchors, mine = condense(stack, lists, population.labels, self.settings, site.world.seeds)
            counts, sums = (anchors.new_zeros(population.n, *part.shape[1:]) for part in (mine, anchors))
            counts[stack.nodes], sums[stack.nodes] = mine.to(anchors.dtype), anchors * mine[..., None, None]
            self._charge(site, edges, A * (counts[sender] > 0).sum(1), anchors.shape[-1], "anchors")
            ones = anchors.new_ones(len(edges))
            with site.sharing.uncharged():  # charged above: nobody sends anchors of classes it does not have
                total = (counts + site.sharing.average(edges, ones, counts, "anchors"))[stack.nodes]
                around = site.sharing.average(edges, ones, sums.flatten(1), "anchors").view_as(sums)
            has[stack.nodes] = total > 0
            mean = (sums + around)[stack.nodes] / total.clamp(min=1)[..., None, None]
            state[f"anchors/{stack.learner.name}"] = mean
            self._charge(site, edges, A * has[sender].sum(1), anchors.shape[-1], "average")
        return state | {"has": has}

    def _charge(
        self, site: Site, edges: Int[Tensor, "q"], rows: Int[Tensor, "q"], width: int, phase: str
    ) -> None:
        """So many rows of numbers over each edge: logits on anchors, or anchors and their classes."""
        empty = torch.empty(1, dtype=site.population.dtype, device=edges.device)
        for m in sorted(set(rows.tolist()) - {0}):
            numbers, logits = empty.expand(1, m, width), phase == "logits"
            classes = empty.to(torch.int16).expand(1, m // self.settings.per_class)
            message = {"logits": numbers} if logits else {"anchors": numbers, "classes": classes}
            site.sharing.charge(edges[rows == m], message, "reply" if logits else "anchors", phase)

    # -- each round -------------------------------------------------------------------------------

    def round(self, site: Site, state: State, t: int) -> State:
        population, C, A = site.population, site.population.classes, self.settings.per_class
        has = state["has"].repeat_interleave(A, 1)  # of every anchor
        targets, answered = self.mean_logits(site, state)
        share = (has.sum(1) / (has.sum(1) + site.labelled.sizes)).to(population.dtype)
        labels = torch.arange(C, device=population.device).repeat_interleave(A).expand(population.n, -1)
        for k, batch in enumerate(site.labelled.round(t - 1)):
            # Of those that the node has; others fill up where these are too few.
            pick = random_order(site.world.seeds, "anchors", has, 2, t, k)[:, : self.settings.batch]
            row = torch.arange(population.n, device=pick.device)[:, None]
            parts = [each[row, pick] for each in (labels, has, targets, answered)]
            inputs = {
                stack.learner.name: _anchors(stack, state)[row[: len(stack.nodes)], pick[stack.nodes]]
                for stack in population.torch_stacks
            }
            embed = self.settings.regulariser > 0
            population.step(batch, self.loss, (*parts, share), inputs=inputs, embed=embed)
        return state

    def mean_logits(self, site: Site, state: State) -> tuple[Float[Tensor, "n CA C"], Bool[Tensor, "n CA"]]:
        """z̄_i on node i's anchors, and on which of them any neighbour has answered."""
        population, edges = site.population, site.network.edges
        has = state["has"].repeat_interleave(self.settings.per_class, 1)
        total = torch.zeros(*has.shape, population.classes, dtype=population.dtype, device=has.device)
        count = torch.zeros_like(total[..., 0])
        own = torch.zeros_like(total)  # every node's logits on its own anchors

        def add(to: Int[Tensor, "q"], logits: Float[Tensor, "q CA C"], use: Bool[Tensor, "q CA"]) -> None:
            use = use & logits.isfinite().all(-1)  # a neighbour whose model has broken does not count
            said = torch.where(use[..., None], logits, 0.0).flatten(1)
            total.add_(sum_by(to, said, population.n).view_as(total))
            count.add_(sum_by(to, use.to(count.dtype), population.n))

        across = population.takes_steps[edges].all(1)
        for subgraph in subgraphs(site):
            stack, sender, receiver = subgraph.stack, subgraph.sender, subgraph.receiver
            x, k = _anchors(stack, state), torch.arange(len(stack.nodes), device=has.device)
            own[stack.nodes] = stack.logits_of(k, x, k)
            self._charge(site, subgraph.edges, has[receiver].sum(1), population.classes, "logits")
            of, about = torch.searchsorted(stack.nodes, torch.stack([sender, receiver]))
            add(receiver, stack.logits_of(of, x, about), has[receiver])
            across[subgraph.edges] = False
        sender, receiver = edges[across].unbind(1)
        over = torch.nonzero(across).flatten()
        self._charge(site, over, has[sender].sum(1), population.classes, "logits")
        add(receiver, own[sender], has[sender] & has[receiver])
        return total / count.clamp(min=1)[..., None], count > 0

    # -- the loss ---------------------------------------------------------------------------------

    def loss(
        self,
        logits: Float[Tensor, "n B+U C"],
        labels: Int[Tensor, "n B"],
        of_anchor: Int[Tensor, "n U"],
        use: Bool[Tensor, "n U"],
        teacher: Float[Tensor, "n U C"],
        answered: Bool[Tensor, "n U"],
        share: Float[Tensor, "n"],
        embedding: Float[Tensor, "n B+U E"] | None = None,
    ) -> Float[Tensor, "n"]:
        """The three terms, without anchors that the node does not have or that no neighbour answered on."""
        s, B = self.settings, labels.shape[1]
        z, soft = logits[:, B:], use & answered
        log_p = z.log_softmax(-1).gather(-1, of_anchor[..., None]).squeeze(-1)
        on_anchors = masked_mean(-log_p, use)
        log_soft = (teacher / s.temperature).log_softmax(-1)
        ratio = log_soft - (z / s.temperature).log_softmax(-1)
        divergence = masked_mean((log_soft.exp() * ratio).sum(-1), soft)
        hard = masked_mean(-log_p, soft)
        distil = s.soft_share * s.temperature**2 * divergence + (1 - s.soft_share) * hard
        out = (1 - share) * cross_entropy(logits[:, :B], labels) + share * on_anchors + s.kd * distil
        if embedding is not None:
            real, anchor = embedding[:, :B], embedding[:, B:].detach()
            contrast = supervised_contrast(real, labels, anchor, of_anchor, use, s.contrast_temperature)
            out = out + s.regulariser * contrast
        return out


def supervised_contrast(
    real: Float[Tensor, "n B E"],
    labels: Int[Tensor, "n B"],
    anchor: Float[Tensor, "n U E"],
    of_anchor: Int[Tensor, "n U"],
    use: Bool[Tensor, "n U"],
    temperature: float,
) -> Float[Tensor, "n"]:
    """−mean over examples of the mean over its class's anchors of log softmax_u(⟨ẑ, â_u⟩/τ)."""
    unit = torch.nn.functional.normalize
    similar = unit(real, dim=-1) @ unit(anchor, dim=-1).transpose(1, 2) / temperature
    log_share = similar.masked_fill(~use[:, None], -torch.inf).log_softmax(-1)
    same = (labels[..., None] == of_anchor[:, None]) & use[:, None]
    per_example = masked_mean(-log_share.masked_fill(~use[:, None], 0.0), same)
    return masked_mean(per_example, same.any(-1))


def masked_mean(values: Float[Tensor, "*s m"], mask: Bool[Tensor, "*s m"]) -> Float[Tensor, "*s"]:
    """Mean over the last axis of what the mask keeps; 0 where it keeps nothing."""
    kept = values.masked_fill(~mask, 0.0).sum(-1)
    return kept / mask.sum(-1).clamp(min=1)


def _anchors(stack: Stack, state: State) -> Float[Tensor, "k CA *s"]:
    """As inputs of the stack's models."""
    anchors = state[f"anchors/{stack.learner.name}"]
    return anchors.view(len(anchors), -1, *stack.view.shape[1:])


# -- condensing -----------------------------------------------------------------------------------

# The anchors made last: trials of a search differ in what they do with them, not in how they are made.
_KEPT = 4
_MADE: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}


def condense(
    stack: Stack, labelled: Ragged, labels: Int[Tensor, "worlds*N"], s: DeSASettings, seed: int | Seeds
) -> tuple[Float[Tensor, "k C A D"], Bool[Tensor, "k C"]]:
    """Anchors of every node of a stack, and for which classes it has any: those it has examples of."""
    seeds, nodes, view = Seeds.of(seed, len(labelled)), stack.nodes.tolist(), stack.view
    data = b"".join(each.tobytes() for each in (labelled.values, labelled.offsets, labels.cpu().numpy()))
    inputs = (tuple(view.shape), view.dtype, str(view.device), float(view[:: max(1, len(view) // 64)].sum()))
    how = tuple(value for name, value in s if name == "per_class" or name.startswith("condense_"))
    key = (hashlib.sha256(data).digest(), tuple(nodes), inputs, stack.looped, how, seeds)
    if key not in _MADE:
        # The nodes of a world share their random embeddings.
        worlds = [list(some) for _, some in groupby(nodes, lambda i: i // seeds.n)]
        together = [[i] for i in nodes] if stack.looped else worlds
        parts = [_condense(stack, some, labelled, labels, s, seeds) for some in together]
        while len(_MADE) >= _KEPT:
            del _MADE[next(iter(_MADE))]
        anchors, has = (torch.cat(each) for each in zip(*parts, strict=True))
        _MADE[key] = anchors.cpu(), has.cpu()
    anchors, has = _MADE[key]
    return anchors.to(view.device, copy=True), has.to(view.device, copy=True)


def _condense(
    stack: Stack, nodes: list[int], labelled: Ragged, labels: Int[Tensor, "worlds*N"], s: DeSASettings,
    seeds: Seeds,
) -> tuple[Float[Tensor, "k C A D"], Bool[Tensor, "k C"]]:  # fmt: skip
    """Of some nodes of one world."""
    world = nodes[0] // seeds.n
    seed = seeds.seeds[world]
    known = labels.cpu().numpy().reshape(len(seeds), -1)[world]
    C, A, view = stack.classes, s.per_class, stack.view.flatten(1)
    lists, noise = [], []
    root = stream_key(seed, "anchors", view.device)
    for i in nodes:
        number = i % seeds.n
        own = generator(seed, "anchors", number).permutation(labelled[i])
        lists += [own[known[own] == c][: s.condense_examples] for c in range(C)]
        x = view[torch.from_numpy(labelled[i]).to(view.device)]
        spread = x.std(0, unbiased=False)
        drawn = normal(fold(fold(root, 0), number), C * A * x.shape[1]).to(x.dtype)
        noise.append(x.mean(0) + spread * drawn.view(C, A, -1))
    real = Ragged.of(lists)
    has = torch.from_numpy(real.lengths > 0).to(view.device)
    offsets = torch.from_numpy(real.offsets).to(view.device)
    x = view[torch.from_numpy(real.values).to(view.device)]
    anchors = torch.cat(noise)  # [k·C, A, D], class after class
    velocity = torch.zeros_like(anchors)
    D = x.shape[1]
    for step in range(s.condense_steps):
        key = fold(fold(root, 1), step)
        R = normal(key, D * s.condense_width).to(x.dtype).view(D, -1) / math.sqrt(D)
        target = segment_mean((x @ R).relu_(), offsets)
        z = (anchors @ R).relu_()
        slope = 2.0 / A * (z.mean(1) - target) * has[:, None]
        gradient = (slope[:, None] * (z > 0)) @ R.T
        velocity.mul_(s.condense_momentum).add_(gradient)
        anchors.sub_(velocity, alpha=s.condense_lr)
    return anchors.view(len(nodes), C, A, D), has.view(len(nodes), C)
