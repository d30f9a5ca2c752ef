"""The paper's statements, held against runs of every kind."""

from typing import Any

import pytest
from made_up import Scores, made, made_seeds

from lntrust.experiment.reproduction import Claim
from lntrust.report.claims import against_paper, judge
from lntrust.report.rows import Row

ABOVE = {"above": "A", "below": ["B"]}
ABOVE_TWO = {"above": "A", "below": ["B", "C"]}
ALIKE = {"alike": ["A", "B", "C"], "within": 0.02}
NOISY = [0.7, 0.9, 0.8, 0.8]
EVEN = [0.1, 0.4, 0.6, 0.9]
BETTER = [x + 0.02 for x in EVEN]
PAPER = {"sets": ["reading=paper"]}


def row(label: str, *tests: Scores, method: str = "lntrust", **more: object) -> Row:
    """A score or a list of the nodes' for each seed, from 0 on."""
    return Row(label, made_seeds(method, *tests, **more))


A, B = row("A", 0.8, 0.8), row("B", 0.7, 0.7)
POOLED = row("B", 0.799, 0.799, pooled=0.8)
BROKEN = Row("B", [], diverged=[made(seed=seed, test=None, own=None, diverged=7) for seed in (0, 1)])
OTHER_SEEDS = Row("B", [made(seed=1, test=0.7), made(seed=7, test=0.0)])
BEST, BEST_B = row("A", 0.6, 0.6, best=0.9, **PAPER), row("B", 0.8, 0.8, best=0.95, method="uniform", **PAPER)


@pytest.mark.parametrize(("claim", "rows", "outcome", "words"), [
    (ABOVE, [row("A", 0.8, 0.82, 0.84), row("B", 0.7, 0.7, 0.7)], "holds", "A − B: +.120 [+.096, +.144]"),
    (ABOVE, [row("A", 0.7, 0.72), row("B", 0.8, 0.8)], "does not hold", "A − B: -.090 [-.104, -.076]"),
    (ABOVE, [row("A", 0.7, 0.9), row("B", 0.8, 0.75)], "undecided", "A − B: +.025 [-.152, +.202]"),
    # One that is better is enough.
    (ABOVE_TWO, [A, B, row("C", 0.9, 0.9)], "does not hold",
     "A − B: +.100 [+.100, +.100]; A − C: -.100 [-.100, -.100]"),
    (ABOVE_TWO, [A, B, row("C", 0.6, 0.95)], "undecided", None),
    (ABOVE_TWO, [A, B, row("C", 0.6, 0.7)], "holds", None),
    # What is missing, has no seed in common or diverged decides nothing.
    (ABOVE, [B], "not run", "not run: A"),
    (ABOVE, [A, Row("B", [made(seed=5)])], "not run", "the rows have no seeds, nodes or scores in common"),
    (ABOVE, [A, BROKEN], "not run", "without scores: B (seeds 0, 1 diverged at round 7)"),
    # Only common seeds are paired, and node by node: where each is a little better, that is sure.
    (ABOVE, [row("A", 0.1, 0.8), OTHER_SEEDS], "holds", "A − B: +.100 [+.100, +.100]"),
    (ABOVE, [row("A", BETTER, BETTER), row("B", EVEN, EVEN)], "holds", None),
    # Small margins are judged pooled where there are such scores, large ones on the nodes' own test sets.
    (ABOVE, [row("A", NOISY, NOISY, pooled=0.805), POOLED], "holds",
     "A − B: +.005 [+.005, +.005] (pooled; own test sets +.001)"),
    (ABOVE, [row("A", NOISY, NOISY), POOLED], "undecided", None),
    (ABOVE, [row("A", 0.9, 0.9, pooled=0.1), POOLED], "holds", None),
    # LNTrust by its best round, the others by their last, as the paper: one number a seed.
    (ABOVE, [BEST, BEST_B], "holds", "A − B: +.100 [+.100, +.100] (best round, by seed)"),
    (ABOVE, [Row("A", BEST.records[:1]), BEST_B], "undecided",
     "A − B: +.100 [-inf, +inf] (best round, one seed)"),
    (ALIKE, [row("A", 0.80), row("B", 0.81), row("C", 0.815)], "holds",
     ".800 to .815, .015 apart; alike means within .020"),
    (ALIKE, [row("A", 0.80), row("B", 0.81), row("C", 0.83)], "does not hold",
     ".800 to .830, .030 apart; alike means within .020"),
    (ALIKE, [row("A", 0.80), row("B", 0.81), row("C", [None] * 4)], "not run", "not all rows have a score"),
    # Of the nodes' own models.
    (ABOVE | {"on": "self"}, [row("A", 0.1, own=0.8), row("B", 0.9, own=0.7)], "holds", None),
    ({"alike": ["A", "B"], "within": 0.2, "on": "self"}, [row("A", 0.1, own=0.8), row("B", 0.9, own=0.7)],
     "holds", None),
])  # fmt: skip
def test_verdicts(claim: dict[str, Any], rows: list[Row], outcome: str, words: str | None) -> None:
    verdict = judge(Claim(says="as it says", **claim), rows)
    assert (verdict.says, verdict.outcome) == ("as it says", outcome)
    assert words is None or verdict.words == words


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


@pytest.mark.parametrize("wrong", [{}, {"above": "A"}, {"above": "A", "below": ["B"], "alike": ["A", "B"]}])
def test_a_claim_is_of_one_kind(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="either above and below, or alike"):
        Claim(says="…", **wrong)  # type: ignore[arg-type]
