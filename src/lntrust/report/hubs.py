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

from lntrust.experiment.statistics import Interval, paired_interval
from lntrust.experiment.store import Record
from lntrust.report.rows import Row, Spread, spread


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
    worlds = [(record, *sides) for record in row.records if (sides := _sides(record)) is not None]
    if not worlds or len(worlds) < len(row.records):
        return None
    own = zip(_scores(row.records, "self"), worlds, strict=True)
    sides = [(np.nanmean(score[hub]), np.nanmean(score[leaf])) for score, (_, hub, leaf) in own]
    gains = None
    if row.compared:
        tests = _scores([*row.records, *row.independent], "test")
        pairs = zip(tests, tests[len(worlds) :], worlds, strict=False)
        gains = [(ours - theirs)[leaf] for ours, theirs, (*_, leaf) in pairs]
    reports = [(record.summary["method_report"].get("trust"), hub, leaf) for record, hub, leaf in worlds]
    known = [(trust, hub, leaf) for trust, hub, leaf in reports if trust is not None]
    return Hubs(
        hubs_self=spread([float(of_hubs) for of_hubs, _ in sides]),
        leaves_self=spread([float(of_leaves) for _, of_leaves in sides]),
        leaves_gain=None if gains is None else paired_interval(gains),
        members=_weight([_on_hubs(*each, own=True) for each in known]),
        teachers=_weight([_on_hubs(*each, own=False) for each in known]),
    )


def weakened(rows: Sequence[Row]) -> bool:
    """Whether the rows' studies make leaves weaker by a known amount: their tables then speak of hubs."""
    studies = [record.identity["study"] for row in rows for record in row.runs]
    return any("noise" in learner for study in studies for learner in study["population"]["learners"])


def _sides(record: Record) -> tuple[Bool[ndarray, "n"], Bool[ndarray, "n"]] | None:
    """Which nodes are hubs, and which are leaves beside one."""
    population = record.identity["study"]["population"]
    if population["assign"] != "by_degree" or len(population["learners"]) == 1 or not record.world:
        return None
    hub, beside = np.array(record.world["kinds"]) == 0, np.zeros(len(record.world["kinds"]), dtype=bool)
    for a, b in record.world["edges"]:
        beside[a] |= hub[b]
        beside[b] |= hub[a]
    leaf = beside & ~hub
    return (hub, leaf) if leaf.any() else None


def _scores(records: Sequence[Record], score: str) -> list[Float[ndarray, "n"]]:
    """Of single nodes: pooled where all of these runs have pooled ones."""
    tables = [record.summary["per_node"] for record in records]
    name = f"{score}_pooled" if all(table[f"{score}_pooled"] for table in tables) else score
    return [np.array(table[name], dtype=float) for table in tables]


def _on_hubs(
    trust: list[dict[str, float]], hub: Bool[ndarray, "n"], leaf: Bool[ndarray, "n"], *, own: bool
) -> Weight | None:
    """A mean over the leaves of one world, with their trust in themselves, or of what they have in others."""
    each = []
    for i in np.flatnonzero(leaf).tolist():
        members = {int(j): alpha for j, alpha in trust[i].items() if own or int(j) != i}
        on_hubs, whole = [alpha for j, alpha in members.items() if hub[j]], sum(members.values())
        if whole > 0:
            each.append((sum(on_hubs) / whole, len(on_hubs) / len(members)))
    return Weight(*np.mean(each, axis=0).tolist()) if each else None


def _weight(by_seed: list[Weight | None]) -> Weight | None:
    known = [weight for weight in by_seed if weight is not None]
    return Weight(*np.mean(known, axis=0).tolist()) if known else None
