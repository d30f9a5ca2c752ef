"""The paper's statements, held against runs of every kind."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import Scores, made, made_seeds

from lntrust.experiment.reproduction import Claim
from lntrust.experiment.statistics import seed_interval
from lntrust.report.claims import against_paper, judge
from lntrust.report.rows import Row

ABOVE = {"above": "A", "below": ["B"]}
ABOVE_TWO = {"above": "A", "below": ["B", "C"]}
ALIKE = {"alike": ["A", "B", "C"], "within": 0.02}
NOISY = [0.7, 0.9, 0.8, 0.8]
SPREAD = [0.2, 0.5, 0.6, 1.0]
EVEN = [0.1, 0.4, 0.6, 0.9]
BETTER = [x + 0.02 for x in EVEN]
PAPER = {"sets": ["reading=paper"]}
PEOPLE = {"study": "wearables"}
IMPORTANCE = [[0.0, 0.1, 0.2, 0.3, 0.0, 0.15], [0.0, 0.1, 0.2, 0.35, 0.0, 0.1]]
KL_ABOVE_DEGREE = {"above": "KL", "below": ["degree"], "on": "importance", "of": "B"}


def row(label: str, *tests: Scores, method: str = "lntrust", **more: object) -> Row:
    """A score or a list of the nodes' for each seed, from 0 on."""
    return Row(label, made_seeds(method, *tests, **more))


A, B = row("A", 0.8, 0.8), row("B", 0.7, 0.7)
POOLED = row("B", 0.799, 0.799, pooled=0.8)
BROKEN = Row("B", [], diverged=[made(seed=seed, test=None, own=None, diverged=7) for seed in (0, 1)])
OTHER_SEEDS = Row("B", [made(seed=1, test=0.7), made(seed=7, test=0.0)])
BEST, BEST_B = row("A", 0.6, 0.6, best=0.9, **PAPER), row("B", 0.8, 0.8, best=0.95, method="uniform", **PAPER)


@pytest.mark.parametrize(("claim", "rows", "outcome", "words"), [
    (ABOVE, [row("A", 0.8, 0.82, 0.84), row("B", 0.7, 0.7, 0.7)], "holds",
     "A − B: +.120 [+.096, +.144], t [+.070, +.170]"),
    (ABOVE, [row("A", 0.6, 0.62, 0.61), row("B", 0.8, 0.8, 0.8)], "does not hold",
     "A − B: -.190 [-.202, -.178], t [-.215, -.165]"),
    # Both intervals must say so: two seeds that differ a little are few, whatever a bootstrap of them says;
    # two that are the same by chance are few, too, where their nodes differ.
    (ABOVE, [row("A", 0.7, 0.72), row("B", 0.8, 0.8)], "undecided",
     "A − B: -.090 [-.104, -.076], t [-.217, +.037]"),
    (ABOVE, [row("A", SPREAD, SPREAD), row("B", 0.5, 0.5)], "undecided", None),
    (ABOVE, [row("A", 0.7, 0.9), row("B", 0.8, 0.75)], "undecided", None),
    # Of one seed nothing is said, however sure its nodes are.
    (ABOVE, [row("A", 0.9), row("B", 0.5)], "undecided", "A − B: +.400 [+.400, +.400], one seed"),
    # One that is better is enough.
    (ABOVE_TWO, [A, B, row("C", 0.9, 0.9)], "does not hold",
     "A − B: +.100 [+.100, +.100], t [+.100, +.100]; A − C: -.100 [-.100, -.100], t [-.100, -.100]"),
    (ABOVE_TWO, [A, B, row("C", 0.6, 0.95)], "undecided", None),
    (ABOVE_TWO, [A, B, row("C", 0.6, 0.6)], "holds", None),
    # What is missing, has no seed in common or diverged decides nothing.
    (ABOVE, [B], "not run", "not run: A"),
    (ABOVE, [A, Row("B", [made(seed=5)])], "not run", "the rows have no seeds, nodes or scores in common"),
    (ABOVE, [A, BROKEN], "not run", "without scores: B (seeds 0, 1 diverged at round 7)"),
    # Only common seeds are paired, and node by node: where each is a little better, that is sure.
    (ABOVE, [row("A", 0.1, 0.8), OTHER_SEEDS], "undecided", "A − B: +.100 [+.100, +.100], one seed"),
    (ABOVE, [row("A", BETTER, BETTER), row("B", EVEN, EVEN)], "holds", None),
    # Small margins are judged pooled where there are such scores, large ones on the nodes' own test sets.
    (ABOVE, [row("A", NOISY, NOISY, pooled=0.805), POOLED], "holds",
     "A − B: +.005 [+.005, +.005], t [+.005, +.005] (pooled; own test sets +.001)"),
    (ABOVE, [row("A", NOISY, NOISY), POOLED], "undecided", None),
    (ABOVE, [row("A", 0.9, 0.9, pooled=0.1), POOLED], "holds", None),
    # Where nodes are people, pooled scores would ask them about others.
    (ABOVE, [row("A", 0.801, 0.801, pooled=0.9, **PEOPLE), row("B", 0.799, 0.799, pooled=0.95, **PEOPLE)],
     "holds", "A − B: +.002 [+.002, +.002], t [+.002, +.002] (pooled -.050)"),
    # LNTrust by its best round, the others by their last, as the paper: one number a seed.
    (ABOVE, [BEST, BEST_B], "holds", "A − B: +.100 [+.100, +.100], t [+.100, +.100] (best round)"),
    (ABOVE, [Row("A", BEST.records[:1]), BEST_B], "undecided",
     "A − B: +.100 [+.100, +.100], one seed (best round)"),
    # Alike is what cannot be further apart than the margin; what cannot be told apart is undecided.
    (ALIKE, [A, row("B", 0.81, 0.81), row("C", 0.815, 0.815)], "holds",
     "A − B: -.010 [-.010, -.010], t [-.010, -.010]; A − C: -.015 [-.015, -.015], t [-.015, -.015]; "
     "B − C: -.005 [-.005, -.005], t [-.005, -.005]; alike means within ±.020"),
    (ALIKE, [A, row("B", 0.81, 0.81), row("C", 0.825, 0.825)], "does not hold", None),
    (ALIKE, [A, row("B", 0.81, 0.81), row("C", 0.80, 0.83)], "undecided", None),
    (ALIKE, [row("A", 0.80), row("B", 0.80), row("C", 0.80)], "undecided", None),
    (ALIKE, [A, row("B", 0.81, 0.81), row("C", [None] * 4, [None] * 4)], "not run", None),
    ({"alike": ["B", "C"], "to": "A", "within": 0.02},
     [A, row("B", 0.79, 0.79), row("C", 0.812, 0.812)], "holds",
     "B − A: -.010 [-.010, -.010], t [-.010, -.010]; C − A: +.012 [+.012, +.012], t [+.012, +.012]; "
     "alike means within ±.020"),
    # Of the nodes' own models.
    (ABOVE | {"on": "self"}, [row("A", 0.1, 0.1, own=0.8), row("B", 0.9, 0.9, own=0.7)], "holds", None),
    ({"alike": ["A", "B"], "within": 0.2, "on": "self"},
     [row("A", 0.1, 0.1, own=0.8), row("B", 0.9, 0.9, own=0.7)], "holds", None),
    # Per gigabyte that a node sends: 4 nodes, 8 GB of replies or 80 of parameters, and of queries nothing.
    (ABOVE | {"on": "per_gb"}, [row("A", 0.8, 0.8, sent={"reply": 8 * 10**9, "query": 10**12}),
                                row("B", 0.9, 0.9, sent={"parameters": 80 * 10**9})], "holds",
     "A − B: +0.36 [+0.36, +0.36], t [+0.36, +0.36]"),
    (ABOVE | {"on": "per_gb"}, [A, row("B", 0.9, 0.9, sent={"reply": 8})], "not run", None),
    # Features of one row, at each node: overlap, probe accuracy, weighted, KL, entropy, degree.
    (KL_ABOVE_DEGREE, [A, row("B", 0.8, 0.8, method_report={"importance_per_node": IMPORTANCE})], "holds",
     "KL − degree: +.2000 [+.1293, +.2707], t [+.2000, +.2000]"),
    (KL_ABOVE_DEGREE, [A, B], "not run", None),
])  # fmt: skip
def test_verdicts(claim: dict[str, Any], rows: list[Row], outcome: str, words: str | None) -> None:
    verdict = judge(Claim(says="as it says", **claim), rows)
    assert (verdict.says, verdict.outcome) == ("as it says", outcome)
    assert words is None or verdict.words == words


gaps = st.lists(st.integers(-12, 12).map(lambda k: k / 64), min_size=2, max_size=5)  # exact


@given(gaps, st.integers(1, 40).map(lambda k: k / 128))
def test_alike_and_above_are_of_the_wider_interval(by_seed: list[float], margin: float) -> None:
    """Swapped sides swap the verdict; a wider margin only ever helps to be alike; and never both ways."""
    a, b = row("A", *(0.5 + gap for gap in by_seed)), row("B", *[0.5] * len(by_seed))
    t = seed_interval([np.array([gap]) for gap in by_seed])
    assert t is not None
    above = [judge(Claim(says="s", above=x, below=[y]), [a, b]).outcome for x, y in ("AB", "BA")]
    assert sorted(above) in (["does not hold", "holds"], ["undecided", "undecided"])
    if not (t.above_zero or t.below_zero):
        assert above[0] == "undecided", "what seeds alone do not bear is not said"
    alike = [judge(Claim(says="s", alike=["A", "B"], within=m), [a, b]).outcome for m in (margin, 2 * margin)]
    if alike[0] == "holds":
        assert alike[1] == "holds"
        assert t.within(margin)
    if alike[1] == "does not hold":
        assert alike[0] == "does not hold"
        assert above[0] != "undecided", "far apart is apart"


@pytest.mark.parametrize(("ours", "paper", "words"), [
    (row("A", 0.80, 0.82), {"test": 0.825, "test_std": 0.01}, "agrees"),
    (row("A", 0.80, 0.80), {"test": 0.807}, "agrees"),
    (row("A", 0.80, 0.80), {"test": 0.83}, "lower by .030"),
    (row("A", 0.90, 0.90), {"test": 0.83, "test_std": 0.02}, "higher by .070"),
    (row("A", 0.90, 0.90), {"self": 0.83}, None),
    (row("A", 0.5, 0.5, best=0.83, **PAPER), {"test": 0.83}, "agrees"),  # by its best round
])  # fmt: skip
def test_against_the_paper(ours: Row, paper: dict[str, float], words: str | None) -> None:
    assert against_paper(Row("A", ours.records, paper)) == words


@pytest.mark.parametrize(("wrong", "words"), [
    ({}, "either above and below, or alike"),
    ({"above": "A"}, "either above and below, or alike"),
    ({"above": "A", "below": ["B"], "alike": ["A", "B"]}, "either above and below, or alike"),
    ({"above": "A", "below": ["B"], "to": "C"}, "to is of those that are alike"),
    ({"above": "KL", "below": ["degree"], "on": "importance"}, "needs of: a row"),
    ({"above": "A", "below": ["B"], "of": "A"}, "needs of: a row"),
    ({"above": "KL", "below": ["size"], "on": "importance", "of": "A"}, "speaks of 'size'; features are"),
    ({"alike": ["A", "B"], "within": 0.0}, "greater than 0"),
])  # fmt: skip
def test_a_claim_is_of_one_kind(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Claim(says="…", **wrong)  # type: ignore[arg-type]
