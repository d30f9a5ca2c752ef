"""The paper's statements, held against runs of every kind."""

from typing import Any

import pytest
from made_up import Scores, made, made_seeds

from lntrust.experiment.reproduction import Claim
from lntrust.report.claims import against_paper, judge
from lntrust.report.rows import Row

ABOVE = Claim(says="A is best", above="A", below=["B"])


def row(label: str, *tests: Scores, method: str = "lntrust", **more: object) -> Row:
    """A score or a list of the nodes' for each seed, from 0 on."""
    return Row(label, made_seeds(method, *tests, **more))


class TestAbove:
    @pytest.mark.parametrize(
        ("a", "b", "outcome", "words"),
        [
            ((0.8, 0.82, 0.84), (0.7, 0.7, 0.7), "holds", "+.120 [+.096, +.144]"),
            ((0.7, 0.72), (0.8, 0.8), "does not hold", "-.090 [-.104, -.076]"),
            ((0.7, 0.9), (0.8, 0.75), "undecided", "+.025 [-.152, +.202]"),
        ],
    )
    def test_outcomes(self, a: tuple[float], b: tuple[float], outcome: str, words: str) -> None:
        verdict = judge(ABOVE, [row("A", *a), row("B", *b)])
        assert (verdict.says, verdict.outcome, verdict.words) == ("A is best", outcome, f"A − B: {words}")

    def test_above_each_of_several(self) -> None:
        claim = Claim(says="A is best", above="A", below=["B", "C"])
        a, low, high = row("A", 0.8, 0.8), row("B", 0.7, 0.7), row("C", 0.9, 0.9)
        verdict = judge(claim, [a, low, high])
        assert verdict.outcome == "does not hold", "one that is better is enough"
        assert verdict.words == "A − B: +.100 [+.100, +.100]; A − C: -.100 [-.100, -.100]"
        assert judge(claim, [a, low, row("C", 0.6, 0.95)]).outcome == "undecided"
        assert judge(claim, [a, low, row("C", 0.6, 0.7)]).outcome == "holds"

    def test_not_run(self) -> None:
        """What is missing, has no seed in common or diverged decides nothing."""
        a = row("A", 0.8, 0.8)
        broken = [made(seed=seed, test=None, own=None, diverged=7) for seed in (0, 1)]
        for rows, words in (
            ([row("B", 0.8)], "not run: A"),
            ([a, Row("B", [made(seed=5)])], "the rows have no seeds, nodes or scores in common"),
            ([a, Row("B", [], diverged=broken)], "without scores: B (seeds 0, 1 diverged at round 7)"),
        ):
            verdict = judge(ABOVE, rows)
            assert (verdict.outcome, verdict.words) == ("not run", words)

    def test_only_common_seeds_are_paired(self) -> None:
        b = Row("B", [made(seed=1, test=0.7), made(seed=7, test=0.0)])
        verdict = judge(ABOVE, [row("A", 0.1, 0.8), b])
        assert verdict.words == "A − B: +.100 [+.100, +.100]"

    def test_node_by_node(self) -> None:
        """Nodes differ much, and each is a little better: paired, that is sure."""
        b = [0.1, 0.4, 0.6, 0.9]
        a = [x + 0.02 for x in b]
        assert judge(ABOVE, [row("A", a, a), row("B", b, b)]).outcome == "holds"

    def test_small_margins_are_judged_pooled(self) -> None:
        noisy = [0.7, 0.9, 0.8, 0.8]
        a, b = row("A", noisy, noisy, pooled=0.805), row("B", 0.799, 0.799, pooled=0.8)
        verdict = judge(ABOVE, [a, b])
        assert verdict.outcome == "holds"
        assert verdict.words == "A − B: +.005 [+.005, +.005] (pooled; own test sets +.001)"
        assert judge(ABOVE, [row("A", noisy, noisy), b]).outcome == "undecided", "not without pooled scores"
        large = judge(ABOVE, [row("A", 0.9, 0.9, pooled=0.1), b])
        assert large.outcome == "holds", "a large margin is judged on the nodes' own test sets"

    def test_a_best_round_is_one_number_a_seed(self) -> None:
        paper = {"sets": ["reading=paper"]}
        a, b = row("A", 0.6, 0.6, best=0.9, **paper), row("B", 0.8, 0.8, best=0.95, method="uniform", **paper)
        verdict = judge(ABOVE, [a, b])
        assert verdict.words == "A − B: +.100 [+.100, +.100] (best round, by seed)"
        assert verdict.outcome == "holds", "LNTrust by its best round, the others by their last, as the paper"
        one = judge(ABOVE, [Row("A", a.records[:1]), b])
        assert (one.outcome, one.words) == ("undecided", "A − B: +.100 [-inf, +inf] (best round, one seed)")


class TestAlike:
    claim = Claim(says="all the same", alike=["A", "B", "C"], within=0.02)

    @pytest.mark.parametrize(
        ("third", "outcome", "words"),
        [
            (0.815, "holds", ".800 to .815, .015 apart; alike means within .020"),
            (0.83, "does not hold", ".800 to .830, .030 apart; alike means within .020"),
            ([None] * 4, "not run", "not all rows have a score"),
        ],
    )
    def test_outcomes(self, third: Scores, outcome: str, words: str) -> None:
        verdict = judge(self.claim, [row("A", 0.80), row("B", 0.81), row("C", third)])
        assert (verdict.outcome, verdict.words) == (outcome, words)


@pytest.mark.parametrize("claim", [{"above": "A", "below": ["B"]}, {"alike": ["A", "B"], "within": 0.2}])
def test_of_the_nodes_own_models(claim: dict[str, Any]) -> None:
    rows = [row("A", 0.1, own=0.8), row("B", 0.9, own=0.7)]
    assert judge(Claim(says="…", on="self", **claim), rows).outcome == "holds"


class TestAgainstThePaper:
    @pytest.mark.parametrize(
        ("tests", "paper", "words"),
        [
            ((0.80, 0.82), {"test": 0.825, "test_std": 0.01}, "agrees"),
            ((0.80, 0.80), {"test": 0.807}, "agrees"),
            ((0.80, 0.80), {"test": 0.83}, "lower by .030"),
            ((0.90, 0.90), {"test": 0.83, "test_std": 0.02}, "higher by .070"),
            ((0.90, 0.90), {"self": 0.83}, None),
        ],
    )
    def test_words(self, tests: tuple[float, ...], paper: dict[str, float], words: str | None) -> None:
        records = row("A", *tests).records
        assert against_paper(Row("A", records, paper)) == words

    def test_the_papers_reading_is_compared_by_its_best_round(self) -> None:
        records = row("A", 0.5, 0.5, best=0.83, sets=["reading=paper"]).records
        assert against_paper(Row("A", records, {"test": 0.83})) == "agrees"


@pytest.mark.parametrize("wrong", [{}, {"above": "A"}, {"above": "A", "below": ["B"], "alike": ["A", "B"]}])
def test_a_claim_is_of_one_kind(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="either above and below, or alike"):
        Claim(says="…", **wrong)  # type: ignore[arg-type]
