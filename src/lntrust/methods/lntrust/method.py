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

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import ALL, Deployment, Method, Site, State, below
from lntrust.methods.lntrust import report as trust_report
from lntrust.methods.lntrust.certificate import Certificate
from lntrust.methods.lntrust.inquiry import collect_evidence
from lntrust.methods.lntrust.lessons import DistillTargets, lesson
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.methods.lntrust.twin import Twin
from lntrust.network import WireFormat
from lntrust.trust import blend as ensemble
from lntrust.trust import distil as distillation
from lntrust.trust import gates as gate
from lntrust.trust.asking import typical_margin
from lntrust.trust.calibration import temperatures
from lntrust.trust.evidence import Evidence
from lntrust.trust.rivals import Weighting, make_weighting
from lntrust.trust.weights import renormalised, top_k
from lntrust.world import Ragged


class LNTrust(Method):
    about = "learn whom to trust on validation labels; distil from them, and answer with them"
    uses_validation = True
    can_certify = True
    settings_class = LNTrustSettings
    settings: LNTrustSettings
    _certificate: Certificate | None = None
    _weighting: Weighting | None = None  # remembers nothing of a run: that is in the state
    _twin: Twin | None = None

    @property
    def wire_format(self) -> WireFormat:
        return WireFormat(self.settings.query, self.settings.reply)

    @property
    def final_rounds(self) -> int:
        return self.settings.final_rounds

    def every(self, site: Site) -> int:
        """F: rounds between two refreshes."""
        return self.settings.refresh or site.world.study.training.refresh

    def due(self, site: Site, t: int) -> bool:
        """Whether trust is refreshed in round t: every F rounds, and before it is frozen."""
        left = site.world.study.training.stage2_rounds - t
        final = self.settings.final_rounds
        return (t % self.every(site) == 0 and left >= final) or 0 < final == left

    def remarks(self, site: Site) -> list[str]:
        rounds, final = site.world.study.training.stage2_rounds, self.settings.final_rounds
        if 0 < rounds <= final:
            return [
                f"final_rounds = {final}, and Stage 2 has {rounds}: trust is learned once, before it begins"
            ]
        return []

    def check(self, site: Site) -> None:
        if self.certify and (self.settings.final_rounds or self.settings.look_back):
            raise LNTrustError(
                "--certify: speaks of models as they were validated; final_rounds and look_back change them "
                "afterwards. Set final_rounds = 0 and leave look_back out"
            )

    # -- the two-stage protocol -------------------------------------------------------------------

    def start(self, site: Site) -> State:
        if self.certify:
            self._certificate = Certificate(site)
        state = self.refresh(site, {}, t=0)
        if self.settings.look_back is not None:
            self._twin = Twin(site)
            state |= {f"twin/{name}": tensor for name, tensor in self._twin.state().items()}
        return state

    def round(self, site: Site, state: State, t: int) -> State:
        if self.certify and self._certificate is None:  # a resumed run
            self._certificate = Certificate(site, below("certificate/", state))
        if self.settings.look_back is not None and self._twin is None:
            self._twin = Twin(site, below("twin/", state))
        left = site.world.study.training.stage2_rounds - t
        learning = (
            left >= self.settings.final_rounds
        )  # later, validation labels are trained on: trust is frozen
        for batch in site.labelled.round(t - 1):
            if self._certificate:
                self._certificate.supervised(batch)
            if self._twin and learning:
                self._twin.step(batch)
            site.population.step(batch)
        due = learning and self.due(site, t)
        if due:
            state = self._looked_back(site, state)
        taught = None
        with site.network.frozen_models():
            if due:
                state = self.refresh(site, state, t)
            if t > self.settings.warmup and self._distils(site):
                state, taught = lesson(site, state, self.settings, t)
        if taught is not None:
            state = self._distil(site, state, taught)
        if self._twin:  # how many steps it has taken, too: a run may be resumed between two refreshes
            state = state | {f"twin/{name}": tensor for name, tensor in self._twin.state().items()}
        if self._certificate:
            state = state | {f"certificate/{k}": v for k, v in self._certificate.state().items()}
        return state

    def _looked_back(self, site: Site, state: State) -> State:
        """Undo what was distilled where validation says that it has hurt; such nodes distil less then."""
        if self._twin is None or self.settings.look_back is None:
            return state
        hurt = self._twin.is_better(site) >= self.settings.look_back
        self._twin.undo(site, hurt)
        doubt = state.get("doubt", torch.ones_like(state["lambda"]))
        undone = state.get("undone", torch.zeros_like(hurt, dtype=torch.int64))
        twin = {f"twin/{name}": tensor for name, tensor in self._twin.state().items()}
        return state | twin | {"doubt": torch.where(hurt, doubt / 2, doubt), "undone": undone + hurt}

    def finish(self, site: Site, state: State) -> State:
        rounds = site.world.study.training.stage2_rounds
        if (rounds == 0 or self.settings.final_rounds > 0) and "open" in state:
            return state  # nothing has changed since the start; or nothing is left to learn trust from
        return self.refresh(site, self._looked_back(site, state), rounds + 1)

    def deploy(self, site: Site, state: State) -> Deployment:
        around = site.around
        votes = state["closed votes"]
        alone = ~state["answers together"]
        use = around.mask & (votes if votes.ndim == 2 else votes.sum(-1)).gt(0)
        use[alone] = False
        use[alone, 0] = True
        node, column = torch.nonzero(use, as_tuple=True)
        weights = votes[node, column]
        weights = torch.where(alone[node].view(-1, *[1] * (weights.ndim - 1)), 1.0, weights)
        members = torch.stack([node, around.member[node, column]], 1)
        certainty: float | Tensor | None = self.settings.certainty
        if certainty is not None and self.settings.typical_margin:
            certainty = certainty * state["typical margin"]
        return Deployment(members, weights, certainty=certainty)

    # -- probes and trust -------------------------------------------------------------------------

    def refresh(self, site: Site, state: State, t: int) -> State:
        """Probe the neighbours, fit the weighting, set weights and gates."""
        s = self.settings
        if s.calibrate:
            self._calibrate(site)
        asked = collect_evidence(site, state, s, t, self._has_pool(site), self._thin(site, state, t))
        evidence = asked.evidence
        if self._weighting is None:
            self._weighting = make_weighting(s.weighting, site.world.seeds, s.prior, s.prior_examples)
        weighting = self._weighting
        first = not any(name.startswith("memory/") for name in state) and "open" not in state
        memory, out = self._learn(site, weighting, below("memory/", state), evidence, first)
        out |= {f"memory/{name}": tensor for name, tensor in memory.items()}
        if s.typical_margin:
            out["typical margin"] = typical_margin(evidence, out["closed"])
        if "doubt" in state:
            out["lambda"] = out["lambda"] * state["doubt"]
        out |= self._log(state, out, t) | asked.remembered
        kept = ("pseudo/", "certificate/", "recall/", "twin/", "doubt", "undone")
        out |= {name: tensor for name, tensor in state.items() if name.startswith(kept)}
        for name in ("mask", "offsets", "rho", "phi", "w", "p_true"):
            out[f"evidence/{name}"] = getattr(evidence, name)
        return out

    def _learn(
        self, site: Site, weighting: Weighting, memory: State, evidence: Evidence, first: bool
    ) -> tuple[State, State]:
        """All nodes at once, or one after another: the same functions either way."""
        n = site.population.n
        if site.population.backend == "batched":
            return self._learn_part(weighting, memory, evidence, first, range(n))
        parts = [
            self._learn_part(
                weighting,
                {k: v[i : i + 1] for k, v in memory.items()},
                evidence.at(i),
                first,
                range(i, i + 1),
            )
            for i in range(n)
        ]
        memories, outs = zip(*parts, strict=True)
        return _joined(memories), _joined(outs)

    def _learn_part(
        self, weighting: Weighting, memory: State, evidence: Evidence, first: bool, nodes: range
    ) -> tuple[State, State]:
        s = self.settings
        if first:
            memory = weighting.start(evidence, nodes)
        memory = weighting.refresh(memory, evidence, first)
        opened = weighting.weights(memory, evidence, evidence.open)
        closed = weighting.weights(memory, evidence, evidence.mask)
        open_votes = weighting.votes(memory, evidence, evidence.open)
        closed_votes = weighting.votes(memory, evidence, evidence.mask)
        if s.answer_k is not None:
            few = top_k(opened, s.answer_k)
            few[:, 0] = True
            closed = renormalised(closed, few)
            closed_votes = renormalised(closed_votes, few)
        if s.self_share:
            closed = closed * (1.0 - s.self_share)
            closed[:, 0] += s.self_share
            closed_votes = closed
        accuracy = evidence.accuracy
        a_self, a_ens = accuracy[:, 0], gate.ensemble_accuracy(opened, accuracy)
        strength = torch.full_like(a_self, s.strength)
        if s.training_gate == "evidence":
            strength = gate.evidence_gate(s.strength, self._chance(evidence, open_votes)).to(a_self.dtype)
        elif s.training_gate:
            strength = gate.training_gate(s.strength, a_ens, a_self)
        together, validated = self._together(evidence, closed, closed_votes)
        return memory, {
            "open": opened,
            "open votes": open_votes,
            "closed": closed,
            "closed votes": closed_votes,
            "lambda": strength,
            "answers together": together,
            "validated": validated,
        }

    def _together(
        self, evidence: Evidence, closed: Tensor, votes: Tensor
    ) -> tuple[Bool[Tensor, "n"], Float[Tensor, "n 2"]]:
        """The deployment gate, and validation accuracy: the node's own and its ensemble's.

        A node without validation examples trusts itself.
        """
        q = ensemble.mixed(evidence.probabilities, votes, evidence.offsets)
        own = evidence.probabilities[:, 0]

        def scores(p: Float[Tensor, "T C"]) -> tuple[Tensor, Tensor]:
            right = ensemble.validation_accuracy(p, evidence.labels, evidence.offsets)
            one = torch.ones(len(evidence.w), 1, dtype=p.dtype, device=p.device)
            true = p.gather(-1, evidence.labels[:, None])
            return right, ensemble.validation_loss(true, one, evidence.offsets)

        accuracy, by_ensemble, by_self = evidence.accuracy, scores(q), scores(own)
        chance = None
        if self.settings.deployment_gate == "evidence":
            voices = gate.effective(closed[:, 1:])
            chance = self._chance(evidence, votes, self.settings.prior_wins * voices)
        together = gate.deployment_gate(
            self.settings.deployment_gate,
            a_deploy=gate.ensemble_accuracy(closed, accuracy),
            a_self=accuracy[:, 0],
            ensemble=by_ensemble,
            own=by_self,
            chance=chance,
            evidence=self.settings.evidence,
        )
        validated = torch.stack([by_self[0], by_ensemble[0]], 1)
        return together & (evidence.offsets.diff() > 0), validated

    def _chance(
        self, evidence: Evidence, votes: Tensor, prior_wins: Tensor | float = 0.0
    ) -> Float[Tensor, "n"]:
        """How likely these members together are better than the node alone, by what validation shows."""
        q = ensemble.mixed(evidence.probabilities, votes, evidence.offsets)
        ours, own = (p.argmax(-1) == evidence.labels for p in (q, evidence.probabilities[:, 0]))
        return gate.better(ours, own, evidence.offsets, prior_wins)

    def _calibrate(self, site: Site) -> None:
        """Every node fits the temperature of its answers to its own validation labels."""
        population = site.population
        owner = torch.from_numpy(site.world.partition.validation.owner).to(population.device)
        labels = population.labels_of(owner, site.validation.ids)
        population.temperature = None
        population.temperature = temperatures(site.own_validation(), labels, site.validation.offsets)

    def _thin(self, site: Site, state: State, t: int) -> bool:
        """Whether this refresh leaves out those who are little trusted. The last one does not."""
        s = self.settings
        rounds, every = site.world.study.training.stage2_rounds, self.every(site)
        last = t >= (rounds - s.final_rounds if s.final_rounds else rounds + 1)
        turn = last or (t % every == 0 and t // every % s.probe_others == 0)
        return s.top_k is not None and s.probe_others > 1 and "probe/mask" in state and not turn

    # -- distillation -----------------------------------------------------------------------------

    def _distil(self, site: Site, state: State, lesson: DistillTargets) -> State:
        """One gated step towards the neighbours' trust-weighted predictions."""
        population, s = site.population, self.settings
        ids, p_bar, predicted, kept, omega = lesson
        scale = state["lambda"] / kept.sum(-1).clamp(min=1)
        active = kept.any(-1)
        before = self._certificate.before_distilling(ids, kept, omega) if self._certificate else {}
        if s.targets == "hard":
            population.descend(
                "distil", ids, distillation.hard_loss, (predicted, omega, scale), active=active
            )
        else:
            factor = self._soft_factor(population.classes)
            population.descend(
                "distil", ids, distillation.soft_loss, (p_bar, omega, scale * factor), active=active
            )
        if self._certificate:
            self._certificate.after_distilling(before, active, state["lambda"])
        return state | self._for_estimators(site, ids, p_bar, omega, state["lambda"], kept)

    def _for_estimators(
        self, site: Site, ids: Tensor, p_bar: Tensor, omega: Tensor, strength: Tensor, kept: Tensor
    ) -> State:
        """What learners that refit will learn from: kept until the next refresh."""
        if len(site.population.torch_stacks) == len(site.population.stacks):
            return {}
        size = torch.from_numpy(site.labelled.lists.lengths.copy()).to(p_bar.device, p_bar.dtype)
        # A label weighs 1; all pseudo-labels together weigh λ times as much as all labels.
        weight = omega * (strength * size / kept.sum(-1).clamp(min=1))[:, None]
        if self.settings.targets == "hard":
            p_bar = torch.nn.functional.one_hot(p_bar.argmax(-1), p_bar.shape[-1]).to(p_bar.dtype)
        else:
            weight = weight * self._soft_factor(p_bar.shape[-1])
        return {"pseudo/ids": ids, "pseudo/targets": p_bar, "pseudo/weight": weight}

    def pseudo_labels(self, site: Site, state: State) -> PseudoLabels | None:
        if "pseudo/ids" not in state:
            return None
        use = state["pseudo/weight"] > 0
        lists = [ids[row].cpu().numpy() for ids, row in zip(state["pseudo/ids"], use, strict=True)]
        return PseudoLabels(Ragged.of(lists), state["pseudo/targets"][use], state["pseudo/weight"][use])

    # -- small things -----------------------------------------------------------------------------

    def _soft_factor(self, C: int) -> float:
        """α_KL, divided by C where the study follows the authors' code."""
        return self.settings.soft_scale / (C if self.settings.kl_scale == "per_class" else 1)

    def _has_pool(self, site: Site) -> bool:
        return self.settings.unlabelled and int(site.world.partition.shard.lengths.min()) > 0

    def _distils(self, site: Site) -> bool:
        return self._has_pool(site) and self.settings.budget > 0 and len(site.network.edges) > 0

    def _log(self, old: State, new: State, t: int) -> State:
        """Trust and gate over time, a row per refresh."""
        rows = {
            "log/round": torch.tensor([t], device=new["closed"].device),
            "log/closed": new["closed"][None],
            "log/lambda": new["lambda"][None],
            "log/together": new["answers together"][None],
        }
        return {k: torch.cat([old[k], row]) if k in old else row for k, row in rows.items()}

    # -- what it has to say -----------------------------------------------------------------------

    def report(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, Any]:
        out: dict[str, Any] = {
            "weighting": self.settings.weighting, **trust_report.overview(site, state, nodes)
        }  # fmt: skip
        if self.settings.weighting == "trust":
            out |= trust_report.importance(site, state, nodes)
        if self.certify:
            certificate = self._certificate or Certificate(site, below("certificate/", state))
            evidence = trust_report.kept_evidence(state)
            out["certificate"] = certificate.report(
                evidence, state["closed"], state["log/lambda"], self.settings.epsilon_dep, self.settings.delta
            )
        return out

    def tables(self, site: Site, state: State, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
        return trust_report.tables(site, state, nodes)


def _joined(parts: tuple[State, ...]) -> State:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
