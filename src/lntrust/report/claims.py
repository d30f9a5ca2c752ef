"""What the paper says about its rows, held against ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lntrust.core.text import score_text
from lntrust.experiment.reproduction import Claim
from lntrust.experiment.statistics import Interval, paired_interval
from lntrust.report.rows import Row, difference

Outcome = Literal["holds", "does not hold", "undecided", "not run"]
SMALL = 0.01  # smaller margins on the nodes' own, small test sets are judged on the union of all of them


@dataclass(frozen=True)
class Verdict:
    """A claim, and what became of it."""

    says: str
    outcome: Outcome
    words: str


def judge(claim: Claim, rows: Sequence[Row]) -> Verdict:
    """Hold a claim against the rows of its panel."""
    by_label = {row.label: row for row in rows}
    named = [*([claim.above] if claim.above else []), *claim.below, *claim.alike]
    missing = ", ".join(label for label in named if label not in by_label)
    if missing:
        return Verdict(claim.says, "not run", f"not run: {missing}")
    chosen = [by_label[label] for label in named]
    broken = ", ".join(f"{row.label} ({row.what_diverged})" for row in chosen if not row.records)
    if broken:
        return Verdict(claim.says, "not run", f"without scores: {broken}")
    outcome, words = _alike(claim, chosen) if claim.alike else _above(claim, *chosen)
    return Verdict(claim.says, outcome, words)


def _above(claim: Claim, best: Row, *others: Row) -> tuple[Outcome, str]:
    words, margins = [], []
    for other in others:
        margin, how = _margin(best, other, claim.on)
        if margin is None:
            return "not run", "the rows have no seeds, nodes or scores in common"
        words.append(f"{best.label} − {other.label}: {signed(margin)}{how}")
        margins.append(margin)
    outcome: Outcome = "holds" if all(margin.above_zero for margin in margins) else "undecided"
    if any(margin.below_zero for margin in margins):
        outcome = "does not hold"
    return outcome, "; ".join(words)


def _margin(a: Row, b: Row, on: str) -> tuple[Interval | None, str]:
    """How far a is above b, paired by seed and node, and what that was judged on if not the usual score."""
    common = set(a.seeds) & set(b.seeds)
    ours, theirs = ([r for r in row.records if r.seed in common] for row in (a, b))
    if on == "test" and (a.test_selected or b.test_selected):  # one number a seed is all there is
        pairs = zip(ours, theirs, strict=True)
        scores = [(x.summary[a.test_score], y.summary[b.test_score]) for x, y in pairs]
        by_seed = [np.array([x - y]) for x, y in scores if x is not None and y is not None]
        if len(by_seed) == 1:  # one number says nothing of its spread
            return Interval(float(by_seed[0][0]), -np.inf, np.inf), " (best round, one seed)"
        return paired_interval(by_seed), " (best round, by seed)"
    plain = difference(ours, theirs, on)
    if plain is not None and abs(plain.mean) < SMALL:
        pooled = difference(ours, theirs, f"{on}_pooled")
        if pooled is not None:
            return pooled, f" (pooled; own test sets {score_text(plain.mean, sign=True)})"
    return plain, ""


def _alike(claim: Claim, rows: Sequence[Row]) -> tuple[Outcome, str]:
    spreads = [row.test if claim.on == "test" else row.spread("self") for row in rows]
    means = [spread.mean for spread in spreads if spread is not None]
    if len(means) < len(rows):
        return "not run", "not all rows have a score"
    low, high, apart = min(means), max(means), max(means) - min(means)
    range_ = f"{score_text(low)} to {score_text(high)}, {score_text(apart)} apart"
    words = f"{range_}; alike means within {score_text(claim.within)}"
    return "holds" if apart <= claim.within else "does not hold", words


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
