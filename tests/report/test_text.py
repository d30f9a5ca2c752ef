"""Tables on the terminal, in Markdown and in LaTeX: the same numbers, and nothing is lost."""

import io
import re
from typing import Any

import pytest
from made_up import made, sending
from made_up import made_seeds as seeds
from rich.console import Console
from rich.table import Table

from lntrust import load_study
from lntrust.report.claims import Verdict
from lntrust.report.rows import Row, make_row
from lntrust.report.sections import Section
from lntrust.report.text import DAGGER, latex, markdown, results_table, terminal, trust_table

SENT = {"query": 40 * 10**9, "reply": 4 * 10**9, "framing": 4 * 10**8}
ALONE = seeds("independent", 0.7, 0.72)
OURS = seeds("lntrust", 0.8, 0.84, pooled=0.81, sent=SENT)


def section(*rows: Row, **more: Any) -> Section:
    return Section("t-1", "A title", "digits", list(rows), **more)


def plain() -> Section:
    return section(make_row("independent", ALONE, ALONE), make_row("lntrust, top_k = 3", OURS, ALONE))


def of_the_paper() -> Section:
    paper = {"test": 0.865, "test_std": 0.017, "gain": 0.09}
    return section(
        make_row("Independent", ALONE, ALONE),
        make_row("Ours", OURS, ALONE, paper),
        place="Table 1", claim="Ours is *best*.", differences="Other seeds.",
        verdicts=[Verdict("ours is best", "holds", "Ours − Independent: +.110 [+.100, +.120]")],
    )  # fmt: skip


def printed(table: Table, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(text: str) -> dict[str, list[str]]:
    """A Markdown table's rows by their label."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert len({len(row) for row in rows}) == 1
    return {row[0]: row[1:] for row in rows}


class TestMarkdown:
    def test_numbers(self) -> None:
        text = markdown(plain())
        assert "paper" not in text
        table = cells(text)
        assert table["method"] == ["Test", "Self", "Δ Indep.", "10 %", "harmed", "P", "GB per node"]
        assert table["independent"] == [".710 ± .010", ".700 ± .000", "–", ".650", "25 %", "–", "0"]
        ours = table["lntrust, top_k = 3"]
        assert ours == [
            "**.820 ± .020**", ".700 ± .000", "+.110 [+.096, +.124]", ".650", "25 %", "1.00", "11.1",
        ]  # fmt: skip

    def test_a_row_with_fewer_seeds_says_so(self) -> None:
        text = markdown(section(make_row("alone", ALONE, ALONE), make_row("ours", OURS[:1], ALONE)))
        assert cells(text)["ours (seed 0)"][:2] == ["**.800**", ".700"]  # without a deviation
        assert "seeds 0, 1." in text

    def test_the_papers_numbers_and_what_became_of_its_claims(self) -> None:
        text = markdown(of_the_paper())
        table = cells(text)
        assert table["method"][2:5] == ["paper's Test", "gain", "paper's gain"]
        assert table["Ours"][2:5] == [".865 ± .017", "+.220", "+.090"]
        assert table["Independent"][2:5] == ["–", "+.110", "–"]
        for below in (
            "Table 1. Study digits",
            r"**The paper says:** Ours is \*best\*.",
            "- **holds**: ours is best (Ours − Independent: +.110",
            "**Our Test beside the paper's:** Ours lower by .045.",
            "**What is done otherwise here:** Other seeds.",
        ):
            assert below in text

    def test_what_is_selected_on_test_says_so(self) -> None:
        paper = ["reading=paper"]
        alone, ours = seeds("independent", 0.7, sets=paper), seeds("lntrust", 0.8, best=0.9, sets=paper)
        chosen = section(make_row("alone", alone, alone), make_row("ours", ours, alone))
        text, tex, shown = markdown(chosen), latex(chosen), printed(terminal(chosen))
        assert (cells(text)["ours"][0], cells(text)["alone"][0]) == (f"**.900{DAGGER}**", ".700")
        assert r"$\mathbf{0.900}^{\dagger}$" in tex
        assert f".900{DAGGER}" in shown
        for told in (text, tex.split(r"\label")[0], " ".join(shown.split())):  # in LaTeX, in the caption
            assert "selected on test" in told
        assert "selected on test" not in markdown(plain())

    def test_labels_are_text_and_nothing_else(self) -> None:
        text = markdown(section(make_row("a|b *c* <d> [e] d_psgd _f_", OURS, []), x="budget B"))
        assert "budget B" in cells(text)
        assert r"| a\|b \*c\* \<d> \[e\] d_psgd \_f\_ |" in text

    def test_equal_to_three_digits_is_equally_best_and_nothing_may_be_known(self) -> None:
        rows = [make_row(name, seeds("lntrust", test), []) for name, test in (("a", 0.8001), ("b", 0.7999))]
        nobody = make_row("nobody", [made(test=[None] * 4, p10=None, harmed=None)], ALONE)
        table = cells(markdown(section(*rows, nobody)))
        assert table["a"][0] == table["b"][0] == "**.800**"
        assert table["nobody"] == ["–", ".700", "–", "–", "–", "–", "0"]


def asking(label: str = "lntrust+lean", count: float = 1.25) -> Section:
    """A method that says how many neighbours it asks, one that asks nobody, and one of earlier days."""
    alone = [sending(record, asked_per_input=0.0) for record in ALONE]
    ours = [sending(record, asked_per_input=count) for record in seeds("lntrust+lean", 0.8, 0.84, sent=SENT)]
    rows = [("independent", alone), ("lntrust", OURS), (label, ours)]
    return section(*(make_row(name, records, alone) for name, records in rows))


class TestAsked:
    def test_a_column_where_it_is_known_and_anybody_asks(self) -> None:
        table = cells(markdown(asking()))
        assert {name: row[-2:] for name, row in table.items() if name != ":--"} == {
            "method": ["GB per node", "asked"], "independent": ["0", "0"], "lntrust": ["11.1", "–"],
            "lntrust+lean": ["11.1", "1.2"],
        }  # fmt: skip
        assert cells(markdown(asking(count=0.0)))["method"][-1] == "GB per node"

    @pytest.mark.parametrize(("label", "width", "there"), [
        ("lntrust+lean", 80, True), ("lntrust+lean", 70, False), ("a_name_that_is_longer", 80, False),
        ("a_name_that_is_longer", 100, True),
    ])  # fmt: skip
    def test_nothing_is_folded_for_it(self, label: str, width: int, there: bool) -> None:
        text = printed(terminal(asking(label), width), width)
        assert (" asked" in text) == there
        assert "[+.096,+.124]" in text


class TestLatex:
    def test_as_the_paper_prints_it(self) -> None:
        text = latex(plain())
        assert r"independent & $0.710 \pm 0.010$ & $0.700 \pm 0.000$ & -- &" in text
        assert r"lntrust, top\_k = 3 & $\mathbf{0.820 \pm 0.020}$ &" in text
        assert r"$+0.110 [+0.096, +0.124]$ & $0.650$ & $25\,\%$ & $1.00$ & $11.1$ \\" in text

    def test_a_whole_table(self) -> None:
        lines = latex(of_the_paper()).splitlines()
        assert [line for line in lines if not line.endswith(r"\\")] == [
            r"\begin{table}", r"\centering", r"\caption{A title, seeds 0, 1.}", r"\label{tab:t-1}",
            r"\begin{tabular}{lrrrrrrrrrr}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}",
            r"\end{table}",
        ]  # fmt: skip
        [heads, *rows] = [line for line in lines if line.endswith(r"\\")]
        assert heads == (
            r"Method & Test & Self & Paper's Test & Gain & Paper's gain & $\Delta$ Indep. & 10\,\% & "
            r"Harmed & $P$ & GB per node \\"
        )
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {10}

    def test_everything_is_escaped(self) -> None:
        label = r"50 % of_a & b #1 {x} $y ~ ^ \z → −1 ± λ ε Ω"
        (line,) = [line for line in latex(section(make_row(label, OURS, []))).splitlines() if "50" in line]
        expected = (
            r"50 \% of\_a \& b \#1 \{x\} \$y \textasciitilde{} \textasciicircum{} \textbackslash{}z "
            r"$\rightarrow$ $-$1 $\pm$ $\lambda$ $\varepsilon$ $\Omega$ & "
        )
        assert line.startswith(expected)


class TestTerminal:
    def test_a_row_is_a_line(self) -> None:
        lines = printed(terminal(plain())).splitlines()
        assert lines[0].strip() == "A title, seeds 0, 1"
        at = next(k for k, line in enumerate(lines) if line.strip().startswith("lntrust"))
        assert lines[at].split() == [
            "lntrust,", "top_k", "=", "3", ".820", "±.020", ".700", "+.110", "[+.096,+.124]", ".650",
            "25", "%", "1.00", "11.1",
        ]  # fmt: skip

    @pytest.mark.parametrize("width", [100, 80, 60])
    @pytest.mark.parametrize("make", [plain, of_the_paper])
    def test_narrow_terminals_fold_and_lose_nothing(self, make: Any, width: int) -> None:
        text, wide = printed(terminal(make()), width), printed(terminal(make()), 200)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text

        def letters(text: str) -> list[str]:
            return sorted(re.sub(r"[\s─]", "", text))

        assert letters(text) == letters(wide)

    def test_square_brackets_are_text(self) -> None:
        assert "[bold]x" in printed(terminal(section(make_row("[bold]x", OURS, []), x="[b]")))


# -- the end of a run -----------------------------------------------------------------------------


def summary(
    method: str = "uniform", seed: int = 0, test: float | None = 0.8, **changes: Any
) -> dict[str, Any]:
    return {
        "study": "digits", "method": method, "deploy": None, "seed": seed, "test": test, "self": 0.7,
        "test_pooled": 0.75, "harmed": 0.25, "bytes": {"total": 1_234_567, "per_deployed_query": 900.0},
        "seconds": 1.26, "variants": {}, **changes,
    }  # fmt: skip


def broken(seed: int, number: int) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("self", "test_pooled", "harmed"))
    sent = {"total": 0, "per_deployed_query": None}
    return summary("uniform", seed, None, bytes=sent, diverged=number, seconds=0.26) | nothing


def table_rows(*summaries: dict[str, Any]) -> list[list[str]]:
    """The cells of each row as printed."""
    lines = printed(results_table(summaries), 200).splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]


class TestResults:
    def test_one_seed(self) -> None:
        assert results_table([summary()]).title == "digits, seed 0"
        assert table_rows(summary(), summary("dml", test_pooled=None, harmed=None)) == [
            ["uniform", ".800", ".700", ".750", ".250", "1.2 MB", "900 B", "1.3"],
            ["dml", ".800", ".700", "–", "–", "1.2 MB", "900 B", "1.3"],
        ]

    def test_several_seeds_as_mean_and_deviation(self) -> None:
        runs = [
            summary("uniform", k, test, seconds=k, bytes={"total": 1000 * k, "per_deployed_query": 100})
            for k, test in ((2, 0.7), (0, 0.8), (1, 0.9))
        ]
        assert results_table(runs).title == "digits, seeds 0, 1, 2"
        uniform, perfect = table_rows(*runs, *(summary("dml", k, 1.0, seconds=99.96) for k in (0, 1)))
        assert uniform[:3] == ["uniform", ".800 ±.082", ".700"]  # √(0.02 / 3), ddof 0
        assert uniform[5:] == ["1.0 kB", "100 B", "1.0"]
        assert (perfect[1], perfect[-1]) == ("1.000 ±.000", "100")

    def test_the_demos_methods_have_a_line_each_in_80_columns(self) -> None:
        sent = {"independent": (0, 0), "uniform": (0, 1664), "lntrust": (358.9e6, 814),
                "lntrust+best": (45.6e6, 11)}  # fmt: skip
        runs = [
            summary(method, seed, seconds=123.4, bytes={"total": total, "per_deployed_query": asking})
            for method, (total, asking) in sent.items()
            for seed in (0, 1, 2)
        ]
        lines = [line for line in printed(results_table(runs), 80).splitlines() if line.startswith("│")]
        assert [line.split()[1] for line in lines] == list(sent)
        assert all(".800 ±.000" in line and " 123 │" in line for line in lines)
        assert "359 MB" in lines[2]

    def test_what_is_set_otherwise_has_a_row_of_its_own(self) -> None:
        """How it is deployed, and in a sweep every setting, on a line each."""
        cells = table_rows(
            summary("dml"), summary("dml", test=0.9, deploy="trust", setting={"deploy": "trust", "a.skew": 2})
        )
        assert [row[:2] for row in cells] == [["dml", ".800"], ["dml → trust", ".900"], ["skew=2", ""]]

    def test_variants_have_a_row_below(self) -> None:
        scores = [{"test": test, "test_pooled": 0.9} for test in (0.85, 0.95)]
        runs = [summary("centralized", k, variants={"label_prior": each}) for k, each in enumerate(scores)]
        first, second = table_rows(*runs)
        assert (first[0], second) == ("centralized", ["+ label_prior", ".900 ±.050", "", ".900", *[""] * 4])

    def test_what_diverged_is_named_and_in_no_mean(self) -> None:
        cells = table_rows(summary(test=0.6), broken(1, 7), summary(seed=2, test=0.8))
        assert cells[0][:2] == ["uniform", ".700 ±.100"]
        assert cells[0][-1] == "1.3"
        assert " ".join(line[0] for line in cells[1:]) == "2 of 3 seeds; seed 1 diverged at round 7"
        cells = table_rows(broken(4, 7))
        assert cells[0] == ["uniform", *["–"] * 6, "0.3"]
        assert " ".join(line[0] for line in cells[1:]) == "diverged at round 7"


@pytest.mark.parametrize("pooled", [[0.6, 0.7], None])
def test_whom_each_node_trusts(pooled: list[float] | None) -> None:
    scores = {"test": [0.5, None], "self": [0.4, None], "test_pooled": pooled, "self_pooled": pooled}
    report = {"trust": [{"0": 0.25, "1": 0.75}, {"1": 1.0, "0": 0.001}], "together": [True, False]}
    of = {"method": "lntrust", "seed": 3, "method_report": report, "per_node": scores}
    text = printed(trust_table(of, [0, 1], load_study("digits")), 120)
    assert "1 (mlp) 0.75, itself 0.25" in text, "largest first"
    assert "itself 1.00" in text
    assert "0.00" not in text, "nothing negligible"
    assert text.index("together") < text.index("alone")
    for number in ["0.600"] if pooled else ["0.400", "0.500", "–"]:  # a node without test examples
        assert number in text
