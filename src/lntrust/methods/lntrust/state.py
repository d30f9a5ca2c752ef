"""What LNTrust remembers from round to round, and how a refresh learns it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import Tensors, below
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.trust import blend, gates
from lntrust.trust.evidence import Evidence
from lntrust.trust.weights import Memory, Weighting
from lntrust.world import Ragged


@dataclass(frozen=True)
class TrustLog:
    """Trust and gates over time, a row per refresh."""

    round: Int[Tensor, "R"]
    closed: Float[Tensor, "R n D"]
    strength: Float[Tensor, "R n"]
    together: Bool[Tensor, "R n"]

    @classmethod
    def of(cls, t: int, closed: Tensor, strength: Tensor, together: Tensor) -> "TrustLog":
        """The row of round t."""
        return cls(torch.tensor([t], device=closed.device), closed[None], strength[None], together[None])

    def __add__(self, later: "TrustLog") -> "TrustLog":
        both = {f.name: torch.cat([getattr(self, f.name), getattr(later, f.name)]) for f in fields(self)}
        return TrustLog(**both)

    def last(self, count: int) -> "TrustLog":
        return TrustLog(**{f.name: getattr(self, f.name)[-count:] for f in fields(self)})


@dataclass(frozen=True)
class RememberedReplies:
    """What neighbours said about the whole shard; slot s of node i holds those of `column[i, s]`."""

    column: Int[Tensor, "n s"]  # 0, the node itself: an empty slot
    probabilities: Float[Tensor, "n s S C"]


@dataclass(frozen=True)
class PseudoTargets:
    """The last round's targets, for learners that refit; 0 weight: not learned from."""

    ids: Int[Tensor, "n B"]
    targets: Float[Tensor, "n B C"]
    weight: Float[Tensor, "n B"]

    def labels(self) -> PseudoLabels:
        """As the population takes them."""
        use = self.weight > 0
        lists = [ids[row].cpu().numpy() for ids, row in zip(self.ids, use, strict=True)]
        return PseudoLabels(Ragged.of(lists), self.targets[use], self.weight[use])


@dataclass(frozen=True)
class TrustState:
    """The last refresh's trust and gates, and what later rounds need of it. Never changed, only replaced."""

    open: Float[Tensor, "n D"]  # α over N(i), for distillation
    open_votes: Float[Tensor, "n D"] | Float[Tensor, "n D C"]
    closed: Float[Tensor, "n D"]  # α over N̄(i), for deployment
    closed_votes: Float[Tensor, "n D"] | Float[Tensor, "n D C"]
    strength: Float[Tensor, "n"]  # λ_i^eff
    together: Bool[Tensor, "n"]  # whether the node answers with its ensemble
    validated: Float[Tensor, "n 2"]  # validation accuracy, the node's own and its ensemble's
    typical_margin: Float[Tensor, "n"] | None  # by how much neighbours' first class leads
    memory: Memory  # the weighting's: ψ_i, say
    evidence: Evidence  # of true classes only
    log: TrustLog
    replies: RememberedReplies | None = None
    pseudo: PseudoTargets | None = None

    def at(self, nodes: slice) -> "TrustState":
        """The trust of some nodes, without what only their training needs."""
        margin, log = self.typical_margin, self.log
        return replace(
            self,
            **{name: getattr(self, name)[nodes] for name in _FILE if name != "typical_margin"},
            typical_margin=None if margin is None else margin[nodes],
            memory={name: t[nodes] for name, t in self.memory.items()},
            evidence=self.evidence.at(nodes),
            log=TrustLog(log.round, log.closed[:, nodes], log.strength[:, nodes], log.together[:, nodes]),
            replies=None,
            pseudo=None,
        )

    @classmethod
    def joined(cls, parts: Sequence["TrustState"], evidence: Evidence) -> "TrustState":
        """Of nodes that have learned one after another, from parts of this evidence."""
        first, over_time = parts[0], ("closed", "strength", "together")
        logs = [torch.cat([getattr(part.log, name) for part in parts], 1) for name in over_time]
        of: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in _FILE}
        of = {name: None if each[0] is None else torch.cat(each) for name, each in of.items()}
        return cls(
            **of,
            memory={name: torch.cat([part.memory[name] for part in parts]) for name in first.memory},
            evidence=evidence.of_true_classes(),
            log=TrustLog(first.log.round, *logs),
        )

    # -- on disk ------------------------------------------------------------------------------------

    def to_tensors(self) -> Tensors:
        """By name, for a checkpoint. The names are those of the first version's files."""
        out = {_FILE[name]: t for name in _FILE if (t := getattr(self, name)) is not None}
        out |= {f"memory/{name}": t for name, t in self.memory.items()}
        out |= {f"evidence/{name}": getattr(self.evidence, name) for name in _EVIDENCE}
        out |= {f"log/{_LOG.get(f.name, f.name)}": getattr(self.log, f.name) for f in fields(self.log)}
        if self.replies is not None:
            out |= {"recall/column": self.replies.column, "recall/replies": self.replies.probabilities}
        if self.pseudo is not None:
            out |= {f"pseudo/{f.name}": getattr(self.pseudo, f.name) for f in fields(self.pseudo)}
        return out

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> "TrustState":
        """As `to_tensors` has named them; what settings of earlier versions added is left out."""
        parts: dict[str, Any] = {name: tensors.get(file) for name, file in _FILE.items()}
        missing = [_FILE[name] for name, t in parts.items() if t is None and name != "typical_margin"]
        if missing:
            raise KeyError(f"no {missing[0]!r}")
        of = {name: tensors[f"evidence/{name}"] for name in _EVIDENCE}
        p_true = of.pop("p_true")
        only = torch.zeros(len(p_true), dtype=torch.int64, device=p_true.device)
        log = {f.name: tensors[f"log/{_LOG.get(f.name, f.name)}"] for f in fields(TrustLog)}
        replies, pseudo = below("recall/", tensors), below("pseudo/", tensors)
        return cls(
            **parts,
            memory=below("memory/", tensors),
            evidence=Evidence(probabilities=p_true[..., None], labels=only, **of),
            log=TrustLog(**log),
            replies=RememberedReplies(replies["column"], replies["replies"]) if replies else None,
            pseudo=PseudoTargets(**pseudo) if pseudo else None,
        )


_FILE = {
    "open": "open",
    "open_votes": "open votes",
    "closed": "closed",
    "closed_votes": "closed votes",
    "strength": "lambda",
    "together": "answers together",
    "validated": "validated",
    "typical_margin": "usual lead",
}
_EVIDENCE = ("mask", "offsets", "rho", "phi", "w", "p_true")
_LOG = {"strength": "lambda"}


def learn_trust(
    weighting: Weighting, memory: Memory | None, evidence: Evidence, s: LNTrustSettings, t: int, nodes: range
) -> TrustState:
    """Fit the weighting to new evidence, from what it remembers on or afresh, and set weights and gates."""
    first = memory is None
    memory = weighting.refresh(
        weighting.start(evidence, nodes) if memory is None else memory, evidence, first
    )
    opened = weighting.weights(memory, evidence, evidence.open)
    closed = weighting.weights(memory, evidence, evidence.mask)
    votes = weighting.votes(memory, evidence, evidence.mask)
    if s.self_share:
        closed = closed * (1.0 - s.self_share)
        closed[:, 0] += s.self_share
        votes = closed
    accuracy = evidence.accuracy
    strength = torch.full_like(accuracy[:, 0], s.strength)
    if s.training_gate:
        a_ens = gates.ensemble_accuracy(opened, accuracy)
        strength = gates.training_gate(s.strength, a_ens, accuracy[:, 0])
    together, validated = gates.deployment_gate(
        s.deployment_gate, evidence, closed, votes, s.evidence, s.prior_wins
    )
    return TrustState(
        open=opened,
        open_votes=weighting.votes(memory, evidence, evidence.open),
        closed=closed,
        closed_votes=votes,
        strength=strength,
        together=together,
        validated=validated,
        typical_margin=blend.typical_margin(evidence, closed) if s.typical_margin else None,
        memory=memory,
        evidence=evidence.of_true_classes(),
        log=TrustLog.of(t, closed, strength, together),
    )
