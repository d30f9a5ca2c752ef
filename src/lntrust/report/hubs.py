"""Hubs and leaves: how strong each are, how far leaves trust hubs, and what leaves gain beside them.

Where a study deals out kinds of learners by degree, hubs are the nodes with the first kind, and leaves all
others. Leaves without a hub among their neighbours are left out: they could trust none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from lntrust.experiment.metrics import mean
from lntrust.experiment.statistics import Interval, paired_interval
from lntrust.experiment.store import Record
from lntrust.report.rows import Row, Spread, spread

Trust = list[dict[str, float]]  # as LNTrust reports it: α_ij by member, node by node


class Sides(NamedTuple):
    """Which nodes are hubs, and which are leaves beside one."""

    hub: Bool[ndarray, "n"]
    leaf: Bool[ndarray, "n"]


class Weight(NamedTuple):
    """Σ_{j a hub} α_ij, a mean over leaves, and what equal weights would come to."""

    trust: float
    equal: float

    @property
    def ratio(self) -> float:
        return self.trust / self.equal


@dataclass(frozen=True)
class Hubs:
    """Of one row. Scores are pooled where there are such scores, as wherever single nodes are judged."""

    hubs_self: Spread | None
    leaves_self: Spread | None
    leaves_gain: Interval | None  # their Test − Independent's, paired by seed and node
    members: Weight | None  # over N̄(i), as deployed; none where nobody reports trust
    teachers: Weight | None  # over N(i), as in distillation


def hubs_of(row: Row) -> Hubs | None:
    """None where there are no hubs, or no leaves beside them."""
    sides = [found for record in row.records if (found := _sides(record)) is not None]
    if not sides or len(sides) < len(row.records):
        return None
    (own,), gain = _scores("self", row.records), None
    if row.compared:
        each = zip(*_scores("test", row.records, row.independent), sides, strict=True)
        gain = paired_interval([(ours - theirs)[leaf] for ours, theirs, (_, leaf) in each])
    trust = [record.summary["method_report"].get("trust") for record in row.records]
    return Hubs(
        hubs_self=spread([mean(score[hub]) for score, (hub, _) in zip(own, sides, strict=True)]),
        leaves_self=spread([mean(score[leaf]) for score, (_, leaf) in zip(own, sides, strict=True)]),
        leaves_gain=gain,
        members=None if None in trust else _on_hubs(trust, sides, own=True),
        teachers=None if None in trust else _on_hubs(trust, sides, own=False),
    )


def weakened(rows: Sequence[Row]) -> bool:
    """Whether the rows' studies make leaves weaker by a known amount: their tables then speak of hubs."""
    studies = [record.identity["study"] for row in rows for record in row.runs]
    return any("noise" in learner for study in studies for learner in study["population"]["learners"])


def _sides(record: Record) -> Sides | None:
    population = record.identity["study"]["population"]
    if population["assign"] != "by_degree" or len(population["learners"]) == 1 or not record.world:
        return None
    hub = np.array(record.world["kinds"]) == 0
    beside = np.zeros_like(hub)
    for a, b in record.world["edges"]:
        beside[a] |= hub[b]
        beside[b] |= hub[a]
    leaf = beside & ~hub
    return Sides(hub, leaf) if leaf.any() else None


def _scores(score: str, *rows: Sequence[Record]) -> list[list[Float[ndarray, "n"]]]:
    """Of single nodes: pooled where all of these runs have pooled ones."""
    tables = [[record.summary["per_node"] for record in records] for records in rows]
    pooled = all(table[f"{score}_pooled"] for several in tables for table in several)
    name = f"{score}_pooled" if pooled else score
    return [[np.array(table[name], dtype=float) for table in several] for several in tables]


def _on_hubs(trust: Sequence[Trust], sides: Sequence[Sides], *, own: bool) -> Weight | None:
    """A mean over seeds of the mean over leaves: with their trust in themselves, or of that in others."""
    by_seed = []
    for of, (hub, leaf) in zip(trust, sides, strict=True):
        found = []
        for i in np.flatnonzero(leaf).tolist():
            members = {int(j): alpha for j, alpha in of[i].items() if own or int(j) != i}
            on_hubs, whole = [alpha for j, alpha in members.items() if hub[j]], sum(members.values())
            if whole > 0:
                found.append((sum(on_hubs) / whole, len(on_hubs) / len(members)))
        by_seed += [np.mean(found, axis=0)] if found else []
    return Weight(*np.mean(by_seed, axis=0).tolist()) if by_seed else None
