"""The page's tables and words: real tables, made here, so that they are there without any script."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from lntrust.core.text import bytes_text, percent_text
from lntrust.experiment.store import Record
from lntrust.report.claims import Verdict, against_paper
from lntrust.report.page.html import (
    Child,
    Html,
    Scale,
    deviation,
    gigabytes,
    h,
    interval_bar,
    number,
    plus_minus,
    scale_bar,
    scrolled,
    with_minus,
)
from lntrust.report.rows import Row, main_row
from lntrust.report.sections import Section, seeds_text
from lntrust.report.text import asked_text

_MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "–"}
_DIFFERENCE = "difference, 95 %"
_OVER = "over Independent, 95 %"
_LEFT = {"agreement": "words", _DIFFERENCE: "difference"}  # columns of words and pictures
_OF_THE_PAPER = ("Test ", "Self ", "paper")  # columns that do not need our runs
Cell = tuple[str, Child]  # its class, and what is in it
Column = tuple[str, str, Callable[[Row], Cell]]  # group, name, and how a row fills it


def section_table(section: Section, index: int) -> Html:
    """All that is known of a section's rows; `index` is the section's place on the page."""
    scale = _scale(section.rows)
    columns = _columns(section, scale)
    best = best_row(section.rows)
    groups = [(name, len(list(same))) for name, same in groupby(group for group, _, _ in columns)]
    above = [h("th", name, scope="colgroup", colspan=span, class_="group") for name, span in groups]
    heads = [h("th", _with_scale(name, scale) if name == _DIFFERENCE else name, scope="col",
               class_=_LEFT.get(name)) for _, name, _ in columns]  # fmt: skip
    method = h("th", "method", scope="col", rowspan=2, class_="label")
    head = h("thead", h("tr", method, above), h("tr", heads))
    lines = [_line(row, columns, row is best, (index, place)) for place, row in enumerate(section.rows)]
    words = f"{section.title}: {seeds_text(section.seeds)}, mean ± standard deviation over seeds"
    table = h("table", h("caption", words), head, h("tbody", lines), class_="results")
    return scrolled(table, section.title)


def _with_scale(name: str, scale: Scale) -> Child:
    return [h("span", name, class_="over"), scale_bar(scale)]


def best_row(rows: Sequence[Row]) -> Row | None:
    """The highest Test, if there is anything to be better than."""
    known = [(row.test.mean, row) for row in rows if row.test is not None]
    return max(known, key=lambda pair: pair[0])[1] if len(known) > 1 else None


def _line(row: Row, columns: Sequence[Column], is_best: bool, place: tuple[int, int]) -> Html:
    mark = h("span", " ★", h("span", " best Test", class_="sr"), class_="star") if is_best else None
    cells = []
    for _, name, fill in columns:
        kind, content = fill(row) if row.records or name in _OF_THE_PAPER else ("", "–")
        cells.append(h("td", content, class_=kind or None, data_column=name))
    swatch = h("span", class_="swatch", data_section=place[0], data_row=place[1])
    remark = h("span", f" ({row.what_diverged})", class_="std") if row.what_diverged else None
    label = h("th", swatch, h("span", row.label, mark, remark, class_="name"), scope="row", class_="label")
    return h("tr", label, cells, class_="best" if is_best else None, data_label=row.label)


def _scale(rows: Iterable[Row]) -> Scale:
    return Scale.of(row.difference for row in rows if _is_compared(row) and row.difference)


def _is_compared(row: Row) -> bool:
    return row.difference is not None and row.first.method != "independent"


def _columns(section: Section, scale: Scale) -> list[Column]:
    rows = section.rows
    out: list[Column] = [
        ("accuracy", "Test", lambda row: ("test", _test(row))),
        ("accuracy", "Self", lambda row: ("", plus_minus(row.spread("self"), len(row.seeds)))),
    ]
    if section.has_paper:
        out += [("the paper", "Test ", lambda row: ("paper", _printed(row, "test")))]
        if any("self" in row.paper for row in rows):
            out += [("the paper", "Self ", lambda row: ("paper", _printed(row, "self")))]
        out += [("the paper", "agreement", lambda row: ("words", with_minus(against_paper(row) or "–")))]
    if any("gain" in row.paper for row in rows):
        out += [
            ("over Stage 1", "ours", lambda row: ("", plus_minus(row.gain, len(row.seeds)))),
            ("over Stage 1", "paper", lambda row: ("paper", number(row.paper.get("gain"), sign=True))),
        ]
    against = "against Independent"
    if any(_is_compared(row) for row in rows):
        out += [
            (against, _DIFFERENCE, lambda row: ("difference", _difference(row, scale))),
            (against, "chance better", lambda row: ("", number(_chance(row)))),
        ]
    out += [
        ("nodes", "pooled", lambda row: ("", plus_minus(row.spread("test_pooled"), len(row.seeds)))),
        ("nodes", "10th pct.", lambda row: ("", number(s.mean if (s := row.spread("p10")) else None))),
        ("nodes", "harmed", lambda row: ("", percent_text(s.mean) if (s := row.spread("harmed")) else "–")),
    ]
    # What is nothing in every row is no column.
    if any(row.gigabytes("reply") for row in rows):
        out += [("GB per node", "replies", lambda row: ("", gigabytes(row.gigabytes("reply"))))]
    if any(row.gigabytes() for row in rows):
        out += [("GB per node", "all", lambda row: ("", gigabytes(row.gigabytes())))]
    if any(row.bytes_per_answer for row in rows):
        out += [("deployed", "bytes per answer", lambda row: ("", bytes_text(row.bytes_per_answer, 1)))]
    if any(row.asked for row in rows):
        out += [("deployed", "asked", lambda row: ("", "–" if row.asked is None else asked_text(row.asked)))]
    return out


def _test(row: Row) -> Html:
    title = "the best round on test, as the paper reads it"
    dagger = h("abbr", "†", title=title) if row.test_selected else None
    return plus_minus(row.test, len(row.seeds), dagger)


def _printed(row: Row, name: str) -> Child:
    value, std = row.paper.get(name), row.paper.get(f"{name}_std")
    return "–" if value is None else [number(value), None if std is None else deviation(std)]


def _difference(row: Row, scale: Scale) -> Child:
    found = row.difference
    if found is None or not _is_compared(row):
        return "–"
    reach = f"[{number(found.low, sign=True)}, {number(found.high, sign=True)}]"
    numbers = [number(found.mean, sign=True), " ", h("span", reach, class_="std")]
    return [interval_bar(found, scale), h("span", numbers, class_="n")]


def _chance(row: Row) -> float | None:
    return None if row.first.method == "independent" else row.improvement


# -- all sections at a glance ---------------------------------------------------------------------


def overview(sections: Sequence[Section], main: Mapping[str, Row]) -> Html:
    """Every section in a line: what was best, how LNTrust did, and what became of the paper's claims."""
    scale = _scale(main.values())
    lines = [(section, _at_a_glance(section, main.get(section.name), scale)) for section in sections]
    # A column that has nothing to say in any line is left out.
    names = [name for name in lines[0][1] if any(cells[name][1] != "–" for _, cells in lines)]
    heads = [h("th", _with_scale(name, scale), scope="col", class_="difference") if name == _OVER
             else h("th", name, scope="col") for name in names]  # fmt: skip
    head = h("thead", h("tr", h("th", "section", scope="col"), heads))
    body = [
        h("tr", _linked(section), [h("td", cells[name][1], class_=cells[name][0] or None) for name in names])
        for section, cells in lines
    ]
    caption = h("caption", "All sections at a glance", class_="sr")
    return scrolled(h("table", caption, head, h("tbody", body), class_="overview"), "all sections")


def _linked(section: Section) -> Html:
    place = h("span", section.place, class_="where") if section.place else None
    link = h("a", section.title, href=f"#{anchor(section)}")
    return h("th", h("span", link, place, class_="name"), scope="row", class_="label")


def _at_a_glance(section: Section, ours: Row | None, scale: Scale) -> dict[str, Cell]:
    best = best_row(section.rows)
    outcomes = [verdict.outcome for verdict in section.verdicts]
    claims = [_count(each, outcomes.count(each)) for each in _MARKS if each in outcomes]
    return {
        "claims": ("words", claims or "–"),
        "LNTrust: Test": ("", _test_of(ours, named=ours.label.lower() != "lntrust") if ours else "–"),
        "the paper's": ("paper", _printed(ours, "test") if ours else "–"),
        _OVER: ("difference", _difference(ours, scale) if ours else "–"),
        "best Test": ("", _test_of(best, named=True) if best else "–"),
    }


def _test_of(row: Row, *, named: bool) -> Child:
    return [_test(row), h("span", row.label, class_="by") if named else None]


def _count(outcome: str, count: int) -> Html:
    words = f"{count} {outcome}"
    kind = f"badge {outcome.replace(' ', '-')}"
    return h("span", _MARKS[outcome], f" {count}", class_=kind, role="img", title=words, aria_label=words)


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
    parts: list[Child] = []
    if section.claim:
        parts.append(h("p", h("strong", "The paper: "), section.claim, class_="claim"))
    if section.verdicts:
        parts.append(h("ul", [_verdict(verdict) for verdict in section.verdicts], class_="verdicts"))
    if section.differences:
        parts.append(h("p", h("strong", "Done otherwise here: "), section.differences, class_="otherwise"))
    return h("div", parts, class_="words") if parts else Html("")


def _verdict(verdict: Verdict) -> Html:
    how = h("p", with_minus(verdict.words), class_="how")
    return h("li", badge(verdict.outcome), h("div", h("p", verdict.says), how))


def machines(records: Sequence[Record]) -> Html:
    """On what the runs were made: one line for every kind of machine and set of versions."""
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for record in records:
        machine = json.dumps(_machine(record.identity))
        counts[machine] += 1
        seconds[machine] += record.summary["seconds"]
    known = [(json.loads(text), count, seconds[text]) for text, count in counts.most_common()]
    names = list(dict.fromkeys(name for machine, _, _ in known for name in machine))
    head = h("tr", [h("th", name, scope="col") for name in ("runs", "hours", *names)])
    lines = [
        h("tr", h("td", str(count)), h("td", f"{spent / 3600:.2f}"),
          [h("td", str(machine.get(name, "–"))) for name in names])
        for machine, count, spent in known
    ]  # fmt: skip
    caption = h("caption", "Machines and versions")
    return scrolled(h("table", caption, h("thead", head), h("tbody", lines), class_="plain"), "machines")


def _machine(of: dict[str, Any]) -> dict[str, Any]:
    parts = {
        "device": of["device"],
        "backend": of["backend"],
        **of.get("hardware", {}),
        **of.get("versions", {}),
    }
    return {name: "–" if value is None else value for name, value in parts.items()}
