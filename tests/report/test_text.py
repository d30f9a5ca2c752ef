"""Tables on the terminal, in Markdown, in LaTeX and in Parquet: the same numbers, and nothing is lost."""

import io
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from made_up import made
from rich.console import Console

from lntrust.experiment.store import Record
from lntrust.report.claims import Verdict
from lntrust.report.rows import Row, make_row
from lntrust.report.sections import Section
from lntrust.report.text import DAGGER, SCHEMA, arrow, latex, markdown, terminal

SENT = {"query": 40 * 10**9, "reply": 4 * 10**9, "framing": 4 * 10**8}


def seeds(method: str, *tests: float, **more: Any) -> list[Record]:
    return [made(method, seed, test, **more) for seed, test in enumerate(tests)]


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


def selected() -> Section:
    paper = ["reading=paper"]
    alone, ours = seeds("independent", 0.7, sets=paper), seeds("lntrust", 0.8, best=0.9, sets=paper)
    return section(make_row("alone", alone, alone), make_row("ours", ours, alone))


def printed(of: Section, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal(of))
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
        table = cells(markdown(plain()))
        assert table["method"] == ["Test", "Self", "Δ Indep.", "10 %", "harmed", "P", "GB per node"]
        assert table["independent"] == [".710 ± .010", ".700 ± .000", "–", ".650", "25 %", "–", "0"]
        ours = table["lntrust, top_k = 3"]
        assert ours == [
            "**.820 ± .020**", ".700 ± .000", "+.110 [+.096, +.124]", ".650", "25 %", "1.00", "11.1",
        ]  # fmt: skip

    def test_one_seed_has_no_deviation(self) -> None:
        table = cells(markdown(section(make_row("ours", OURS[:1], []))))
        assert table["ours"][:3] == ["**.800**", ".700", "–"]

    def test_a_row_with_fewer_seeds_says_so(self) -> None:
        text = markdown(section(make_row("alone", ALONE, ALONE), make_row("ours", OURS[:1], ALONE)))
        assert "ours (seed 0)" in cells(text)
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

    def test_no_paper_no_words(self) -> None:
        text = markdown(plain())
        assert "paper" not in text
        assert text.rstrip().endswith("|")

    def test_what_is_selected_on_test_says_so(self) -> None:
        text = markdown(selected())
        assert cells(text)["ours"][0] == f"**.900{DAGGER}**"
        assert cells(text)["alone"][0] == ".700"
        assert "selected on test" in text
        assert "selected on test" not in markdown(plain())

    def test_an_ablation_is_headed_by_what_it_varies(self) -> None:
        assert "budget B" in cells(markdown(section(make_row("100", OURS, []), x="budget B")))

    def test_labels_are_text_and_nothing_else(self) -> None:
        text = markdown(section(make_row("a|b *c* <d> [e] d_psgd _f_", OURS, [])))
        assert r"| a\|b \*c\* \<d> \[e\] d_psgd \_f\_ |" in text

    def test_equal_to_three_digits_is_equally_best(self) -> None:
        rows = [make_row(name, seeds("lntrust", test), []) for name, test in (("a", 0.8001), ("b", 0.7999))]
        table = cells(markdown(section(*rows)))
        assert table["a"][0] == table["b"][0] == "**.800**"

    def test_nothing_scored(self) -> None:
        nobody = make_row("nobody", [made(test=[None] * 4, p10=None, harmed=None)], ALONE)
        assert cells(markdown(section(nobody)))["nobody"] == ["–", ".700", "–", "–", "–", "–", "0"]


def asking(label: str = "lntrust+lean", count: float = 1.25) -> Section:
    """A method that says how many neighbours it asks, one that asks nobody, and one of earlier days."""
    ours, alone = seeds("lntrust+lean", 0.8, 0.84, sent=SENT), seeds("independent", 0.7, 0.72)
    headers = {"query": 4 * 10**8, "reply": 0, "parameters": 0, "anchors": 0}
    for record in ours:
        record.summary["bytes"] |= {"asked_per_input": count, "framing_by_kind": headers}
    for record in alone:
        record.summary["bytes"]["asked_per_input"] = 0.0
    rows = [("independent", alone), ("lntrust", OURS), (label, ours)]
    return section(*(make_row(name, records, alone) for name, records in rows))


class TestAsked:
    def test_a_column_where_it_is_known(self) -> None:
        table = cells(markdown(asking()))
        assert {name: row[-2:] for name, row in table.items() if name != ":--"} == {
            "method": ["GB per node", "asked"], "independent": ["0", "0"], "lntrust": ["11.1", "–"],
            "lntrust+lean": ["11.1", "1.2"],
        }  # fmt: skip
        assert re.search(r"lntrust\+lean & .* & \$11.1\$ & \$1.2\$ \\\\", latex(asking()))

    def test_none_where_nobody_asks(self) -> None:
        assert cells(markdown(asking(count=0.0)))["method"][-1] == "GB per node"

    @pytest.mark.parametrize(("label", "width", "there"), [
        ("lntrust+lean", 80, True), ("lntrust+lean", 78, False), ("a_name_that_is_longer", 80, False),
        ("a_name_that_is_longer", 100, True),
    ])  # fmt: skip
    def test_nothing_is_folded_for_it(self, label: str, width: int, there: bool) -> None:
        console = Console(file=io.StringIO(), width=width)
        console.print(terminal(asking(label), width))
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        assert (" asked" in text) == there
        assert "[+.096, +.124]" in text

    def test_parquet_has_headers_by_kind_too(self) -> None:
        alone, old, lean = arrow([asking()]).to_pylist()
        assert [row["asked_per_input"] for row in (alone, old, lean)] == [0.0, None, 1.25]
        assert [row["gb_headers_query"] for row in (alone, old)] == [None, None]
        assert (lean["gb_headers_query"], lean["gb_headers_reply"]) == (pytest.approx(0.1), 0.0)


class TestLatex:
    def test_as_the_paper_prints_it(self) -> None:
        text = latex(plain())
        assert r"independent & $0.710 \pm 0.010$ & $0.700 \pm 0.000$ & -- &" in text
        assert r"lntrust, top\_k = 3 & $\mathbf{0.820 \pm 0.020}$ &" in text
        assert r"$+0.110 [+0.096, +0.124]$ & $0.650$ & $25\,\%$ & $1.00$ & $11.1$ \\" in text

    def test_a_whole_table(self) -> None:
        text = latex(of_the_paper())
        parts = [r"\begin{table}", r"\caption{", r"\label{tab:t-1}", r"\begin{tabular}{lrrrrrrrrrr}",
                 r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"]  # fmt: skip
        places = [text.index(part) for part in parts]
        assert places == sorted(places)
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {10}
        for opened, closed in ("{}", "[]"):
            assert text.count(opened) == text.count(closed)
        assert text.count("$") % 2 == 0

    def test_everything_is_escaped(self) -> None:
        label = r"50 % of_a & b #1 {x} $y ~ ^ \z → −1 ± λ"
        (line,) = [line for line in latex(section(make_row(label, OURS, []))).splitlines() if "50" in line]
        told = (
            r"50 \% of\_a \& b \#1 \{x\} \$y \textasciitilde{} \textasciicircum{} \textbackslash{}z "
            r"$\rightarrow$ $-$1 $\pm$ $\lambda$ & "
        )
        assert line.startswith(told)

    def test_what_is_selected_on_test_says_so(self) -> None:
        text = latex(selected())
        assert r"$\mathbf{0.900}^{\dagger}$" in text
        assert "selected on test" in text.split(r"\label")[0], "in the caption"


class TestTerminal:
    def test_numbers_and_their_spread_below(self) -> None:
        lines = printed(plain()).splitlines()
        assert lines[0].strip() == "A title, seeds 0, 1"
        at = next(k for k, line in enumerate(lines) if line.strip().startswith("lntrust"))
        assert lines[at].split() == [
            "lntrust,", "top_k", "=", "3", ".820", ".700", "+.110", ".650", "25", "%", "1.00", "11.1",
        ]  # fmt: skip
        assert lines[at + 1].split() == ["±", ".020", "±", ".000", "[+.096,", "+.124]"]

    @pytest.mark.parametrize("width", [100, 80, 60])
    @pytest.mark.parametrize("make", [plain, of_the_paper, selected])
    def test_narrow_terminals_fold_and_lose_nothing(self, make: Any, width: int) -> None:
        text, wide = printed(make(), width), printed(make(), 200)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text

        def letters(text: str) -> list[str]:
            return sorted(re.sub(r"[\s─]", "", text))

        assert letters(text) == letters(wide)

    def test_a_hundred_columns_hold_a_table_of_the_paper(self) -> None:
        lines = printed(of_the_paper(), 100).splitlines()
        assert any(re.search(r"\[\+\.096, \+\.124\]", line) for line in lines), "the interval in one line"
        assert len(lines) <= 12

    def test_square_brackets_are_text(self) -> None:
        assert "[bold]x" in printed(section(make_row("[bold]x", OURS, []), x="[b]"))

    def test_what_is_selected_on_test_says_so(self) -> None:
        assert f".900{DAGGER}" in printed(selected())
        assert "selected on test" in " ".join(printed(selected()).split())


class TestArrow:
    def test_a_flat_row_each(self) -> None:
        table = arrow([plain(), of_the_paper()])
        assert table.schema.equals(SCHEMA)
        assert table["section"].to_pylist() == ["t-1"] * 4
        assert table["label"].to_pylist() == ["independent", "lntrust, top_k = 3", "Independent", "Ours"]
        row = table.to_pylist()[3]
        expected = {
            "study": "digits", "method": "lntrust", "deploy": None, "device": "cpu", "seeds": [0, 1],
            "test_is_test_selected": False, "against_paper": "lower by .045", "paper_test": 0.865,
            "paper_test_std": 0.017, "paper_self": None, "paper_gain": 0.09, "improvement": 1.0,
            "below_independent": 0.0, "p10": 0.65, "harmed": 0.25, "bytes_per_answer": 100.0, "seconds": 2.0,
        }  # fmt: skip
        assert expected.items() <= row.items()
        numbers = {
            "test_mean": 0.82, "test_std": 0.02, "self_mean": 0.7, "test_pooled_mean": 0.81,
            "stage1_mean": 0.6, "gain_mean": 0.22, "best_round_test_selected_mean": 0.82,
            "difference_mean": 0.11,
            "difference_low": 0.11 - 0.01 * 2**0.5, "difference_high": 0.11 + 0.01 * 2**0.5,
            "gb_query": 10.0, "gb_reply": 1.0, "gb_parameters": 0.0, "gb_anchors": 0.0, "gb_framing": 0.1,
            "gb_total": 11.1, "accuracy_per_gb_reply": 0.82,
        }  # fmt: skip
        assert {name: row[name] for name in numbers} == pytest.approx(numbers)
        assert row["self_pooled_mean"] is None
        assert row["pooled_difference_mean"] is None, "Independent has no pooled score here"

    def test_its_settings_are_json(self) -> None:
        changed = make_row("ours", [made(sets=["methods.lntrust.top_k=3", "training.refresh=4"])], [])
        setting = json.loads(arrow([section(changed)])["setting"][0].as_py())
        assert setting["settings.top_k"] == 3
        assert setting["study.training.refresh"] == 4

    def test_the_best_round_has_one_name_and_the_last_is_kept(self) -> None:
        alone, ours = arrow([selected()]).to_pylist()
        assert (ours["test_mean"], ours["test_is_test_selected"]) == (0.9, True)
        assert (ours["best_round_test_selected_mean"], ours["last_round_test_mean"]) == (0.9, 0.8)
        assert (alone["test_mean"], alone["test_is_test_selected"]) == (0.7, False)

    def test_nothing_sent_is_no_efficiency(self) -> None:
        assert arrow([plain()])["accuracy_per_gb_reply"][0].as_py() is None

    def test_no_sections(self) -> None:
        assert arrow([]).equals(pa.Table.from_pylist([], schema=SCHEMA))
