"""What the paper says about its rows, held against ours.

Only intervals decide, and two of them must agree: the bootstrap over seeds and nodes, which three seeds
make a little too narrow, and Student's t over the seeds' means, which takes seeds for the units and, where
there are few, may be narrow by chance. So the wider of the two counts at each end, and of one seed nothing
is said.

A row is *above* another when the whole interval is above zero. Rows are *alike* when the whole interval of
each difference lies inside ± a stated margin, and are not when one lies outside; two rows that cannot be
told apart are not alike for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lntrust.core.text import number_text, score_text
from lntrust.experiment.reproduction import Claim
from lntrust.experiment.statistics import Interval, paired_interval, seed_interval
from lntrust.experiment.store import Record
from lntrust.report.nodes import differences, per_node
from lntrust.report.rows import Row
from lntrust.trust.features import FEATURES

Outcome = Literal["holds", "does not hold", "undecided", "not run"]
SMALL = 0.01  # smaller margins on the nodes' own, small test sets are judged on the union of all of them
_NOT_RUN = "the rows have no seeds, nodes or scores in common"


@dataclass(frozen=True)
class Verdict:
    """A claim, and what became of it."""

    says: str
    outcome: Outcome
    words: str
    ours: bool = False  # a claim that the paper does not make


class Side(NamedTuple):
    """What a claim compares: a row, or a feature of one."""

    label: str
    row: Row


class Margin(NamedTuple):
    """How far one side is above another: the same mean in two intervals."""

    nodes: Interval  # by the bootstrap over seeds and nodes
    seeds: Interval  # by Student's t over seeds
    how: str = ""  # what it was judged on, if not the usual score

    @property
    def decides(self) -> Interval:
        """The wider."""
        low, high = min(self.nodes.low, self.seeds.low), max(self.nodes.high, self.seeds.high)
        return Interval(self.nodes.mean, low, high)


def judge(claim: Claim, rows: Sequence[Row]) -> Verdict:
    """Hold a claim against the rows of its panel."""
    outcome, words = _judge(claim, {row.label: row for row in rows})
    return Verdict(claim.says, outcome, words, claim.ours)


def _judge(claim: Claim, by_label: dict[str, Row]) -> tuple[Outcome, str]:
    of = {name: claim.of or name for name in claim.names}  # whose features
    if missing := ", ".join(dict.fromkeys(row for row in of.values() if row not in by_label)):
        return "not run", f"not run: {missing}"
    sides = {name: Side(name, by_label[row]) for name, row in of.items()}
    chosen = {id(side.row): side.row for side in sides.values()}.values()
    if broken := ", ".join(f"{row.label} ({row.what_diverged})" for row in chosen if not row.records):
        return "not run", f"without scores: {broken}"
    pairs = [(sides[a], sides[b]) for a, b in _pairs(claim)]
    margins = [_margin(*pair, claim.on) for pair in pairs]
    known = [margin for margin in margins if margin is not None]
    if len(known) < len(margins):
        return "not run", _NOT_RUN
    words = "; ".join(f"{a.label} − {b.label}: {_words(m, claim.on)}"
                      for (a, b), m in zip(pairs, known, strict=True))  # fmt: skip
    deciding = [margin.decides for margin in known]
    if claim.alike:
        words += f"; alike means within ±{score_text(claim.within)}"
        held = [margin.within(claim.within) for margin in deciding]
        refuted = [margin.beyond(claim.within) for margin in deciding]
    else:
        held, refuted = (
            [getattr(margin, side) for margin in deciding] for side in ("above_zero", "below_zero")
        )
    return "does not hold" if any(refuted) else "holds" if all(held) else "undecided", words


def _pairs(claim: Claim) -> list[tuple[str, str]]:
    """Which are compared: the better one with each other; those alike each with each, or with one."""
    if claim.above:
        return [(claim.above, other) for other in claim.below]
    if claim.to:
        return [(other, claim.to) for other in claim.alike]
    return list(combinations(claim.alike, 2))


def _margin(a: Side, b: Side, on: str) -> Margin | None:
    """How far a is above b, paired by seed and, where there are such scores, by node."""
    common = set(a.row.seeds) & set(b.row.seeds)
    ours, theirs = ([r for r in side.row.records if r.seed in common] for side in (a, b))
    pairs = list(zip(ours, theirs, strict=True))
    if on == "importance":
        return _of([_importance(x, a.label) - _importance(y, b.label) for x, y in pairs])
    if on == "per_gb":
        return _of([_per_gigabyte(x) - _per_gigabyte(y) for x, y in pairs])
    if on == "test" and (a.row.test_selected or b.row.test_selected):  # one number a seed is all there is
        scores = [(x.summary[a.row.test_score], y.summary[b.row.test_score]) for x, y in pairs]
        by_seed = [np.array([x - y]) for x, y in scores if x is not None and y is not None]
        return _of(by_seed, " (best round)")
    plain, pooled = (_of(differences(ours, theirs, f"{on}{more}")) for more in ("", "_pooled"))
    if plain is None or pooled is None:
        return plain
    if a.row.on_own_tests:
        return plain._replace(how=f" (pooled {_plus(pooled)})")
    if abs(plain.nodes.mean) < SMALL:
        return pooled._replace(how=f" (pooled; own test sets {_plus(plain)})")
    return plain


def _of(by_seed: list[Float[ndarray, "n"]] | None, how: str = "") -> Margin | None:
    nodes, seeds = paired_interval(by_seed or []), seed_interval(by_seed or [])
    return None if nodes is None or seeds is None else Margin(nodes, seeds, how)


def _importance(record: Record, feature: str) -> Float[ndarray, "n"]:
    """The permutation importance of a feature, node by node; of a run that has not reported it, no number."""
    each = (record.summary.get("method_report") or {}).get("importance_per_node")
    return np.array(each, float)[:, FEATURES.index(feature)] if each else np.array([np.nan])


def _per_gigabyte(record: Record) -> Float[ndarray, "n"]:
    """Each node's Test per GB that a node sends, as the paper counts: all payload but queries."""
    sent = record.summary["bytes"]
    answers = sum(sent[kind] for kind in ("reply", "parameters", "anchors")) / record.summary["nodes"]
    return per_node(record, "test") / (answers / 1e9 or np.nan)  # who sends nothing has no such number


def _words(margin: Margin, on: str) -> str:
    """+.045 [+.030, +.060], t [+.010, +.080]"""
    write = (
        _large if on == "per_gb" else lambda value: score_text(value, 3 if on != "importance" else 4, True)
    )
    (mean, *nodes), (_, *seeds) = ([write(value) for value in each] for each in margin[:2])
    t = f"t [{', '.join(seeds)}]" if np.isfinite(margin.seeds.low) else "one seed"
    return f"{mean} [{', '.join(nodes)}], {t}{margin.how}"


def _large(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{number_text(abs(value))}"


def _plus(margin: Margin) -> str:
    return score_text(margin.nodes.mean, sign=True)


def against_paper(row: Row) -> str | None:
    """In words, where our Test stands beside the paper's."""
    printed, ours = row.paper.get("test"), row.test
    if printed is None or ours is None:
        return None
    # Standard errors of the two means; the paper has three seeds.
    noise = float(np.hypot(ours.std / len(row.records) ** 0.5, row.paper.get("test_std", 0.0) / 3**0.5))
    gap = ours.mean - printed
    if abs(gap) <= max(2 * noise, SMALL):
        return "agrees"
    return f"{'higher' if gap > 0 else 'lower'} by {score_text(abs(gap))}"


def signed(interval: Interval) -> str:
    """+.045 [+.030, +.060]"""
    mean, low, high = (score_text(value, sign=True) for value in interval)
    return f"{mean} [{low}, {high}]"
