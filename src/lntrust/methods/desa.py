"""DeSA: synthetic anchors (Huang et al., ICML 2024), on features.

Once, between the stages, every node condenses its labelled data into A anchors per class (`anchors.py`),
sends them to its neighbours, and averages what arrives with its own, class by class and index by index. The
averages S_i travel once more. Every round neighbours tell their logits on them, z̄_i(s) is the mean of those,
and each supervised step descends

    CE on D_i ∪ S_i + λ_KD·[κT²·KL(softmax(z̄/T) ‖ softmax(z/T)) + (1 − κ)·CE] on S_i + λ_REG·SupCon(D_i, S_i)

CE on the union weighs batch and anchors by |D_i| and |S_i|. SupCon (Khosla et al. 2020, temperature τ) pulls
the representation of an example towards those of its class's anchors, which stand still; a representation is
the input of the last linear layer, so with a linear head nothing can move and the term is left out.

Exchanged, per directed edge: the anchors of the classes that the sender has, twice, inside one architecture
(4·A·D + 2 bytes a class); then each round 4·C bytes for each anchor, between all torch learners.

Where our setting differs: DeSA makes images; ours works from frozen features, so anchors live in each
architecture's own inputs and are shared inside it. Across architectures a neighbour tells its logits on its
own anchor of the same class and index. With raw images at hand the pixel version is the faithful one. Each
step sees `batch` of the anchors, drawn at random. λ_REG is 1, as in the authors' code; λ_KD is 1 there and
0.1 here. At high temperature the soft term is κ/2C·‖z − z̄‖², so its curvature is κλ_KD‖x‖²/C, and ‖x‖² is
several hundred for features that nothing normalises. Two neighbours that know only each other then swap
places and, with momentum, overshoot more every round. At C = 10 the published 1 diverges on sparse graphs;
with C = 100 the curvature is a tenth, and it does not.
"""

from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.core.randomness import fold
from lntrust.core.segments import sum_by
from lntrust.learners.training import Stack
from lntrust.methods.anchors import Recipe, condense
from lntrust.methods.base import Method, Site, State
from lntrust.methods.sharing import Subgraph, estimators_alone, subgraphs
from lntrust.study.settings import MethodSettings, Range


class DeSASettings(MethodSettings):
    per_class: int = Field(10, ge=1, description="A, anchors per class")
    batch: int = Field(64, ge=1, description="anchors in each step")
    kd: Annotated[float, Range(0.01, 1.0, log=True)] = Field(
        0.1, ge=0, description="λ_KD; 1 as published, which can diverge on a sparse graph"
    )
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
    settings_class = DeSASettings
    settings: DeSASettings

    def remarks(self, site: Site) -> list[str]:
        return estimators_alone(site)

    # -- once: anchors ----------------------------------------------------------------------------

    def start(self, site: Site) -> State:
        s, population = self.settings, site.population
        recipe = Recipe(
            s.per_class, s.condense_steps, s.condense_lr, s.condense_momentum, s.condense_width,
            s.condense_examples,
        )  # fmt: skip
        has = torch.zeros(population.n, population.classes, dtype=torch.bool, device=population.device)
        state: State = {}
        for subgraph in subgraphs(site):
            anchors, mine = condense(
                subgraph.stack, site.labelled.lists, population.labels, recipe, site.world.seeds
            )
            shared, known = self._average(site, subgraph, anchors, mine)
            state[f"anchors/{subgraph.stack.learner.name}"] = shared
            has[subgraph.stack.nodes] = known
            self._charge(site, subgraph, has, anchors.shape[-1], "average")
        return state | {"has": has}

    def _average(
        self, site: Site, subgraph: Subgraph, anchors: Float[Tensor, "k C A D"], mine: Bool[Tensor, "k C"]
    ) -> tuple[Float[Tensor, "k C A D"], Bool[Tensor, "k C"]]:
        """Mean over the members of the closed neighbourhood that have the class; who has it at all."""
        n, nodes = site.population.n, subgraph.stack.nodes
        counts = mine.new_zeros(n, mine.shape[1], dtype=anchors.dtype)
        counts[nodes] = mine.to(anchors.dtype)
        sums = anchors.new_zeros(n, *anchors.shape[1:])
        sums[nodes] = anchors * mine[..., None, None]
        self._charge(site, subgraph, counts > 0, anchors.shape[-1], "anchors")
        ones = torch.ones(len(subgraph.edges), dtype=anchors.dtype, device=anchors.device)
        with site.network.uncharged():  # charged above: nobody sends anchors of classes it does not have
            total = counts + site.network.average(subgraph.edges, ones, counts, "anchors")
            sums = sums + site.network.average(subgraph.edges, ones, sums.flatten(1), "anchors").view_as(sums)
        total = total[nodes]
        return sums[nodes] / total.clamp(min=1)[..., None, None], total > 0

    def _charge(
        self, site: Site, subgraph: Subgraph, has: Bool[Tensor, "n C"], width: int, phase: str
    ) -> None:
        """Every node's anchors to all neighbours of its kind: those of the classes it has, and which."""
        for i, classes in zip(subgraph.stack.nodes.tolist(), has[subgraph.stack.nodes], strict=True):
            over, m = subgraph.edges[subgraph.sender == i], int(classes.sum())
            rows = torch.empty(1, dtype=site.population.dtype, device=over.device)
            message = {
                "anchors": rows.expand(len(over), m * self.settings.per_class, width),
                "classes": rows.to(torch.int16).expand(len(over), m),
            }
            if m:
                site.network.charge(over, message, "anchors", phase)

    # -- each round -------------------------------------------------------------------------------

    def round(self, site: Site, state: State, t: int) -> State:
        population, C, A = site.population, site.population.classes, self.settings.per_class
        has = state["has"].repeat_interleave(A, 1)  # of every anchor
        targets, told = self._logits(site, state)
        size = torch.from_numpy(site.labelled.lists.lengths.copy()).to(population.device)
        share = (has.sum(1) / (has.sum(1) + size)).to(population.dtype)
        labels = torch.arange(C, device=population.device).repeat_interleave(A).expand(population.n, -1)
        for k, batch in enumerate(site.labelled.round(t - 1)):
            pick = self._draw(site, has, t, k)
            inputs = {
                stack.learner.name: self._inputs(stack, state, pick[stack.nodes])
                for stack in population.torch_stacks
            }
            use, heard = has.gather(1, pick), told.gather(1, pick)
            teacher = targets.gather(1, pick[..., None].expand(-1, -1, C))
            parts = (labels.gather(1, pick), use, teacher, heard, share)
            population.step(batch, self.loss, parts, inputs=inputs, embed=self.settings.regulariser > 0)
        return state

    def _logits(self, site: Site, state: State) -> tuple[Float[Tensor, "n CA C"], Bool[Tensor, "n CA"]]:
        """z̄_i on node i's anchors, and of which anybody has told."""
        population, network, A = site.population, site.network, self.settings.per_class
        n, C = population.n, population.classes
        total = torch.zeros(n, C * A, C, dtype=population.dtype, device=population.device)
        count = torch.zeros(n, C * A, dtype=population.dtype, device=population.device)
        has = state["has"].repeat_interleave(A, 1)
        own = torch.zeros_like(total)  # what each node says about its own anchors
        stack_of = torch.full((n,), -1, device=population.device)
        for number, subgraph in enumerate(subgraphs(site)):
            stack, place = subgraph.stack, _places(subgraph.stack, n)
            stack_of[stack.nodes] = number
            x = self._all_inputs(stack, state)
            k = torch.arange(len(stack.nodes), device=place.device)
            own[stack.nodes] = stack.logits_of(k, x, k)
            said = stack.logits_of(place[subgraph.sender], x, place[subgraph.receiver])
            self._told(site, subgraph.edges, has[subgraph.receiver], C)
            sound = said.isfinite().all(-1)  # a neighbour whose model has broken is not listened to
            said = torch.where(sound[..., None], said, 0.0)
            total += sum_by(subgraph.receiver, said.flatten(1), n).view_as(total)
            count += sum_by(subgraph.receiver, (has[subgraph.receiver] & sound).to(count.dtype), n)
        kind = stack_of[network.edges]
        across = torch.nonzero((kind[:, 0] != kind[:, 1]) & (kind >= 0).all(1)).flatten()
        sender, receiver = network.edges[across].unbind(1)
        self._told(site, across, has[sender], C)
        both = has[sender] & has[receiver] & own[sender].isfinite().all(-1)
        said = torch.where(both[..., None], own[sender], 0.0)
        total += sum_by(receiver, said.flatten(1), n).view_as(total)
        count += sum_by(receiver, both.to(count.dtype), n)
        return total / count.clamp(min=1)[..., None], count > 0

    def _told(self, site: Site, edges: Int[Tensor, "q"], anchors: Bool[Tensor, "q CA"], C: int) -> None:
        """Book logits on as many anchors as each message is about."""
        counts = anchors.sum(1)
        empty = torch.empty(1, dtype=site.population.dtype, device=edges.device)
        for m in sorted(set(counts.tolist()) - {0}):
            over = edges[counts == m]
            site.network.charge(over, {"logits": empty.expand(len(over), m, C)}, "reply", "logits")

    def _draw(self, site: Site, has: Bool[Tensor, "n CA"], t: int, k: int) -> Int[Tensor, "n U"]:
        """Anchors for one step: of those the node has; others fill up where these are too few."""
        (n, total), seeds = has.shape, site.world.seeds
        number = torch.arange(n, device=has.device) % seeds.n
        roots = fold(seeds.roots("anchors", has.device), 2).repeat_interleave(seeds.n)
        key = fold(fold(fold(roots, number), t), k)
        words = fold(key[:, None], torch.arange(total, device=has.device))
        order = words.masked_fill(~has, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
        return order[:, : min(self.settings.batch, total)]

    def _all_inputs(self, stack: Stack, state: State) -> Float[Tensor, "k CA *s"]:
        anchors = state[f"anchors/{stack.learner.name}"]
        return anchors.view(len(anchors), -1, *stack.view.shape[1:])

    def _inputs(self, stack: Stack, state: State, pick: Int[Tensor, "k U"]) -> Float[Tensor, "k U *s"]:
        row = torch.arange(len(pick), device=pick.device)[:, None]
        return self._all_inputs(stack, state)[row, pick]

    # -- the loss ---------------------------------------------------------------------------------

    def loss(
        self,
        logits: Float[Tensor, "n B+U C"],
        labels: Int[Tensor, "n B"],
        of_anchor: Int[Tensor, "n U"],
        use: Bool[Tensor, "n U"],
        teacher: Float[Tensor, "n U C"],
        told: Bool[Tensor, "n U"],
        share: Float[Tensor, "n"],
        embedding: Float[Tensor, "n B+U E"] | None = None,
    ) -> Float[Tensor, "n"]:
        """The three terms; anchors that a node does not have, or that nobody told it about, are left out."""
        s, B = self.settings, labels.shape[1]
        z = logits[:, B:]
        log_p = z.log_softmax(-1).gather(-1, of_anchor[..., None]).squeeze(-1)
        on_anchors = masked_mean(-log_p, use)
        log_soft = (teacher / s.temperature).log_softmax(-1)
        ratio = log_soft - (z / s.temperature).log_softmax(-1)
        divergence = masked_mean((log_soft.exp() * ratio).sum(-1), use & told)
        distil = s.soft_share * s.temperature**2 * divergence + (1 - s.soft_share) * masked_mean(
            -log_p, use & told
        )
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


def _places(stack: Stack, n: int) -> Int[Tensor, "n"]:
    """Where each node stands in the stack."""
    out = torch.full((n,), -1, device=stack.nodes.device)
    out[stack.nodes] = torch.arange(len(stack.nodes), device=out.device)
    return out
