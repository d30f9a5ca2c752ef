"""LNTrust: Learned Neighbor Trust (Lanier, Ge, Kompella & Vorobeychik 2026).

Stage 1 is everybody's. After it, and every F rounds, each node probes its closed neighbourhood on its own
validation set V_i and fits a trust model on what it hears:

    α_ij = softmax_j g_ψi(φ_ij),   min_ψi ℓ(Σ_{j∈N̄(i)} α_ij p_j(V_i), y_i)

Each round of Stage 2 takes the supervised steps and then one step of trust-gated distillation on B examples
of the node's unlabelled shard, towards p̄_i(x) = Σ_{j∈N(i)} α_ij p_j(x), filtered by confidence and weighted
by ω_i(x), with strength λ_i^eff = λ·min(1, a_i^ens/(a_i^self + ε)). Deployed is Σ_{j∈N̄(i)} α_ij p_j(x), or
the node's own model where the deployment gate says so.

Exchanged: queries (inputs, ids or handles) and soft predictions, nothing else. As published, per directed
edge and distilling round B·(input + 4C) bytes; per refresh (|V_i| + 500)·(input + 4C).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import ALL, Deployment, Method, Site, Tensors
from lntrust.methods.lntrust import report
from lntrust.methods.lntrust.certificate import Certificate
from lntrust.methods.lntrust.exchange import collect_evidence, distill_targets, validating
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.lntrust.state import PseudoTargets, TrustState, learn_trust
from lntrust.network import WireFormat
from lntrust.study.settings import Settings
from lntrust.trust import distil
from lntrust.trust.distil import DistillTargets
from lntrust.trust.rivals import make_weighting
from lntrust.trust.weights import Memory, Weighting


class LNTrust(Method[TrustState]):
    about = "learn whom to trust on validation labels; distil from them, and answer with them"
    uses_validation = True
    certificate = Certificate
    settings_class = LNTrustSettings
    settings: LNTrustSettings
    _weighting: Weighting | None = None  # remembers nothing of a run: that is in the state

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.wire_format = WireFormat(self.settings.query, self.settings.reply)
        self.final_rounds = self.settings.final_rounds

    def remarks(self, site: Site) -> list[str]:
        rounds, final = site.schedule.rounds, self.final_rounds
        said = f"final_rounds = {final}, and Stage 2 has {rounds}: trust is learned once, before it begins"
        return [said] if 0 < rounds <= final else []

    # -- the two-stage protocol -------------------------------------------------------------------

    def start(self, site: Site) -> TrustState:
        return self.refresh(site, None, t=0)

    def round(self, site: Site, state: TrustState, t: int) -> TrustState:
        """Supervised steps; every F rounds a refresh; after the warmup a step of distillation."""
        site.learn(t)
        targets = None
        with site.network.frozen_models():
            if self.due(site, t):
                state = self.refresh(site, state, t)
            teachers = self._has_pool(site) and len(site.network.edges) > 0
            if teachers and t > self.settings.warmup and self.settings.budget > 0:
                state, targets = distill_targets(validating(site, self.settings, t), state, self.settings, t)
        return state if targets is None else self._distil(site, state, targets)

    def due(self, site: Site, t: int) -> bool:
        """Whether trust is refreshed in round t: every F rounds, and before it is frozen."""
        return site.schedule.due(t, self.settings.refresh or site.world.study.training.refresh)

    def refresh(
        self, site: Site, state: TrustState | None, t: int, memory: Memory | None = None
    ) -> TrustState:
        """Probe the neighbours, fit the weighting, set weights and gates: all nodes at once, or one by one.

        The weighting goes on from what the state remembers, or from this memory where there is no state.
        """
        s, n = self.settings, site.population.n
        evidence = collect_evidence(validating(site, s, t), s.sample if self._has_pool(site) else 0, t)
        if self._weighting is None:
            self._weighting = make_weighting(
                s.weighting, site.world.seeds, s.prior, s.prior_examples, s.temperature
            )
        memory = memory if state is None else state.memory
        if site.population.backend == "batched":
            new = learn_trust(self._weighting, memory, evidence, s, t, range(n))
        else:
            parts = []
            for one in (slice(i, i + 1) for i in range(n)):
                own = None if memory is None else {name: m[one] for name, m in memory.items()}
                nodes = range(n)[one]
                parts.append(learn_trust(self._weighting, own, evidence.at(one), s, t, nodes))
            new = TrustState.joined(parts, evidence)
        if state is None:
            return new
        return replace(new, log=state.log + new.log, replies=state.replies, pseudo=state.pseudo)

    def finish(self, site: Site, state: TrustState) -> TrustState:
        """Look at the neighbours once more, unless nothing has changed, or nothing is left to learn from."""
        if site.schedule.rounds == 0 or site.schedule.final > 0:
            return state
        return self.refresh(site, state, site.schedule.rounds + 1)

    def choose(self, site: Site) -> TrustState:
        return self.refresh(site, None, site.schedule.rounds + 1)

    def deploy(self, site: Site, state: TrustState) -> Deployment:
        around, votes, alone = site.around, state.closed_votes.clone(), ~state.together
        votes[alone] = 0.0
        votes[alone, 0] = 1.0
        use = around.mask & (votes if votes.ndim == 2 else votes.sum(-1)).gt(0)
        node, column = torch.nonzero(use, as_tuple=True)
        members = torch.stack([node, around.member[node, column]], 1)
        certainty: float | Tensor | None = self.settings.certainty
        if certainty is not None and state.typical_margin is not None:
            certainty = certainty * state.typical_margin
        return Deployment(members, votes[node, column], certainty=certainty)

    # -- distillation -----------------------------------------------------------------------------

    def _distil(self, site: Site, state: TrustState, targets: DistillTargets) -> TrustState:
        """One gated step towards the neighbours' trust-weighted predictions."""
        population, (ids, p_bar, predicted, kept, omega) = site.population, targets
        count, C = kept.sum(-1).clamp(min=1), population.classes
        scale, active = state.strength / count, kept.any(-1)
        factor = self.settings.soft_scale / (C if self.settings.kl_scale == "per_class" else 1)
        hard = self.settings.targets == "hard"
        goal = (predicted, omega, scale) if hard else (p_bar, omega, scale * factor)
        with site.observer.distilling(state, targets):
            loss = distil.hard_loss if hard else distil.soft_loss
            population.descend("distil", ids, loss, goal, active=active)
        if len(population.torch_stacks) == len(population.stacks):
            return state
        # For learners that refit. A label weighs 1; all pseudo-labels together λ times as much as all labels.
        labels = site.labelled.sizes.to(p_bar.dtype)
        weight = omega * (state.strength * labels / count)[:, None]
        if hard:
            p_bar = torch.nn.functional.one_hot(p_bar.argmax(-1), C).to(p_bar.dtype)
        else:
            weight = weight * factor
        return replace(state, pseudo=PseudoTargets(ids, p_bar, weight))

    def pseudo_labels(self, site: Site, state: TrustState) -> PseudoLabels | None:
        return None if state.pseudo is None else state.pseudo.labels()

    def _has_pool(self, site: Site) -> bool:
        return self.settings.unlabelled and int(site.world.partition.shard.lengths.min()) > 0

    # -- what it has to say, and what a checkpoint keeps ----------------------------------------------

    def report(self, site: Site, state: TrustState, nodes: slice = ALL) -> dict[str, Any]:
        return report.summary(site, state, self.settings, nodes)

    def tables(self, site: Site, state: TrustState, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
        return report.tables(site, state, nodes)

    def pack(self, state: TrustState) -> Tensors:
        return state.to_tensors()

    def unpack(self, tensors: Tensors) -> TrustState:
        return TrustState.from_tensors(tensors)
