"""The page's tables and words: real tables, made here, so that they are there without any script."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from lntrust.core.text import bytes_text, score_text, seeds_text
from lntrust.experiment.store import Record
from lntrust.report import text
from lntrust.report.claims import Outcome, against_paper
from lntrust.report.page.html import Child, Html, Scale, h, numbers, table, with_minus
from lntrust.report.rows import Row, grouped
from lntrust.report.sections import Section
from lntrust.report.text import NOTHING, Cell, Fill

MARKS: dict[Outcome, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "–"}
_OVER = "over Independent, 95 %"
_OURS = " (a question of ours: the paper does not say it)"


class Column(NamedTuple):
    group: str
    name: str
    kind: str  # the class of its cells
    fill: Fill
    always: bool = False  # also if it is nothing in every row


def _columns(rows: Sequence[Row]) -> list[Column]:
    gained = any("gain" in row.paper for row in rows)
    every = [
        Column("accuracy", "Test", "test", text.test_cell, True),
        Column("accuracy", "Self", "", text.spread_of("self"), True),
        Column("the paper", "Test ", "paper", text.paper_of("test")),
        Column("the paper", "Self ", "paper", text.paper_of("self")),
        Column("the paper", "agreement", "words", lambda row: Cell(against_paper(row) or NOTHING)),
        Column("over Stage 1", "ours", "", lambda row: text.spread_cell(row.gain if gained else None, row)),
        Column("over Stage 1", "paper", "paper", text.paper_of("gain", text.plus)),
        Column("against Independent", "difference, 95 %", "difference", text.difference_cell),
        Column("against Independent", "chance better", "", text.improvement_cell),
        Column("nodes", "pooled", "", text.spread_of("test_pooled"), True),
        Column("nodes", "10th pct.", "", text.p10_cell, True),
        Column("nodes", "harmed", "", text.harmed_cell, True),
        Column("below Indep. (by > .01)", "pooled ", "", text.below_on("test_pooled")),
        Column("below Indep. (by > .01)", "own tests", "", text.below_on("test")),
        Column("GB per node", "replies", "", lambda row: _gigabytes(row, "reply")),
        Column("GB per node", "all", "", lambda row: _gigabytes(row, "total")),
        Column("deployed", "bytes per answer", "", lambda row: Cell(bytes_text(row.bytes_per_answer, 1))),
        Column("deployed", "asked", "", text.asked_cell),
        *_hub_columns(rows),
    ]
    nothing = (NOTHING, "0", "0 B")
    return [each for each in every if each.always or any(each.fill(row).value not in nothing for row in rows)]


def _hub_columns(rows: Sequence[Row]) -> list[Column]:
    places = {id(row): place for place, row in enumerate(rows)}

    def fill(cells: Sequence[Cell]) -> Fill:
        return lambda row: cells[places[id(row)]]

    found = text.hub_cells(rows)
    return [Column("hubs and leaves", title, "", fill(cells)) for title, cells in found.items()]


def _gigabytes(row: Row, kind: str) -> Cell:
    """In GB, or in the unit that says something of less."""
    value = row.gigabytes(kind)
    return Cell("0" if value == 0 else score_text(value) if value >= 0.001 else bytes_text(value * 1e9, 1))


def section_table(section: Section, index: int) -> Html:
    """All that is known of a section's rows; `index` is the section's place on the page."""
    scale, columns, best = _scale(section.rows), _columns(section.rows), best_row(section.rows)
    above = [h("th", group, scope="colgroup", colspan=len(list(same)), class_="group")
             for group, same in groupby(column.group for column in columns)]  # fmt: skip
    kinds = [each.kind if each.kind in ("words", "difference") else None for each in columns]
    heads = [_head(each.name, kind, scale) for each, kind in zip(columns, kinds, strict=True)]
    lines = [_line(row, columns, row is best, scale, (index, at)) for at, row in enumerate(section.rows)]
    words = f"{section.title}: {seeds_text(section.seeds)}, mean ± standard deviation over seeds"
    head = [h("tr", h("th", "method", scope="col", rowspan=2, class_="label"), above), h("tr", heads)]
    return table(h("caption", words), head, lines, "results", section.title)


def _head(name: str, kind: str | None, scale: Scale) -> Html:
    """Of a column; one of intervals has their scale below its name."""
    shown = [h("span", name, class_="over"), scale.axis()] if kind == "difference" else name
    return h("th", shown, scope="col", class_=kind)


def best_row(rows: Sequence[Row]) -> Row | None:
    """The highest Test, if there is anything to be better than."""
    known = [(row.test.mean, row) for row in rows if row.test is not None]
    return max(known, key=lambda pair: pair[0])[1] if len(known) > 1 else None


def _line(row: Row, columns: Sequence[Column], is_best: bool, scale: Scale, place: tuple[int, int]) -> Html:
    mark = h("span", " ★", h("span", " best Test", class_="sr"), class_="star") if is_best else None
    cells = []
    for _, name, kind, fill, _ in columns:
        content = _difference(row, scale) if kind == "difference" else numbers(fill(row))
        known = row.records or kind == "paper"
        class_ = kind if known and kind else None
        cells.append(h("td", content if known else NOTHING, class_=class_, data_column=name))
    swatch = h("span", class_="swatch", data_section=place[0], data_row=place[1])
    remark = h("span", f" ({row.what_diverged})", class_="std") if row.what_diverged else None
    label = h("th", swatch, h("span", row.label, mark, remark, class_="name"), scope="row", class_="label")
    return h("tr", label, cells, class_="best" if is_best else None, data_label=row.label)


def _scale(rows: Iterable[Row | None]) -> Scale:
    return Scale.of(row.difference for row in rows if row and row.compared and row.difference)


def _difference(row: Row, scale: Scale) -> Child:
    cell = text.difference_cell(row)
    if row.difference is None or cell.value == NOTHING:
        return NOTHING
    words = [with_minus(cell.value), " ", h("span", with_minus(cell.spread), class_="std")]
    return [scale.bar(row.difference), h("span", words, class_="n")]


# -- all sections at a glance ---------------------------------------------------------------------


def overview(sections: Sequence[Section]) -> Html:
    """Every section in a line: what was best, how LNTrust did, and what became of the paper's claims."""
    scale = _scale(section.main for section in sections)
    glances = [(section, _at_a_glance(section, scale)) for section in sections]
    # A column that has nothing to say in any line is left out.
    names = [name for name in glances[0][1] if any(cells[name][1] != NOTHING for _, cells in glances)]
    heads = [_head(name, "difference" if name == _OVER else None, scale) for name in names]
    lines = []
    for section, cells in glances:
        place = h("span", section.place, class_="where") if section.place else None
        link = h("span", h("a", section.title, href=f"#{anchor(section)}"), place, class_="name")
        shown = [h("td", cells[name][1], class_=cells[name][0] or None) for name in names]
        lines.append(h("tr", h("th", link, scope="row", class_="label"), shown))
    caption = h("caption", "All sections at a glance", class_="sr")
    return table(caption, h("tr", h("th", "section", scope="col"), heads), lines, "overview", "all sections")


def _at_a_glance(section: Section, scale: Scale) -> dict[str, tuple[str, Child]]:
    """By column, a cell's class and what is in it."""
    ours, best = section.main, best_row(section.rows)
    outcomes = Counter(verdict.outcome for verdict in section.verdicts)
    claims = []
    for outcome, count in ((outcome, outcomes[outcome]) for outcome in MARKS if outcomes[outcome]):
        told = {"role": "img", "title": f"{count} {outcome}", "aria_label": f"{count} {outcome}"}
        claims.append(h("span", f"{MARKS[outcome]} {count}", class_=_badge(outcome), **told))

    def test_of(row: Row, *, named: bool) -> Child:
        return [numbers(text.test_cell(row)), h("span", row.label, class_="by") if named else None]

    return {
        "claims": ("words", claims or NOTHING),
        "LNTrust: Test": ("", test_of(ours, named=ours.label.lower() != "lntrust") if ours else NOTHING),
        "the paper's": ("paper", numbers(text.paper_of("test")(ours)) if ours else NOTHING),
        _OVER: ("difference", _difference(ours, scale) if ours else NOTHING),
        "best Test": ("", test_of(best, named=True) if best else NOTHING),
    }


def anchor(section: Section) -> str:
    """A name for links: letters, digits and dashes only."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in section.name)
    return f"s-{kept}"


# -- words, and machines --------------------------------------------------------------------------


def badge(outcome: Outcome) -> Html:
    mark = h("span", MARKS[outcome], aria_hidden="true")
    return h("span", mark, f" {outcome}", class_=_badge(outcome))


def _badge(outcome: Outcome) -> str:
    return f"badge {outcome.replace(' ', '-')}"


def section_words(section: Section) -> Html:
    """What the paper says, what became of it, and what is done otherwise here."""
    verdicts = [
        h("li", badge(v.outcome), h("div", h("p", v.says, _OURS if v.ours else None),
                                    h("p", with_minus(v.words), class_="how")))
        for v in section.verdicts
    ]  # fmt: skip
    claim, otherwise = section.claim, section.differences
    parts = [
        h("p", h("strong", "The paper: "), claim, class_="claim") if claim else None,
        h("ul", verdicts, class_="verdicts") if verdicts else None,
        h("p", h("strong", "Done otherwise here: "), otherwise, class_="otherwise") if otherwise else None,
    ]
    return h("div", parts, class_="words") if any(parts) else Html("")


def machines(records: Sequence[Record]) -> Html:
    """On what the runs were made: one line for every kind of machine and set of versions."""

    def machine(record: Record) -> dict[str, object]:
        of = record.identity
        known = {name: of[name] for name in ("device", "backend")}
        return {**known, **of.get("hardware", {}), **of.get("versions", {})}

    kinds = []
    alike = grouped(records, lambda record: json.dumps(machine(record)))
    for runs in sorted(alike.values(), key=len, reverse=True):
        hours = sum(record.summary["seconds"] for record in runs) / 3600
        kinds.append({"runs": len(runs), "hours": f"{hours:.2f}"} | machine(runs[0]))
    names = list(dict.fromkeys(name for kind in kinds for name in kind))
    head = h("tr", [h("th", name, scope="col") for name in names])
    shown = [[NOTHING if kind.get(name) is None else str(kind[name]) for name in names] for kind in kinds]
    lines = [h("tr", [h("td", value) for value in values]) for values in shown]
    return table(h("caption", "Machines and versions"), head, lines, "plain", "machines")
