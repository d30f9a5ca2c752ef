"""Tables as text: sections for the terminal, as Markdown and as LaTeX."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lntrust.core.text import percent_text, score_text, seeds_text
from lntrust.experiment.statistics import Interval
from lntrust.report.claims import against_paper, signed
from lntrust.report.hubs import Hubs, Weight, hubs_of, weakened
from lntrust.report.nodes import Below, On
from lntrust.report.rows import Row, Spread
from lntrust.report.sections import Section

NOTHING, DAGGER = "–", "†"
_SELECTED = (
    "The best round, selected on test, as earlier work did: too good. Δ, 10 %, harmed, below Indep. and P "
    "are of the last round."
)
_BELOW = (
    "below Indep.: share of nodes below Independent of the same seed, in brackets by more than a point; "
    "pooled: on the union of all test sets, own: on their own."
)
_OWN = (
    "Nodes are places or people: 10 %, harmed and P are judged on their own test sets. Pooled, they are "
    "asked about other places or people."
)
_OF_HUBS = (
    "Leaves: those beside a hub; their scores and hubs' are pooled. Hubs as members: the deployment weight "
    "that a leaf has learned to put on hubs, and how many times that of equal weights; as teachers: the same "
    "without its weight on itself."
)


@dataclass(frozen=True)
class Cell:
    """A number, and how sure it is; written in one line or in two."""

    value: str = NOTHING
    spread: str = ""  # "± .010" or "[+.030, +.060]"
    best: bool = False
    note: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, [self.value + self.note, self.spread]))


# -- what cells show, here and on the page --------------------------------------------------------

Fill = Callable[[Row], Cell]


def test_cell(row: Row) -> Cell:
    return replace(spread_cell(row.test, row), note=DAGGER if row.test_selected else "")


def spread_of(score: str) -> Fill:
    return lambda row: spread_cell(row.spread(score), row)


def spread_cell(of: Spread | None, row: Row) -> Cell:
    """Mean ± standard deviation; of one seed, the value."""
    several = len(row.seeds) > 1
    return Cell() if of is None else Cell(score_text(of.mean), f"± {score_text(of.std)}" if several else "")


def mean_of(score: str, write: Callable[[float], str]) -> Fill:
    return lambda row: written(row.spread(score), write)


def p10_cell(row: Row) -> Cell:
    return written(row.p10, score_text)


def harmed_cell(row: Row) -> Cell:
    """Where nodes are judged on their own test sets, the pooled share beside."""
    cell, pooled = _share(row.harmed), row.harmed_on("test_pooled")
    return (
        replace(cell, spread=f"(pooled {percent_text(pooled.share)})")
        if row.on_own_tests and pooled
        else cell
    )


def below_on(score: On) -> Fill:
    """Nodes below Independent; in brackets, by more than a point."""

    def fill(row: Row) -> Cell:
        found = row.below_independent_on(score) if row.compared else None
        spread = f"({percent_text(found.by_a_point)})" if found else ""
        return replace(_share(found), spread=spread)

    return fill


def _share(of: Below | None) -> Cell:
    return written(of and of.share, percent_text)


def written(value: float | Spread | None, write: Callable[[float], str]) -> Cell:
    """A number, or a mean."""
    number = value.mean if isinstance(value, Spread) else value
    return Cell() if number is None else Cell(write(number))


def paper_of(score: str, write: Callable[[float], str] = score_text) -> Fill:
    """What the paper has."""

    def fill(row: Row) -> Cell:
        printed = written(row.paper.get(score), write)
        std = row.paper.get(f"{score}_std")
        return printed if std is None else replace(printed, spread=f"± {score_text(std)}")

    return fill


def difference_cell(row: Row) -> Cell:
    """To Independent; to itself there is none."""
    if row.difference is None or not row.compared:
        return Cell()
    return interval_cell(row.difference)


def interval_cell(interval: Interval | None) -> Cell:
    if interval is None:
        return Cell()
    value, _, ends = signed(interval).partition(" ")
    return Cell(value, ends)


def hub_cells(rows: Sequence[Row]) -> dict[str, list[Cell]]:
    """By title, what is said of hubs and leaves where a study makes them differ by a known amount."""
    found = [hubs_of(row) for row in rows] if weakened(rows) else []

    def of(fill: Callable[[Hubs], Cell]) -> list[Cell]:
        return [Cell() if hubs is None else fill(hubs) for hubs in found]

    def on_hubs(weight: Weight | None) -> Cell:
        return Cell() if weight is None else Cell(score_text(weight.trust), f"×{weight.ratio:.1f}")

    cells = {
        "hubs' Self": of(lambda hubs: written(hubs.hubs_self, score_text)),
        "leaves' Self": of(lambda hubs: written(hubs.leaves_self, score_text)),
        "Δ at leaves": of(lambda hubs: interval_cell(hubs.leaves_gain)),
        "hubs as members": of(lambda hubs: on_hubs(hubs.members)),
        "hubs as teachers": of(lambda hubs: on_hubs(hubs.teachers)),
    }
    return {title: each for title, each in cells.items() if any(cell.value != NOTHING for cell in each)}


def improvement_cell(row: Row, decimals: int = 3) -> Cell:
    return written(row.improvement if row.compared else None, lambda chance: score_text(chance, decimals))


def asked_cell(row: Row) -> Cell:
    """Neighbours that are asked: 1.2, 0"""
    return written(row.asked, lambda count: f"{count:.1f}" if count else "0")


def plus(value: float) -> str:
    return score_text(value, sign=True)


# -- what all tables of sections show -------------------------------------------------------------

Columns = dict[str, list[Cell]]  # by title, a cell per row
BELOW: dict[str, On] = {"below Indep. pooled": "test_pooled", "below Indep. own": "test"}


def columns(section: Section) -> Columns:
    """What stands in a row after its label; what nothing is known of in any row is left out."""
    rows = section.rows
    printed, gained = (any(name in row.paper for row in rows) for name in ("test", "gain"))
    every: list[tuple[bool, str, Fill]] = [
        (True, "Test", test_cell),
        (True, "Self", spread_of("self")),
        (printed, "paper's Test", paper_of("test")),
        (gained, "gain", lambda row: written(row.gain, plus)),
        (gained, "paper's gain", paper_of("gain", plus)),
        (True, "Δ Indep.", difference_cell),
        (True, "10 %", p10_cell),
        (True, "harmed", harmed_cell),
        *(
            (any(below_on(score)(row) != Cell() for row in rows), title, below_on(score))
            for title, score in BELOW.items()
        ),
        (True, "P", lambda row: improvement_cell(row, 2)),
        (True, "GB per node", lambda row: written(row.gigabytes() if row.records else None, _gigabytes)),
        (any(row.asked for row in rows), "asked", asked_cell),
    ]
    out = {title: [fill(row) for row in rows] for there, title, fill in every if there} | hub_cells(rows)
    means = [None if row.test is None else round(row.test.mean, 3) for row in rows]
    best = max((mean for mean in means if mean is not None), default=None)
    out["Test"] = [replace(cell, best=mean is not None and mean == best)
                   for cell, mean in zip(out["Test"], means, strict=True)]  # fmt: skip
    return out


def _gigabytes(value: float) -> str:
    if 0 < value < 0.001:
        return "< .001"
    return f"{value:,.1f}" if value >= 10 else f"{value:.3f}" if value else "0"


def lines(section: Section, found: Columns) -> Iterator[tuple[str, list[Cell]]]:
    """The rows' labels, and their cells; what has other seeds than the rest, or diverged, says so."""
    for row, *cells in zip(section.rows, *found.values(), strict=True):
        ran = [record.seed for record in row.runs]
        remarks = [seeds_text(ran) if ran != section.seeds else "", row.what_diverged]
        words = "; ".join(filter(None, remarks))
        yield f"{row.label} ({words})" if words else row.label, cells


def explained(section: Section, found: Columns) -> list[str]:
    """The notes of a table that stands by itself, where no help explains its columns."""
    return [*notes(section), *[_BELOW] * any(title in found for title in BELOW)]


def notes(section: Section) -> list[str]:
    """What has to be known to read the numbers."""
    selected, own = (
        any(getattr(row, name) for row in section.rows) for name in ("test_selected", "on_own_tests")
    )
    hubs = [_OF_HUBS] if weakened(section.rows) else []
    return [f"{DAGGER} {_SELECTED}"] * selected + [_OWN] * own + hubs + superseded_words(section)


def superseded_words(section: Section) -> list[str]:
    """Which rows were run before what they run was corrected."""
    old = [row.label for row in section.rows if row.superseded]
    return [f"Superseded, since runs of them give other results today: {', '.join(old)}."] if old else []


# -- the terminal ---------------------------------------------------------------------------------

_WIDE = Console(width=10_000)  # to measure in: nothing is folded
_LABEL = 20  # columns; a longer label, as of a row that diverged, goes on below
# Columns that have their spread in any terminal.
_SPREAD = ("Test", "Δ Indep.", "Δ at leaves", "hubs as members", "hubs as teachers")
_FIRST_TO_GO = ("asked", "10 %", "paper's gain", "gain", "P", "GB per node", *reversed(BELOW))
_THEN = ("harmed", "Δ Indep.", "Self")  # where hubs are spoken of


def terminal(section: Section, width: int = 80) -> Table:
    """One line a row. In narrow terminals the spreads of Self and the paper go first, then whole columns."""
    found, spreads = columns(section), True
    table = _table(section, found, spreads)
    for title in ("", *_FIRST_TO_GO, *(_THEN if "Δ at leaves" in found else ())):
        if _WIDE.measure(table).maximum <= width:
            break
        found, spreads = {name: cells for name, cells in found.items() if name != title}, False
        table = _table(section, found, spreads)
    return table


def _table(section: Section, found: Columns, spreads: bool) -> Table:
    place = f"{section.place}: " if section.place else ""
    table = Table(
        title=escape(f"{place}{section.title}, {seeds_text(section.seeds)}"),
        caption=escape("\n".join(notes(section))) or None, caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, int(spreads), 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column(escape(section.x or "method"), overflow="fold", max_width=_LABEL)
    for title in found:
        table.add_column(re.sub(" (?!%)", "\n", title), justify="right", overflow="fold")
    for label, cells in lines(section, found):
        shown = (marked(c, spreads or title in _SPREAD) for c, title in zip(cells, found, strict=True))
        table.add_row(escape(label), *shown)
    return table


def marked(cell: Cell, spread: bool = True) -> str:
    value = f"[bold]{cell.value}[/bold]" if cell.best else cell.value
    near = escape(cell.spread.replace("± ", "±").replace(", ", ","))
    return f"{value}{cell.note}" + (f" {near}" if near and spread else "")


# -- Markdown -------------------------------------------------------------------------------------


def markdown(section: Section) -> str:
    """The table, and below it what the paper says and what became of that."""
    found = columns(section)
    place = f"{_md(section.place)}. " if section.place else ""
    table = [[_md(section.x or "method"), *found], [":--", *("--:" for _ in found)]]
    for label, cells in lines(section, found):
        table.append([_md(label), *(f"**{cell}**" if cell.best else str(cell) for cell in cells)])
    verdicts = [f"- **{v.outcome}**{', ours' if v.ours else ''}: {_md(v.says)} ({_md(v.words)})"
                for v in section.verdicts]  # fmt: skip
    beside = "; ".join(f"{row.label} {word}" for row in section.rows if (word := against_paper(row)))
    parts = [
        f"## {_md(section.title)}",
        f"{place}Study {_md(section.study)}, {seeds_text(section.seeds)}.",
        "\n".join(f"| {' | '.join(cells)} |" for cells in table),
        *explained(section, found),
        section.claim and f"**The paper says:** {_md(section.claim)}",
        "\n".join(verdicts),
        beside and f"**Our Test beside the paper's:** {_md(beside)}.",
        section.differences and f"**What is done otherwise here:** {_md(section.differences)}",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _md(text: str) -> str:
    """Text that Markdown shall take for nothing else. An underscore inside a word is harmless."""
    text = " ".join(text.split())  # a line of a table is one line
    return re.sub(r"[\\`*<|\[\]]|(?<!\w)_|_(?!\w)", lambda match: "\\" + match[0], text)


# -- LaTeX ----------------------------------------------------------------------------------------

_GREEK = "αβγδεζηθικλμνξοπρςστυφχψωΓΔΘΛΞΠΣΦΨΩ"


def _tex_name(letter: str) -> str:
    """The command for a Greek letter: Δ → Delta, ω → omega."""
    name = unicodedata.name(letter).split()[-1].lower()
    plain = {"epsilon": "varepsilon", "lamda": "lambda"}.get(name, name)
    return plain.capitalize() if letter.isupper() else plain


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"}, **{sign: f"{{{sign}}}" for sign in "[]"},
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "→": r"$\rightarrow$", "−": "$-$", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$", "·": r"$\cdot$",
    "×": r"$\times$", "–": "--", "…": r"\dots{}", "†": r"$\dagger$",
    **{letter: f"$\\{_tex_name(letter)}$" for letter in _GREEK},
}  # fmt: skip
_TITLES = {"10 %": r"10\,\%", "P": "$P$"}  # which are numbers or mathematics


def latex(section: Section) -> str:
    """A floating table; needs the package booktabs."""
    found = columns(section)
    about = f"{section.title}, {seeds_text(section.seeds)}."
    titles = [_TITLES.get(title) or _tex(title[0].upper() + title[1:]) for title in found]
    rows = [[_tex(label), *map(_tex_cell, cells)] for label, cells in lines(section, found)]
    head, *body = (rf"{' & '.join(cells)} \\" for cells in [[_tex(section.x or "Method"), *titles], *rows])
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(' '.join([about, *explained(section, found)]))}}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', section.name)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(found)}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def _tex_cell(cell: Cell) -> str:
    """0.865 ± 0.017 in mathematics, as the paper has it."""
    if not re.search(r"\d", cell.value):
        return _tex(cell.value)
    text = " ".join(filter(None, [cell.value, cell.spread]))
    text = re.sub(r"(?<!\d)\.(?=\d)", "0.", text)  # the paper's numbers have their zero
    text = re.sub(r"(?<=\d),(?=\d)", "{,}", text).replace("±", r"\pm").replace("×", r"\times ")
    text = text.replace(" %", r"\,\%").replace("pooled ", r"\mathrm{pooled}~")
    note = rf"^{{{_TEX[cell.note].strip('$')}}}" if cell.note else ""
    return rf"$\mathbf{{{text}}}{note}$" if cell.best else f"${text}{note}$"


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))
