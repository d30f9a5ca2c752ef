"""Tables as text: sections for the terminal, as Markdown and as LaTeX; and what stands at the end of a run.

Numbers are computed in `rows`; here they are only written down. All tables of sections have the same columns.
"""

import re
import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lntrust.core.text import bytes_text, percent_text, score_text
from lntrust.experiment.statistics import Interval
from lntrust.experiment.store import Record
from lntrust.report.claims import against_paper, signed
from lntrust.report.rows import Row, Spread, make_row, method_label, spread
from lntrust.report.sections import Section, seeds_text
from lntrust.study.settings import Study

NOTHING = "–"
DAGGER = "†"
_ASKED = "asked"
SELECTED = (
    f"{DAGGER} The best round, selected on test, as earlier work did: too good. Δ, 10 %, harmed and P are of "
    "the last round."
)


@dataclass(frozen=True)
class Cell:
    """A number, and how sure it is; written in one line or in two."""

    value: str
    spread: str = ""  # "± .010" or "[+.030, +.060]"
    best: bool = False
    note: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, [self.value + self.note, self.spread]))


class Column(NamedTuple):
    title: str
    latex: str
    cells: list[Cell]


# -- what all tables of sections show -------------------------------------------------------------


def columns(section: Section) -> list[Column]:
    """What stands in a row after its label; what nothing is known of in any row is left out."""
    rows = section.rows
    printed, gained = (any(name in row.paper for row in rows) for name in ("test", "gain"))
    every: list[tuple[bool, str, str, Callable[[Row], Cell]]] = [
        (True, "Test", "Test", test_cell),
        (True, "Self", "Self", lambda row: spread_cell(row.spread("self"), len(row.seeds))),
        (printed, "paper's Test", "Paper's Test", lambda row: printed_cell(row, "test")),
        (gained, "gain", "Gain", lambda row: _mean(row.gain, _plus)),
        (gained, "paper's gain", "Paper's gain", lambda row: _one(row.paper.get("gain"), _plus)),
        (True, "Δ Indep.", r"$\Delta$ Indep.", _difference),
        (True, "10 %", r"10\,\%", lambda row: _mean(row.spread("p10"), score_text)),
        (True, "harmed", "Harmed", lambda row: _mean(row.spread("harmed"), percent_text)),
        (True, "P", "$P$", _improvement),
        (True, "GB per node", "GB per node", _sent),
        (any(row.asked for row in rows), _ASKED, "Asked", lambda row: _one(row.asked, asked_text)),
    ]
    out = [Column(title, tex, [fill(row) for row in rows]) for there, title, tex, fill in every if there]
    means = [None if row.test is None else round(row.test.mean, 3) for row in rows]
    best = max((mean for mean in means if mean is not None), default=None)
    tests = [replace(cell, best=mean is not None and mean == best)
             for cell, mean in zip(out[0].cells, means, strict=True)]  # fmt: skip
    return [out[0]._replace(cells=tests), *out[1:]]


def labels(section: Section) -> list[str]:
    """The rows' labels; what has other seeds than the rest, or diverged, says so."""
    out = []
    for row in section.rows:
        ran = [record.seed for record in row.runs]
        remarks = [*([] if ran == section.seeds else [seeds_text(ran)]), *filter(None, [row.what_diverged])]
        out.append(f"{row.label} ({'; '.join(remarks)})" if remarks else row.label)
    return out


def notes(section: Section) -> list[str]:
    """What has to be known to read the numbers."""
    return [SELECTED] if any(row.test_selected for row in section.rows) else []


def asked_text(count: float) -> str:
    """Neighbours that are asked: 1.2, 0"""
    return f"{count:.1f}" if count else "0"


def test_cell(row: Row) -> Cell:
    return replace(spread_cell(row.test, len(row.seeds)), note=DAGGER if row.test_selected else "")


def spread_cell(of: Spread | None, seeds: int) -> Cell:
    """Mean ± standard deviation; of one seed, the value."""
    if of is None:
        return Cell(NOTHING)
    return Cell(score_text(of.mean), f"± {score_text(of.std)}" if seeds > 1 else "")


def printed_cell(row: Row, score: str) -> Cell:
    """What the paper has."""
    value, std = row.paper.get(score), row.paper.get(f"{score}_std")
    if value is None:
        return Cell(NOTHING)
    return Cell(score_text(value), "" if std is None else f"± {score_text(std)}")


def difference_cell(difference: Interval) -> Cell:
    value, _, interval = signed(difference).partition(" ")
    return Cell(value, interval)


def _difference(row: Row) -> Cell:
    """To Independent; to itself there is none."""
    itself = row.independent == row.records
    return Cell(NOTHING) if row.difference is None or itself else difference_cell(row.difference)


def _improvement(row: Row) -> Cell:
    itself = row.independent == row.records
    return _one(None if itself else row.improvement, lambda chance: score_text(chance, 2))


def _sent(row: Row) -> Cell:
    return _one(row.gigabytes() if row.records else None, _gigabytes)


def _one(value: float | None, write: Callable[[float], str]) -> Cell:
    return Cell(NOTHING if value is None else write(value))


def _mean(of: Spread | None, write: Callable[[float], str]) -> Cell:
    return _one(None if of is None else of.mean, write)


def _plus(value: float) -> str:
    return score_text(value, sign=True)


def _gigabytes(value: float) -> str:
    if value == 0:
        return "0"
    if value < 0.001:
        return "< .001"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"


# -- the terminal ---------------------------------------------------------------------------------

_WIDE = Console(width=10_000)  # to measure in: nothing is folded
_LABEL = 20  # columns; a longer label, as of a row that diverged, goes on below
_SPREAD = ("Test", "Δ Indep.")  # have theirs in any terminal
_FIRST_TO_GO = (_ASKED, "10 %", "paper's gain", "gain", "P", "GB per node")


def terminal(section: Section, width: int = 80) -> Table:
    """One line a row. In narrow terminals the spreads of Self and the paper go first, then whole columns."""
    found, spreads = columns(section), True
    table = _table(section, found, spreads)
    for title in ("", *_FIRST_TO_GO):
        if _WIDE.measure(table).maximum <= width:
            break
        found, spreads = [column for column in found if column.title != title], False
        table = _table(section, found, spreads)
    return table


def _table(section: Section, found: Sequence[Column], spreads: bool) -> Table:
    place = f"{section.place}: " if section.place else ""
    table = Table(
        title=escape(f"{place}{section.title}, {seeds_text(section.seeds)}"),
        caption=escape("\n".join(notes(section))) or None, caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, int(spreads), 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column(escape(section.x or "method"), overflow="fold", max_width=_LABEL)
    for column in found:
        table.add_column(re.sub(" (?!%)", "\n", column.title), justify="right", overflow="fold")
    for k, label in enumerate(labels(section)):
        cells = [_marked(column.cells[k], spreads or column.title in _SPREAD) for column in found]
        table.add_row(escape(label), *cells)
    return table


def _marked(cell: Cell, spread: bool) -> str:
    value = f"[bold]{cell.value}[/bold]" if cell.best else cell.value
    near = escape(cell.spread.replace("± ", "±").replace(", ", ","))
    return f"{value}{cell.note}" + (f" {near}" if near and spread else "")


# -- Markdown -------------------------------------------------------------------------------------


def markdown(section: Section) -> str:
    """The table, and below it what the paper says and what became of that."""
    found = columns(section)
    lines = [
        f"## {_md(section.title)}",
        "",
        f"{_md(section.place) + '. ' if section.place else ''}Study {_md(section.study)}, "
        f"{seeds_text(section.seeds)}.",
        "",
        _md_row([_md(section.x or "method"), *(column.title for column in found)]),
        _md_row([":--", *("--:" for _ in found)]),
    ]
    for k, label in enumerate(labels(section)):
        lines.append(_md_row([_md(label), *(_md_cell(column.cells[k]) for column in found)]))
    below = [*notes(section)]
    if section.claim:
        below.append(f"**The paper says:** {_md(section.claim)}")
    if section.verdicts:
        below.append(
            "\n".join(f"- **{v.outcome}**: {_md(v.says)} ({_md(v.words)})" for v in section.verdicts)
        )
    words = [f"{row.label} {word}" for row in section.rows if (word := against_paper(row))]
    if words:
        below.append(f"**Our Test beside the paper's:** {_md('; '.join(words))}.")
    if section.differences:
        below.append(f"**What is done otherwise here:** {_md(section.differences)}")
    return "\n".join(lines + [line for text in below for line in ("", text)]) + "\n"


def _md_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _md_cell(cell: Cell) -> str:
    return f"**{cell}**" if cell.best else str(cell)


def _md(text: str) -> str:
    """Text that Markdown shall take for nothing else. An underscore inside a word is harmless."""
    text = " ".join(text.split())  # a line of a table is one line
    return re.sub(r"[\\`*<|\[\]]|(?<!\w)_|_(?!\w)", lambda match: "\\" + match[0], text)


# -- LaTeX ----------------------------------------------------------------------------------------


def _tex_name(letter: str) -> str:
    """The command for a Greek letter: Δ → Delta, ω → omega."""
    *_, name = unicodedata.name(letter).split()
    plain = {"EPSILON": "varepsilon", "LAMDA": "lambda", "FINAL": "varsigma"}.get(name, name.lower())
    return plain.capitalize() if letter.isupper() else plain


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"}, **{sign: f"{{{sign}}}" for sign in "[]"},
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "→": r"$\rightarrow$", "−": "$-$", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$", "·": r"$\cdot$",
    "×": r"$\times$", "–": "--", "…": r"\dots{}", "†": r"$\dagger$",
    **{c: f"$\\{_tex_name(c)}$" for c in map(chr, [*range(0x3B1, 0x3CA), *map(ord, "ΓΔΘΛΞΠΣΦΨΩ")])},
}  # fmt: skip


def latex(section: Section) -> str:
    """A floating table; needs the package booktabs."""
    found = columns(section)
    about = f"{section.title}, {seeds_text(section.seeds)}."
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(' '.join([about, *notes(section)]))}}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', section.name)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(found)}}}",
        r"\toprule",
        _tex_row([_tex(section.x or "Method"), *(column.latex for column in found)]),
        r"\midrule",
    ]
    for k, label in enumerate(labels(section)):
        lines.append(_tex_row([_tex(label), *(_tex_cell(column.cells[k]) for column in found)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _tex_row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _tex_cell(cell: Cell) -> str:
    """0.865 ± 0.017 in mathematics, as the paper has it."""
    if not re.search(r"\d", cell.value):
        return _tex(cell.value)
    text = " ".join(filter(None, [cell.value, cell.spread]))
    text = re.sub(r"(?<!\d)\.(?=\d)", "0.", text)  # the paper's numbers have their zero
    text = re.sub(r"(?<=\d),(?=\d)", "{,}", text).replace("±", r"\pm").replace(" %", r"\,\%")
    note = rf"^{{{_TEX[cell.note].strip('$')}}}" if cell.note else ""
    return rf"$\mathbf{{{text}}}{note}$" if cell.best else f"${text}{note}$"


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))


# -- the end of a run -----------------------------------------------------------------------------

_USUAL = 16  # letters that a method's name has at most
_TRUSTED = 4  # members per node


def results_table(summaries: Sequence[dict[str, Any]]) -> Table:
    """One row per method, and → how it is deployed where the study says so; in a sweep, one per setting."""
    by_label: dict[str, list[Record]] = defaultdict(list)
    for summary in summaries:  # what tells a setting from the others has a line each: `skew=20`
        setting = {path: value for path, value in summary.get("setting", {}).items() if path != "deploy"}
        lines = [f"  {path.rpartition('.')[2]}={value}" for path, value in setting.items()]
        label = "\n".join([method_label(summary["method"], summary["deploy"]), *lines])
        by_label[label].append(Record({"seed": summary["seed"]}, summary, "{}", {}))
    seeds = sorted({summary["seed"] for summary in summaries})
    table = Table(
        title=f"{summaries[0]['study']}, {seeds_text(seeds)}",
        caption=f"Test: as deployed{', ± deviation over seeds' if len(seeds) > 1 else ''}. "
        "Self: each node's own model. Pooled: Test on the union of all test sets, weighted by each node's "
        "classes. Harmed: share of nodes worse off deployed than alone, pooled. Bytes: sent in training by "
        "all nodes; per answer: by one deployed node.",
        caption_justify="left",
    )
    # A method is one line of 80 columns, so only Test has its ±. In a narrower terminal numbers wrap before
    # names of usual length do, and nothing is cut off.
    longest = max(map(len, "\n".join(by_label).splitlines()))
    table.add_column("method", overflow="fold", no_wrap=longest <= _USUAL)
    for name in ("Test", "Self", "pooled", "harmed", "bytes", "per\nanswer", "time\n(s)"):
        table.add_column(name, justify="right", overflow="fold")
    for label, records in by_label.items():
        row = make_row(label, records, [])
        name = "\n  ".join([label, *textwrap.wrap(row.what_diverged, _USUAL - 2)])
        time = f"{row.seconds:.{1 if row.seconds < 99.95 else 0}f}"
        if not row.records:
            table.add_row(name, *["–"] * 6, time)
            continue
        scores = [_brief(row.spread(score)) for score in ("self", "test_pooled", "harmed")]
        sent = [_brief_bytes(row.sent()), _brief_bytes(row.bytes_per_answer)]
        table.add_row(name, _brief(row.spread("test"), len(row.seeds)), *scores, *sent, time)
        for variant in row.first.summary["variants"]:
            found = [record.summary["variants"][variant] for record in row.records]
            plain, pooled = (spread([each[score] for each in found]) for score in ("test", "test_pooled"))
            table.add_row(f"+ {variant}", _brief(plain, len(found)), "", _brief(pooled), *[""] * 4)
    return table


def _brief(of: Spread | None, seeds: int = 1) -> str:
    """.792 ±.012; the deviation where there are several seeds to show it of."""
    cell = spread_cell(of, seeds)
    return f"{cell.value} {cell.spread.replace(' ', '')}".strip()


def _brief_bytes(count: float) -> str:
    """In at most seven columns, up to terabytes."""
    number, unit = bytes_text(count, 1).split()
    return f"{float(number):.0f} {unit}" if len(number) > 3 else f"{number} {unit}"


def trust_table(summary: dict[str, Any], kinds: list[int], study: Study) -> Table:
    """One row per node: its model, whom it trusts how far, and what it answers with."""
    report, scores = summary["method_report"], summary["per_node"]
    names = [study.population.learners[k].name for k in kinds]
    pooled = scores["test_pooled"] is not None
    table = Table(
        title=f"{summary['method']}, seed {summary['seed']}: whom each node trusts",
        caption=f"The {_TRUSTED} largest deployment weights α. A node answers alone where its "
        "deployment gate is closed. "
        + ("Scores are pooled." if pooled else "Scores are on the node's own test set."),
        caption_justify="left",
    )
    for name in ("node", "trusts", "answers", "Self", "Test"):
        table.add_column(name, justify="right" if name in ("Self", "Test") else "left")
    own, deployed = (scores[k] for k in (("self_pooled", "test_pooled") if pooled else ("self", "test")))
    for i, (trust, together) in enumerate(zip(report["trust"], report["together"], strict=True)):
        largest = sorted(trust.items(), key=lambda item: -item[1])[:_TRUSTED]
        members = [
            f"{'itself' if int(j) == i else f'{j} ({names[int(j)]})'} {weight:.2f}"
            for j, weight in largest
            if weight >= 0.005
        ]
        known = [NOTHING if score is None else f"{score:.3f}" for score in (own[i], deployed[i])]
        table.add_row(f"{i} ({names[i]})", ", ".join(members), "together" if together else "alone", *known)
    return table
