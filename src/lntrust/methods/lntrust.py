"""LNTrust: Learned Neighbor Trust (Lanier, Ge, Kompella & Vorobeychik 2026).

Stage 1 is everybody's. After it, and every F rounds, each node probes its closed neighbourhood on its own
validation set V_i and fits a trust model on what it hears:

    α_ij = softmax_j g_ψi(φ_ij),   min_ψi ℓ(Σ_{j∈N̄(i)} α_ij p_j(V_i), y_i)

Each round of Stage 2 takes the supervised steps and then one step of trust-gated distillation on B examples
of the node's unlabelled shard, towards p̄_i(x) = Σ_{j∈N(i)} α_ij p_j(x), filtered by confidence and weighted
by ω_i(x), with strength λ_i^eff = λ·min(1, a_i^ens/(a_i^self + ε)). Deployed is Σ_{j∈N̄(i)} α_ij p_j(x), or
the node's own model where the deployment gate says so.

Exchanged: queries (inputs, ids or handles) and soft predictions, nothing else. Per directed edge and
distilling round B·(input + 4C) bytes; per refresh (|V_i| + 500)·(input + 4C).
"""

from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lntrust.learners.population import PseudoLabels
from lntrust.methods import trust_report
from lntrust.methods.base import ALL, Deployment, Method, Site, State, below
from lntrust.methods.certificate import Certificate
from lntrust.methods.probing import heard, probe
from lntrust.network import Questions, Replies
from lntrust.segments import segment_sum
from lntrust.settings import MethodSettings, Range
from lntrust.trust import distillation, ensemble, features, gate
from lntrust.trust.evidence import Evidence
from lntrust.trust.neighbourhood import Neighbourhood
from lntrust.trust.weights import renormalised, top_k
from lntrust.weighting import WEIGHTINGS, Weighting, make_weighting
from lntrust.world import Ragged


class LNTrustSettings(MethodSettings):
    """Published values are the defaults; those that differ by setting stand in the studies."""

    weighting: Literal[tuple(WEIGHTINGS)] = Field(  # type: ignore[valid-type]
        "trust", description="what makes α: " + "; ".join(f"{k}: {v.about}" for k, v in WEIGHTINGS.items())
    )
    strength: Annotated[float, Range(0.1, 2.0, log=True)] = Field(
        0.5, ge=0, description="λ, the weight of distillation"
    )
    budget: int = Field(1000, ge=0, description="B, unlabelled examples per round; 0: no distillation")
    warmup: int = Field(5, ge=0, description="rounds of Stage 2 before distillation begins")
    targets: Annotated[Literal["hard", "soft"], Range(choices=("hard", "soft"))] = Field(
        "hard", description="learn the ensemble's argmax, or all of p̄"
    )
    soft_scale: float = Field(0.3, gt=0, le=1, description="α_KL, the scale of soft distillation")
    kl_scale: Literal["sum", "per_class"] = Field(
        "sum", description="sum: the paper's equation; per_class: divided by C, as the authors' code has it"
    )
    importance: Literal["mean_one", "paper", "off"] = Field(
        "mean_one", description="ω: C·w scaled to mean 1 over the kept examples; C·w as printed; or 1"
    )
    confidence_floor: float = Field(0.2, ge=0, le=1, description="τ_abs; the filter keeps max p̄ > τ(C)")
    confidence_margin: float = Field(0.1, ge=-1, le=1, description="τ_conf, the margin above 1/C")
    training_gate: bool = Field(True, description="scale λ by a_ens/a_self where that is below 1")
    deployment_gate: Literal["members", "ensemble", "loss", "off"] = Field(
        "members",
        description="when to answer alone. members: the members' mean accuracy is below one's own "
        "(as published); ensemble: the ensemble's own accuracy is; loss: its loss is higher; off: never",
    )
    top_k: int | None = Field(None, ge=1, description="distil from the k most trusted neighbours; none: all")
    unlabelled: bool = Field(True, description="false: use no pool, neither for features nor to distil")
    epsilon_dep: float = Field(0.1, gt=0, le=1, description="--certify: the loss is clipped at −log ε")
    delta: float = Field(0.05, gt=0, lt=1, description="--certify: the bound holds with probability 1 − δ")
    sample: int = Field(500, ge=1, description="shard examples behind ŵ_j, redrawn at each refresh")


class Lesson(NamedTuple):
    """What each node's neighbours teach in one round."""

    ids: Int[Tensor, "n B"]
    p_bar: Float[Tensor, "n B C"]  # p̄_i(x)
    predicted: Int[Tensor, "n B"]  # ĉ(x)
    kept: Bool[Tensor, "n B"]  # x ∈ B*_i
    omega: Float[Tensor, "n B"]  # ω_i(x)


class LNTrust(Method):
    about = "learn whom to trust on validation labels; distil from them, and answer with them"
    uses_validation = True
    can_certify = True
    settings_class = LNTrustSettings
    settings: LNTrustSettings
    _certificate: Certificate | None = None
    _weighting: Weighting | None = None  # remembers nothing of a run: that is in the state

    # -- the two-stage protocol -------------------------------------------------------------------

    def start(self, site: Site) -> State:
        if self.certify:
            self._certificate = Certificate(site)
        return self.refresh(site, {}, t=0)

    def round(self, site: Site, state: State, t: int) -> State:
        if self.certify and self._certificate is None:  # a resumed run
            self._certificate = Certificate(site, below("certificate/", state))
        for batch in site.labelled.round(t - 1):
            if self._certificate:
                self._certificate.supervised(batch)
            site.population.step(batch)
        with site.network.standing_still():
            if t % site.world.study.training.refresh == 0:
                state = self.refresh(site, state, t)
            lesson = (
                self._lesson(site, state, t) if t > self.settings.warmup and self._distils(site) else None
            )
        if lesson is not None:
            state = self._distil(site, state, lesson)
        if self._certificate:
            state = state | {f"certificate/{k}": v for k, v in self._certificate.state().items()}
        return state

    def finish(self, site: Site, state: State) -> State:
        rounds = site.world.study.training.stage2_rounds
        if rounds == 0 and "open" in state:
            return state  # nothing has changed since the start
        return self.refresh(site, state, rounds + 1)

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
        return Deployment(torch.stack([node, around.member[node, column]], 1), weights)

    # -- probes and trust -------------------------------------------------------------------------

    def refresh(self, site: Site, state: State, t: int) -> State:
        """Probe the neighbours, fit the weighting, set weights and gates."""
        evidence = self._probe(site, t)
        if self._weighting is None:
            self._weighting = make_weighting(self.settings.weighting, site.world.seeds)
        weighting = self._weighting
        first = not any(name.startswith("memory/") for name in state) and "open" not in state
        memory, out = self._learn(site, weighting, below("memory/", state), evidence, first)
        out |= {f"memory/{name}": tensor for name, tensor in memory.items()}
        out |= self._remembered(state, out, t)
        kept = ("pseudo/", "certificate/")
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
        if first:
            memory = weighting.start(evidence, nodes)
        memory = weighting.refresh(memory, evidence, first)
        opened = weighting.weights(memory, evidence, evidence.open)
        closed = weighting.weights(memory, evidence, evidence.mask)
        closed_votes = weighting.votes(memory, evidence, evidence.mask)
        accuracy = evidence.accuracy
        a_self, a_ens = accuracy[:, 0], gate.ensemble_accuracy(opened, accuracy)
        strength = torch.full_like(a_self, self.settings.strength)
        if self.settings.training_gate:
            strength = gate.training_gate(self.settings.strength, a_ens, a_self)
        together, validated = self._together(evidence, closed, closed_votes)
        return memory, {
            "open": opened,
            "open votes": weighting.votes(memory, evidence, evidence.open),
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
        together = gate.deployment_gate(
            self.settings.deployment_gate,
            a_deploy=gate.ensemble_accuracy(closed, accuracy),
            a_self=accuracy[:, 0],
            ensemble=by_ensemble,
            own=by_self,
        )
        validated = torch.stack([by_self[0], by_ensemble[0]], 1)
        return together & (evidence.offsets.diff() > 0), validated

    def _probe(self, site: Site, t: int) -> Evidence:
        """Ask everybody about V_i, and about a sample of the shard for ŵ_j."""
        population, world = site.population, site.world
        got = probe(site, "probe")
        mask, w_hat = got.mask, None
        if self._has_pool(site):
            w_hat, sampled = self._class_distributions(site, got.around, t)
            mask = mask & sampled
        w = site.class_distribution
        degrees = torch.from_numpy(world.degrees).to(population.device, population.dtype)
        rho = features.probe_response(got.probabilities, got.labels, got.offsets) * mask[..., None]
        nodes = world.seeds.n  # of the node's own world
        phi = features.relational_features(rho, w_hat, w, degrees[got.around.member], nodes, mask)
        of_row = torch.repeat_interleave(mask, got.offsets.diff(), dim=0, output_size=len(got.labels))
        return Evidence(mask, got.probabilities * of_row[..., None], got.labels, got.offsets, rho, phi, w)

    def _class_distributions(
        self, site: Site, around: Neighbourhood, t: int
    ) -> tuple[Float[Tensor, "n D C"], Bool[Tensor, "n D"]]:
        """ŵ_j as each neighbour shows it on a sample of the asker's shard."""
        population = site.population
        ids = site.unlabelled("sample", self.settings.sample, t)
        replies = site.network.ask(Questions.of(ids, "shard"), "probe")
        out = torch.zeros(
            *around.mask.shape, population.classes, dtype=population.dtype, device=population.device
        )
        out[:, 0] = features.class_distribution(site.network.own(ids)[:, None])[:, 0]
        asker = site.network.edges[replies.edge, 0]
        out[asker, around.column[replies.edge]] = features.class_distribution(replies.regular())
        return out, heard(around, replies)

    # -- distillation -----------------------------------------------------------------------------

    def _lesson(self, site: Site, state: State, t: int) -> Lesson:
        """Ask the neighbours about examples of the shard; what their trust-weighted predictions teach."""
        population, s, around = site.population, self.settings, site.around
        ids = site.unlabelled("distil", s.budget, t)
        asked, edges = around.open, None
        if s.top_k is not None:
            asked = top_k(state["open"], s.top_k)
            edges = around.edge[asked].sort().values
        replies = site.network.ask(Questions.of(ids, "shard"), "distil", edges)
        p_bar, answered = self._targets(site, state, replies, asked, ids.shape)
        tau = distillation.threshold(population.classes, s.confidence_floor, s.confidence_margin)
        confidence, predicted = p_bar.max(-1)
        kept = (confidence > tau) & answered[:, None]
        omega = distillation.importance_weights(s.importance, site.class_distribution, predicted, kept)
        return Lesson(ids, p_bar, predicted, kept, omega)

    def _distil(self, site: Site, state: State, lesson: Lesson) -> State:
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

    def _targets(
        self,
        site: Site,
        state: State,
        replies: Replies,
        asked: Bool[Tensor, "n D"],
        shape: torch.Size,
    ) -> tuple[Float[Tensor, "n B C"], Bool[Tensor, "n"]]:
        """p̄_i(x) = Σ_{j∈N(i)} α_ij p_j(x) over those who answered soundly, and where anybody did."""
        (n, B), C, around = shape, replies.probabilities.shape[-1], site.around
        votes = state["open votes"]
        present = asked & heard(around, replies)
        votes = renormalised(votes, present) if votes.ndim == 2 else votes * present[..., None]
        asker = site.network.edges[replies.edge, 0]  # sorted, since edges are
        vote = votes[asker, around.column[replies.edge]]
        vote = vote[:, None, None] if vote.ndim == 1 else vote[:, None]
        said = replies.probabilities.view(len(vote), B, C) * vote  # perhaps of nobody
        offsets = torch.searchsorted(asker, torch.arange(n + 1, device=asker.device))
        p_bar = segment_sum(said.flatten(1), offsets).view(n, B, C)
        total = p_bar.sum(-1, keepdim=True)
        answered = present.any(-1) & (votes.flatten(1).sum(-1) > 0)
        return torch.where(total > 0, p_bar / total.clamp(min=torch.finfo(p_bar.dtype).tiny), 0.0), answered

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

    def _remembered(self, old: State, new: State, t: int) -> State:
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
