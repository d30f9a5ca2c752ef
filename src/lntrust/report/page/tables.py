"""The page's tables and words: real tables, made here, so that they are there without any script."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from lntrust.report.claims import Verdict, against_paper
from lntrust.report.page.html import (
    Child,
    Html,
    Scale,
    gigabytes,
    h,
    interval_bar,
    number,
    plus_minus,
    scale_bar,
    share,
    with_minus,
)
from lntrust.report.rows import Row, main_row
from lntrust.report.sections import Section
from lntrust.report.table import human_bytes

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
    groups: list[tuple[str, int]] = []
    for group, _, _ in columns:
        if groups and groups[-1][0] == group:
            groups[-1] = (group, groups[-1][1] + 1)
        else:
            groups.append((group, 1))
    head = h(
        "thead",
        h(
            "tr",
            h("th", "method", scope="col", rowspan=2, class_="label"),
            [h("th", name, scope="colgroup", colspan=span, class_="group") for name, span in groups],
        ),
        h("tr", [_head(name, scale) for _, name, _ in columns]),
    )
    body = h(
        "tbody", [_line(row, columns, row is best, (index, place)) for place, row in enumerate(section.rows)]
    )
    caption = h("caption", f"{section.title}: {_seeds(section.rows)}, mean ± standard deviation over seeds")
    table = h("table", caption, head, body, class_="results")
    return h("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"Table: {section.title}")


def _head(name: str, scale: Scale) -> Html:
    content = _with_scale(name, scale) if name == _DIFFERENCE else name
    return h("th", content, scope="col", class_=_LEFT.get(name))


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
        ("accuracy", "Test", lambda row: ("test", plus_minus(row.test, len(row.seeds), _dagger(row)))),
        ("accuracy", "Self", lambda row: ("", plus_minus(row.spread("self"), len(row.seeds)))),
    ]
    if section.has_paper:
        out += [("the paper", "Test ", lambda row: ("paper", _printed(row, "test")))]
        if any("self" in row.paper for row in rows):
            out += [("the paper", "Self ", lambda row: ("paper", _printed(row, "self")))]
        out += [("the paper", "agreement", lambda row: ("words", _agreement(row)))]
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
        ("nodes", "harmed", lambda row: ("", share(s.mean if (s := row.spread("harmed")) else None))),
    ]
    # What is nothing in every row is no column.
    if any(row.gigabytes("reply") for row in rows):
        out += [("GB per node", "replies", lambda row: ("", gigabytes(row.gigabytes("reply"))))]
    if any(row.gigabytes() for row in rows):
        out += [("GB per node", "all", lambda row: ("", gigabytes(row.gigabytes())))]
    if any(row.bytes_per_answer for row in rows):
        out += [("deployed", "bytes per answer", lambda row: ("", human_bytes(row.bytes_per_answer)))]
    if any(row.asked for row in rows):
        out += [("deployed", "asked", lambda row: ("", _asked(row)))]
    return out


def _asked(row: Row) -> str:
    return "–" if row.asked is None else f"{row.asked:.1f}" if row.asked else "0"


def _agreement(row: Row) -> str:
    return with_minus(against_paper(row) or "–")


def _dagger(row: Row) -> Html | None:
    return (
        h("abbr", "†", title="the best round on test, as the paper reads it") if row.test_selected else None
    )


def _printed(row: Row, name: str) -> Child:
    value, std = row.paper.get(name), row.paper.get(f"{name}_std")
    if value is None:
        return "–"
    return [number(value), h("span", f" ± {number(std)}", class_="std") if std is not None else None]


def _difference(row: Row, scale: Scale) -> Child:
    found = row.difference
    if found is None or not _is_compared(row):
        return "–"
    reach = f"[{number(found.low, sign=True)}, {number(found.high, sign=True)}]"
    numbers = [number(found.mean, sign=True), " ", h("span", reach, class_="std")]
    return [interval_bar(found, scale), h("span", numbers, class_="n")]


def _chance(row: Row) -> float | None:
    return None if row.first.method == "independent" else row.improvement


def _seeds(rows: Sequence[Row]) -> str:
    seeds = sorted({record.seed for row in rows for record in row.runs})
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


# -- words ----------------------------------------------------------------------------------------


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


def overview(sections: Sequence[Section], main: Mapping[str, Row]) -> Html:
    """Every section in a line: what was best, how LNTrust did, and what became of the paper's claims."""
    scale = _scale(main.values())
    lines = [(section, _at_a_glance(section, main.get(section.name), scale)) for section in sections]
    # A column that has nothing to say in any line is left out.
    names = [name for name in lines[0][1] if any(cells[name][1] != "–" for _, cells in lines)]
    titles = [(name, _with_scale(name, scale) if name == _OVER else name) for name in names]
    heads = [h("th", title, scope="col", class_="difference" if name == _OVER else None)
              for name, title in titles]  # fmt: skip
    head = h("thead", h("tr", h("th", "section", scope="col"), heads))
    body = [
        h("tr", _linked(section), [h("td", cells[name][1], class_=cells[name][0] or None) for name in names])
        for section, cells in lines
    ]
    caption = h("caption", "All sections at a glance", class_="sr")
    table = h("table", caption, head, h("tbody", body), class_="overview")
    return h("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table: all sections")


def _linked(section: Section) -> Html:
    place = h("span", section.place, class_="where") if section.place else None
    link = h("a", section.title, href=f"#{anchor(section)}")
    return h("th", h("span", link, place, class_="name"), scope="row", class_="label")


def _at_a_glance(section: Section, ours: Row | None, scale: Scale) -> dict[str, Cell]:
    best = best_row(section.rows)
    other_name = None if ours is None or _is_called_so(ours) else h("span", ours.label, class_="by")
    outcomes = [verdict.outcome for verdict in section.verdicts]
    claims = [_count(each, outcomes.count(each)) for each in _MARKS if each in outcomes]
    return {
        "claims": ("words", claims or "–"),
        "LNTrust: Test": (
            "",
            [plus_minus(ours.test, len(ours.seeds), _dagger(ours)), other_name] if ours else "–",
        ),
        "the paper's": ("paper", _printed(ours, "test") if ours else "–"),
        _OVER: ("difference", _difference(ours, scale) if ours else "–"),
        "best Test": (
            "",
            [plus_minus(best.test, len(best.seeds), _dagger(best)), h("span", best.label, class_="by")]
            if best
            else "–",
        ),
    }


def _count(outcome: str, count: int) -> Html:
    words = f"{count} {outcome}"
    kind = f"badge {outcome.replace(' ', '-')}"
    return h("span", _MARKS[outcome], f" {count}", class_=kind, role="img", title=words, aria_label=words)


def main_rows(sections: Sequence[Section]) -> dict[str, Row]:
    """By section, the row that stands for LNTrust, where there is one."""
    found = [(section.name, main_row(section.rows)) for section in sections]
    return {name: row for name, row in found if row is not None}


def _is_called_so(row: Row) -> bool:
    return row.label.lower() == "lntrust"


def anchor(section: Section) -> str:
    """A name for links: letters, digits and dashes only."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in section.name)
    return f"s-{kept}"
