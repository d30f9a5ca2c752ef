"""A section as a table: for the terminal, as Markdown, as LaTeX, and as Arrow for Parquet.

Numbers are computed in `comparison`; here they are only written down. All text tables have the same columns.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lntrust.experiment.statistics import Interval
from lntrust.report.claims import against_paper, short, signed
from lntrust.report.rows import KINDS, Row, Spread, flat_settings
from lntrust.report.sections import Section

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


@dataclass(frozen=True)
class Column:
    title: str
    latex: str
    cells: list[Cell]


# -- what all text tables show --------------------------------------------------------------------


def columns(section: Section) -> list[Column]:
    """What stands in a row after its label."""
    rows = section.rows
    out = [
        Column("Test", "Test", _test(rows)),
        Column("Self", "Self", [_spread(row.spread("self"), len(row.seeds)) for row in rows]),
    ]
    if any("test" in row.paper for row in rows):
        out.append(Column("paper's Test", "Paper's Test", [_printed(row) for row in rows]))
    if any("gain" in row.paper for row in rows):
        ours, printed = [_mean(row.gain) for row in rows], [row.paper.get("gain") for row in rows]
        out.append(Column("gain", "Gain", [_one(gain, _plus) for gain in ours]))
        out.append(Column("paper's gain", "Paper's gain", [_one(gain, _plus) for gain in printed]))
    many = [
        Column("Δ Indep.", r"$\Delta$ Indep.", [_difference(row) for row in rows]),
        Column("10 %", r"10\,\%", [_one(_mean(row.spread("p10")), short) for row in rows]),
        Column("harmed", "Harmed", [_one(_mean(row.spread("harmed")), _percent) for row in rows]),
        Column("P", "$P$", [_one(_improvement(row), _chance) for row in rows]),
        Column(
            "GB per node",
            "GB per node",
            [_one(row.gigabytes() if row.records else None, _gigabytes) for row in rows],
        ),
    ]
    if any(row.asked for row in rows):
        many.append(Column(_ASKED, "Asked", [_one(row.asked, _count) for row in rows]))
    return out + many


def labels(section: Section) -> list[str]:
    """The rows' labels; what has other seeds than the rest, or diverged, says so."""
    return [" ".join(filter(None, [row.label, _remark(row, seeds(section))])) for row in section.rows]


def _remark(row: Row, every: Sequence[int]) -> str:
    ran = [record.seed for record in row.runs]
    parts = [*([] if ran == every else [_seeds(ran)]), *filter(None, [row.what_diverged])]
    return f"({'; '.join(parts)})" if parts else ""


def seeds(section: Section) -> list[int]:
    """All that any row has."""
    return sorted({record.seed for row in section.rows for record in row.runs})


def notes(section: Section) -> list[str]:
    """What has to be known to read the numbers."""
    return [SELECTED] if any(row.test_selected for row in section.rows) else []


def beside_paper(section: Section) -> str:
    """In words, how each Test stands to the paper's."""
    words = [(row.label, against_paper(row)) for row in section.rows]
    return "; ".join(f"{label} {word}" for label, word in words if word)


def _seeds(numbers: Sequence[int]) -> str:
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _test(rows: Sequence[Row]) -> list[Cell]:
    means = [None if row.test is None else round(row.test.mean, 3) for row in rows]
    best = max((mean for mean in means if mean is not None), default=None)
    cells = [_spread(row.test, len(row.seeds)) for row in rows]
    return [
        Cell(cell.value, cell.spread, mean is not None and mean == best, DAGGER if row.test_selected else "")
        for row, cell, mean in zip(rows, cells, means, strict=True)
    ]


def _spread(spread: Spread | None, seeds: int) -> Cell:
    if spread is None:
        return Cell(NOTHING)
    return Cell(short(spread.mean), f"± {short(spread.std)}" if seeds > 1 else "")


def _printed(row: Row) -> Cell:
    """The paper's Test."""
    test, std = row.paper.get("test"), row.paper.get("test_std")
    if test is None:
        return Cell(NOTHING)
    return Cell(short(test), "" if std is None else f"± {short(std)}")


def _difference(row: Row) -> Cell:
    """To Independent; to itself there is none."""
    found = None if row.independent == row.records else row.difference
    if found is None:
        return Cell(NOTHING)
    value, _, interval = signed(found).partition(" ")
    return Cell(value, interval)


def _improvement(row: Row) -> float | None:
    return None if row.independent == row.records else row.improvement


def _one(value: float | None, write: Callable[[float], str]) -> Cell:
    return Cell(NOTHING if value is None else write(value))


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _plus(value: float) -> str:
    return f"{value:+.3f}".replace("0.", ".", 1)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _chance(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")


def _count(value: float) -> str:
    return f"{value:.1f}" if value else "0"


def _gigabytes(value: float) -> str:
    if value == 0:
        return "0"
    if value < 0.001:
        return "< .001"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"


# -- the terminal ---------------------------------------------------------------------------------

_WIDE = Console(width=10_000)  # to measure in: nothing is folded


def terminal(section: Section, width: int = 80) -> Table:
    """With the spread below each number, so that 100 columns hold it; in narrower ones cells are folded.

    How many neighbours are asked is left out rather than that anything is folded for it.
    """
    found = columns(section)
    table = _table(section, found)
    if found[-1].title == _ASKED and _WIDE.measure(table).maximum > width:
        return _table(section, found[:-1])
    return table


def _table(section: Section, found: Sequence[Column]) -> Table:
    place = f"{section.place}: " if section.place else ""
    table = Table(
        title=escape(f"{place}{section.title}, {_seeds(seeds(section))}"),
        caption=escape("\n".join(notes(section))) or None, caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column(escape(section.x or "method"), overflow="fold")
    for column in found:
        table.add_column(re.sub(" (?!%)", "\n", column.title), justify="right", overflow="fold")
    for k, label in enumerate(labels(section)):
        table.add_row(escape(label), *(_stacked(column.cells[k]) for column in found))
    return table


def _stacked(cell: Cell) -> str:
    value = f"[bold]{cell.value}[/bold]" if cell.best else cell.value
    return f"{value}{cell.note}" + (f"\n{escape(cell.spread)}" if cell.spread else "")


# -- Markdown -------------------------------------------------------------------------------------


def markdown(section: Section) -> str:
    """The table, and below it what the paper says and what became of that."""
    found = columns(section)
    lines = [
        f"## {_md(section.title)}",
        "",
        f"{_md(section.place) + '. ' if section.place else ''}Study {_md(section.study)}, "
        f"{_seeds(seeds(section))}.",
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
    if words := beside_paper(section):
        below.append(f"**Our Test beside the paper's:** {_md(words)}.")
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
    about = f"{section.title}, {_seeds(seeds(section))}."
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


# -- Arrow ----------------------------------------------------------------------------------------

_SPREADS = ("test", "self", "test_pooled", "self_pooled", "stage1")
_NUMBERS = (
    *(f"{score}_{part}" for score in _SPREADS for part in ("mean", "std")),
    "gain_mean", "last_round_test_mean", "best_round_test_selected_mean",
    *(f"{name}_{part}" for name in ("difference", "pooled_difference") for part in Interval._fields),
    "p10", "harmed", "below_independent", "improvement",
    *(f"gb_{kind}" for kind in (*KINDS, "total")),
    *(f"gb_headers_{kind}" for kind in KINDS[:-1]),
    "accuracy_per_gb_reply", "bytes_per_answer", "asked_per_input", "seconds",
    *(f"paper_{name}" for name in ("test", "test_std", "self", "self_std", "gain")),
)  # fmt: skip
_WORDS = ("section", "study", "label", "method", "deploy", "setting", "device")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _WORDS),
        ("seeds", pa.list_(pa.int64())),
        ("diverged", pa.string()),  # in words; the numbers are of the seeds that have not
        ("test_is_test_selected", pa.bool_()),
        *((name, pa.float64()) for name in _NUMBERS),
        ("against_paper", pa.string()),
    ]
)


def arrow(sections: Sequence[Section]) -> pa.Table:
    """One flat row per row of the tables. Bytes are per node in training, in GB. Runs made before headers
    were counted by kind have none there; `gb_framing` is all of them."""
    rows = [_flat_row(section, row) for section in sections for row in section.rows]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _flat_row(section: Section, row: Row) -> dict[str, object]:
    identity, test, reply = row.first.identity, row.test, row.gigabytes("reply")
    out: dict[str, object] = {
        "section": section.name, "study": row.first.study, "label": row.label, "method": row.first.method,
        "deploy": identity["study"]["deploy"], "setting": json.dumps(flat_settings(identity)),
        "device": identity["device"], "seeds": row.seeds, "diverged": row.what_diverged or None,
        "test_is_test_selected": row.test_selected,
        "gain_mean": _mean(row.gain), "last_round_test_mean": _mean(row.spread("test")),
        "best_round_test_selected_mean": _mean(row.spread("best_round_test_selected")),
        "p10": _mean(row.spread("p10")), "harmed": _mean(row.spread("harmed")),
        "below_independent": row.below_independent, "improvement": row.improvement,
        **{f"gb_{kind}": row.gigabytes(kind) for kind in (*KINDS, "total")},
        **{f"gb_headers_{kind}": row.headers(kind) for kind in KINDS[:-1]},
        "accuracy_per_gb_reply": None if test is None or not reply else test.mean / reply,
        "bytes_per_answer": row.bytes_per_answer, "asked_per_input": row.asked, "seconds": row.seconds,
        **{f"paper_{name}": number for name, number in row.paper.items()},
        "against_paper": against_paper(row),
    }  # fmt: skip
    if not row.records:  # what was sent until it diverged is no method's price
        out |= dict.fromkeys(name for name in out if name.startswith(("gb_", "bytes_")))
    for score in _SPREADS:
        spread = test if score == "test" else row.spread(score)
        out |= {} if spread is None else {f"{score}_mean": spread.mean, f"{score}_std": spread.std}
    for name, interval in (("difference", row.difference), ("pooled_difference", row.pooled_difference)):
        out |= {} if interval is None else {f"{name}_{part}": x for part, x in interval._asdict().items()}
    return out
