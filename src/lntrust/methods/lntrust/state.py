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

    def __add__(self, later: "TrustLog") -> "TrustLog":
        return TrustLog(*(torch.cat([getattr(log, f.name) for log in (self, later)]) for f in fields(self)))

    def last(self, count: int) -> "TrustLog":
        return TrustLog(*(getattr(self, f.name)[-count:] for f in fields(self)))


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

    @classmethod
    def joined(cls, parts: Sequence["TrustState"], evidence: Evidence) -> "TrustState":
        """Of nodes that have learned one after another, from parts of this evidence."""
        each = [part.to_tensors() for part in parts]
        axis = {name: int(name.startswith("log/")) for name in each[0] if name != "log/round"}
        whole = {name: torch.cat([tensors[name] for tensors in each], of) for name, of in axis.items()}
        one = cls.from_tensors(whole | {"log/round": parts[0].log.round})
        return replace(one, evidence=evidence.of_true_classes())

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
        parts: dict[str, Any] = {name: tensors[file] for name, file in _FILE.items() if name != _OPTIONAL}
        of = {name: tensors[f"evidence/{name}"] for name in _EVIDENCE}
        p_true = of.pop("p_true")
        only = torch.zeros(len(p_true), dtype=torch.int64, device=p_true.device)
        log = {f.name: tensors[f"log/{_LOG.get(f.name, f.name)}"] for f in fields(TrustLog)}
        replies, pseudo = below("recall/", tensors), below("pseudo/", tensors)
        return cls(
            **parts,
            typical_margin=tensors.get(_FILE[_OPTIONAL]),
            memory=below("memory/", tensors),
            evidence=Evidence(probabilities=p_true[..., None], labels=only, **of),
            log=TrustLog(**log),
            replies=RememberedReplies(replies["column"], replies["replies"]) if replies else None,
            pseudo=PseudoTargets(**pseudo) if pseudo else None,
        )


_OPTIONAL = "typical_margin"
_OTHERS = {"strength": "lambda", "together": "answers together", _OPTIONAL: "usual lead"}
_PARTS = ("open", "open_votes", "closed", "closed_votes", "strength", "together", "validated", _OPTIONAL)
_FILE = {name: _OTHERS.get(name, name.replace("_", " ")) for name in _PARTS}
_EVIDENCE = ("mask", "offsets", "rho", "phi", "w", "p_true")
_LOG = {"strength": "lambda"}


def learn_trust(
    weighting: Weighting, memory: Memory | None, evidence: Evidence, s: LNTrustSettings, t: int, nodes: range
) -> TrustState:
    """Fit the weighting to new evidence, from what it remembers on or afresh, and set weights and gates."""
    before = weighting.start(evidence, nodes) if memory is None else memory
    memory = weighting.refresh(before, evidence, first=memory is None)
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
        log=TrustLog(torch.tensor([t], device=closed.device), closed[None], strength[None], together[None]),
    )
