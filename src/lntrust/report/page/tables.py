"""The page's tables and words: real tables, made here, so that they are there without any script."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from lntrust.core.text import bytes_text, percent_text, score_text
from lntrust.experiment.store import Record
from lntrust.report.claims import against_paper
from lntrust.report.page.html import (
    Child,
    Html,
    Scale,
    gigabytes,
    h,
    interval_bar,
    number,
    numbers,
    scale_bar,
    scrolled,
    with_minus,
)
from lntrust.report.rows import Row, main_row
from lntrust.report.sections import Section, seeds_text
from lntrust.report.text import NOTHING, asked_text, difference_cell, printed_cell, spread_cell, test_cell

_MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "–"}
_DIFFERENCE = "difference, 95 %"
_OVER = "over Independent, 95 %"


class Column(NamedTuple):
    there: bool  # what is nothing in every row is no column
    group: str
    name: str
    kind: str  # the class of its cells
    fill: Callable[[Row], Child]


def section_table(section: Section, index: int) -> Html:
    """All that is known of a section's rows; `index` is the section's place on the page."""
    scale = _scale(section.rows)
    columns = _columns(section, scale)
    best = best_row(section.rows)
    groups = [(name, len(list(same))) for name, same in groupby(column.group for column in columns)]
    above = [h("th", name, scope="colgroup", colspan=span, class_="group") for name, span in groups]
    method = h("th", "method", scope="col", rowspan=2, class_="label")
    head = h("thead", h("tr", method, above), h("tr", [_head(column, scale) for column in columns]))
    lines = [_line(row, columns, row is best, (index, place)) for place, row in enumerate(section.rows)]
    words = f"{section.title}: {seeds_text(section.seeds)}, mean ± standard deviation over seeds"
    table = h("table", h("caption", words), head, h("tbody", lines), class_="results")
    return scrolled(table, section.title)


def _head(column: Column, scale: Scale) -> Html:
    name = _with_scale(column.name, scale) if column.name == _DIFFERENCE else column.name
    left = column.kind in ("words", "difference")
    return h("th", name, scope="col", class_=column.kind if left else None)


def _with_scale(name: str, scale: Scale) -> Child:
    return [h("span", name, class_="over"), scale_bar(scale)]


def best_row(rows: Sequence[Row]) -> Row | None:
    """The highest Test, if there is anything to be better than."""
    known = [(row.test.mean, row) for row in rows if row.test is not None]
    return max(known, key=lambda pair: pair[0])[1] if len(known) > 1 else None


def _line(row: Row, columns: Sequence[Column], is_best: bool, place: tuple[int, int]) -> Html:
    mark = h("span", " ★", h("span", " best Test", class_="sr"), class_="star") if is_best else None
    cells = []
    for _, _, name, kind, fill in columns:
        known = row.records or kind == "paper"
        content, class_ = (fill(row), kind or None) if known else (NOTHING, None)
        cells.append(h("td", content, class_=class_, data_column=name))
    swatch = h("span", class_="swatch", data_section=place[0], data_row=place[1])
    remark = h("span", f" ({row.what_diverged})", class_="std") if row.what_diverged else None
    label = h("th", swatch, h("span", row.label, mark, remark, class_="name"), scope="row", class_="label")
    return h("tr", label, cells, class_="best" if is_best else None, data_label=row.label)


def _scale(rows: Iterable[Row]) -> Scale:
    return Scale.of(row.difference for row in rows if _is_compared(row) and row.difference)


def _is_compared(row: Row) -> bool:
    return row.difference is not None and row.first.method != "independent"


def _columns(section: Section, scale: Scale) -> list[Column]:
    rows, paper = section.rows, section.has_paper
    against = "against Independent"
    compared, gained = any(map(_is_compared, rows)), any("gain" in row.paper for row in rows)
    replies, sent = (any(row.gigabytes(kind) for row in rows) for kind in ("reply", "total"))

    def spread(score: str) -> Callable[[Row], Child]:
        return lambda row: numbers(spread_cell(row.spread(score), len(row.seeds)))

    def mean(score: str, write: Callable[[float], str]) -> Callable[[Row], Child]:
        return lambda row: write(found.mean) if (found := row.spread(score)) else NOTHING

    def agreement(row: Row) -> str:
        return with_minus(against_paper(row) or NOTHING)

    def gain(row: Row) -> str:
        return with_minus(score_text(row.paper["gain"], sign=True)) if "gain" in row.paper else NOTHING

    def chance(row: Row) -> str:
        return number(None if row.first.method == "independent" else row.improvement)

    every = [
        Column(True, "accuracy", "Test", "test", _test),
        Column(True, "accuracy", "Self", "", spread("self")),
        Column(paper, "the paper", "Test ", "paper", lambda row: _printed(row, "test")),
        Column(any("self" in row.paper for row in rows), "the paper", "Self ", "paper",
               lambda row: _printed(row, "self")),
        Column(paper, "the paper", "agreement", "words", agreement),
        Column(gained, "over Stage 1", "ours", "",
               lambda row: numbers(spread_cell(row.gain, len(row.seeds)))),
        Column(gained, "over Stage 1", "paper", "paper", gain),
        Column(compared, against, _DIFFERENCE, "difference", lambda row: _difference(row, scale)),
        Column(compared, against, "chance better", "", chance),
        Column(True, "nodes", "pooled", "", spread("test_pooled")),
        Column(True, "nodes", "10th pct.", "", mean("p10", number)),
        Column(True, "nodes", "harmed", "", mean("harmed", percent_text)),
        Column(replies, "GB per node", "replies", "", lambda row: gigabytes(row.gigabytes("reply"))),
        Column(sent, "GB per node", "all", "", lambda row: gigabytes(row.gigabytes())),
        Column(any(row.bytes_per_answer for row in rows), "deployed", "bytes per answer", "",
               lambda row: bytes_text(row.bytes_per_answer, 1)),
        Column(any(row.asked for row in rows), "deployed", "asked", "",
               lambda row: NOTHING if row.asked is None else asked_text(row.asked)),
    ]  # fmt: skip
    return [column for column in every if column.there]


def _test(row: Row) -> Html:
    title = "the best round on test, as the paper reads it"
    return numbers(test_cell(row), h("abbr", "†", title=title) if row.test_selected else None)


def _printed(row: Row, score: str) -> Html:
    return numbers(printed_cell(row, score))


def _difference(row: Row, scale: Scale) -> Child:
    if row.difference is None or not _is_compared(row):
        return NOTHING
    cell = difference_cell(row.difference)
    words = [with_minus(cell.value), " ", h("span", with_minus(cell.spread), class_="std")]
    return [interval_bar(row.difference, scale), h("span", words, class_="n")]


# -- all sections at a glance ---------------------------------------------------------------------


def overview(sections: Sequence[Section], main: Mapping[str, Row]) -> Html:
    """Every section in a line: what was best, how LNTrust did, and what became of the paper's claims."""
    scale = _scale(main.values())
    lines = [(section, _at_a_glance(section, main.get(section.name), scale)) for section in sections]
    # A column that has nothing to say in any line is left out.
    names = [name for name in lines[0][1] if any(cells[name][1] != NOTHING for _, cells in lines)]
    heads = [h("th", _with_scale(name, scale), scope="col", class_="difference") if name == _OVER
             else h("th", name, scope="col") for name in names]  # fmt: skip
    head = h("thead", h("tr", h("th", "section", scope="col"), heads))
    body = []
    for section, cells in lines:
        place = h("span", section.place, class_="where") if section.place else None
        link = h("span", h("a", section.title, href=f"#{anchor(section)}"), place, class_="name")
        shown = [h("td", cells[name][1], class_=cells[name][0] or None) for name in names]
        body.append(h("tr", h("th", link, scope="row", class_="label"), shown))
    caption = h("caption", "All sections at a glance", class_="sr")
    return scrolled(h("table", caption, head, h("tbody", body), class_="overview"), "all sections")


def _at_a_glance(section: Section, ours: Row | None, scale: Scale) -> dict[str, tuple[str, Child]]:
    """By column, a cell's class and what is in it."""
    best = best_row(section.rows)
    outcomes: Counter[str] = Counter(verdict.outcome for verdict in section.verdicts)
    claims = []
    for outcome in (each for each in _MARKS if each in outcomes):
        words, kind = f"{outcomes[outcome]} {outcome}", f"badge {outcome.replace(' ', '-')}"
        mark = f"{_MARKS[outcome]} {outcomes[outcome]}"
        claims.append(h("span", mark, class_=kind, role="img", title=words, aria_label=words))
    return {
        "claims": ("words", claims or NOTHING),
        "LNTrust: Test": ("", _test_of(ours, named=ours.label.lower() != "lntrust") if ours else NOTHING),
        "the paper's": ("paper", _printed(ours, "test") if ours else NOTHING),
        _OVER: ("difference", _difference(ours, scale) if ours else NOTHING),
        "best Test": ("", _test_of(best, named=True) if best else NOTHING),
    }


def _test_of(row: Row, *, named: bool) -> Child:
    return [_test(row), h("span", row.label, class_="by") if named else None]


def main_rows(sections: Sequence[Section]) -> dict[str, Row]:
    """By section, the row that stands for LNTrust, where there is one."""
    return {section.name: row for section in sections if (row := main_row(section.rows))}


def anchor(section: Section) -> str:
    """A name for links: letters, digits and dashes only."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in section.name)
    return f"s-{kept}"


# -- words, and machines --------------------------------------------------------------------------


def badge(outcome: str) -> Html:
    mark = h("span", _MARKS[outcome], aria_hidden="true")
    return h("span", mark, f" {outcome}", class_=f"badge {outcome.replace(' ', '-')}")


def section_words(section: Section) -> Html:
    """What the paper says, what became of it, and what is done otherwise here."""
    verdicts = [
        h("li", badge(v.outcome), h("div", h("p", v.says), h("p", with_minus(v.words), class_="how")))
        for v in section.verdicts
    ]
    claim, otherwise = section.claim, section.differences
    parts = [
        h("p", h("strong", "The paper: "), claim, class_="claim") if claim else "",
        h("ul", verdicts, class_="verdicts") if verdicts else "",
        h("p", h("strong", "Done otherwise here: "), otherwise, class_="otherwise") if otherwise else "",
    ]
    return h("div", parts, class_="words") if any(parts) else Html("")


def machines(records: Sequence[Record]) -> Html:
    """On what the runs were made: one line for every kind of machine and set of versions."""
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for record in records:
        of = record.identity
        machine = {name: of[name] for name in ("device", "backend")}
        text = json.dumps(machine | of.get("hardware", {}) | of.get("versions", {}))
        counts[text] += 1
        seconds[text] += record.summary["seconds"]
    known = [(json.loads(text), count, seconds[text]) for text, count in counts.most_common()]
    names = list(dict.fromkeys(name for machine, _, _ in known for name in machine))
    head = h("tr", [h("th", name, scope="col") for name in ("runs", "hours", *names)])
    lines = []
    for machine, count, spent in known:
        values = [NOTHING if machine.get(name) is None else str(machine[name]) for name in names]
        lines.append(h("tr", [h("td", text) for text in (str(count), f"{spent / 3600:.2f}", *values)]))
    caption = h("caption", "Machines and versions")
    return scrolled(h("table", caption, h("thead", head), h("tbody", lines), class_="plain"), "machines")
