"""The page's tables and words: real tables, made here, so that they are there without any script."""

from collections.abc import Callable, Mapping, Sequence

from lntrust.report.claims import Verdict, against_paper
from lntrust.report.comparison import Row
from lntrust.report.page_html import Child, Html, gigabytes, h, interval_bar, number, plus_minus, share
from lntrust.report.sections import Section
from lntrust.report.table import human_bytes

_MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "–"}
_LEFT = {"agreement": "words", "difference, 95 %": "difference"}  # columns of words and pictures
Cell = tuple[str, Child]  # its class, and what is in it
Column = tuple[str, str, Callable[[Row], Cell]]  # group, name, and how a row fills it


def section_table(section: Section, index: int) -> Html:
    """All that is known of a section's rows; `index` is the section's place on the page."""
    columns = _columns(section)
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
        h("tr", [h("th", name, scope="col", class_=_LEFT.get(name)) for _, name, _ in columns]),
    )
    body = h(
        "tbody", [_line(row, columns, row is best, (index, place)) for place, row in enumerate(section.rows)]
    )
    caption = h("caption", f"{section.title}: {_seeds(section.rows)}, mean ± standard deviation over seeds")
    table = h("table", caption, head, body, class_="results")
    return h("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"Table: {section.title}")


def best_row(rows: Sequence[Row]) -> Row | None:
    """The highest Test, if there is anything to be better than."""
    known = [(row.test.mean, row) for row in rows if row.test is not None]
    return max(known, key=lambda pair: pair[0])[1] if len(known) > 1 else None


def _line(row: Row, columns: Sequence[Column], is_best: bool, place: tuple[int, int]) -> Html:
    mark = h("span", " ★", h("span", " best Test", class_="sr"), class_="star") if is_best else None
    cells = []
    for _, name, fill in columns:
        kind, content = fill(row)
        cells.append(h("td", content, class_=kind or None, data_column=name))
    swatch = h("span", class_="swatch", data_section=place[0], data_row=place[1])
    label = h("th", swatch, h("span", row.label, mark, class_="name"), scope="row", class_="label")
    return h("tr", label, cells, class_="best" if is_best else None, data_label=row.label)


def _columns(section: Section) -> list[Column]:
    rows = section.rows
    reaches = [max(abs(d.low), abs(d.high)) for row in rows if (d := row.difference)]
    widest = max(reaches, default=0.0)
    out: list[Column] = [
        ("accuracy", "Test", lambda row: ("test", [plus_minus(row.test, len(row.seeds)), _dagger(row)])),
        ("accuracy", "Self", lambda row: ("", plus_minus(row.spread("self"), len(row.seeds)))),
    ]
    if section.has_paper:
        out += [("the paper", "Test ", lambda row: ("paper", _printed(row, "test")))]
        if any("self" in row.paper for row in rows):
            out += [("the paper", "Self ", lambda row: ("paper", _printed(row, "self")))]
        out += [("the paper", "agreement", lambda row: ("words", against_paper(row) or "–"))]
    if any("gain" in row.paper for row in rows):
        out += [
            ("gain over Stage 1", "ours", lambda row: ("", plus_minus(row.gain, len(row.seeds)))),
            ("gain over Stage 1", "paper", lambda row: ("paper", number(row.paper.get("gain"), sign=True))),
        ]
    against = "against Independent"
    if any(row.independent for row in rows):
        out += [
            (against, "difference, 95 %", lambda row: ("difference", _difference(row, widest))),
            (against, "chance better", lambda row: ("", number(_chance(row)))),
        ]
    return [
        *out,
        ("nodes", "pooled", lambda row: ("", plus_minus(row.spread("test_pooled"), len(row.seeds)))),
        ("nodes", "10th percentile", lambda row: ("", number(s.mean if (s := row.spread("p10")) else None))),
        ("nodes", "harmed", lambda row: ("", share(s.mean if (s := row.spread("harmed")) else None))),
        ("GB sent per node", "replies", lambda row: ("", gigabytes(row.gigabytes("reply")))),
        ("GB sent per node", "all", lambda row: ("", gigabytes(row.gigabytes()))),
        ("deployed", "bytes per answer", lambda row: ("", human_bytes(row.bytes_per_answer))),
    ]


def _dagger(row: Row) -> Html | None:
    return (
        h("abbr", "†", title="the best round on test, as the paper reads it") if row.test_selected else None
    )


def _printed(row: Row, name: str) -> Child:
    value, std = row.paper.get(name), row.paper.get(f"{name}_std")
    if value is None:
        return "–"
    return [number(value), h("span", f" ± {number(std)}", class_="std") if std is not None else None]


def _difference(row: Row, widest: float) -> Child:
    found = row.difference
    if found is None or row.first.method == "independent":
        return "–"
    reach = f"[{number(found.low, sign=True)}, {number(found.high, sign=True)}]"
    text = h("span", number(found.mean, sign=True), " ", h("span", reach, class_="std"), class_="n")
    return [interval_bar(found, widest), text]


def _chance(row: Row) -> float | None:
    return None if row.first.method == "independent" else row.improvement


def _seeds(rows: Sequence[Row]) -> str:
    seeds = sorted({seed for row in rows for seed in row.seeds})
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
    return h(
        "li", badge(verdict.outcome), h("div", h("p", verdict.says), h("p", verdict.words, class_="how"))
    )


def overview(sections: Sequence[Section], main: Mapping[str, Row]) -> Html:
    """Every section in a line: what was best, how LNTrust did, and what became of the paper's claims."""
    reaches = [abs(x) for row in main.values() for x in row.difference or ()]
    widest = max(reaches, default=0.0)
    lines = [(section, _at_a_glance(section, main.get(section.name), widest)) for section in sections]
    # A column that has nothing to say in any line is left out.
    names = [name for name in lines[0][1] if any(cells[name][1] != "–" for _, cells in lines)]
    head = h(
        "thead", h("tr", h("th", "section", scope="col"), [h("th", name, scope="col") for name in names])
    )
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


def _at_a_glance(section: Section, ours: Row | None, widest: float) -> dict[str, Cell]:
    best = best_row(section.rows)
    other_name = None if ours is None or _is_called_so(ours) else h("span", ours.label, class_="by")
    outcomes = [verdict.outcome for verdict in section.verdicts]
    claims = [_count(each, outcomes.count(each)) for each in _MARKS if each in outcomes]
    return {
        "claims": ("words", claims or "–"),
        "LNTrust: Test": ("", [plus_minus(ours.test, len(ours.seeds)), other_name] if ours else "–"),
        "the paper's": ("paper", _printed(ours, "test") if ours else "–"),
        "over Independent, 95 %": ("difference", _difference(ours, widest) if ours else "–"),
        "best Test": (
            "",
            [plus_minus(best.test, len(best.seeds)), h("span", best.label, class_="by")] if best else "–",
        ),
    }


def _count(outcome: str, count: int) -> Html:
    words = f"{count} {outcome}"
    kind = f"badge {outcome.replace(' ', '-')}"
    return h("span", _MARKS[outcome], f" {count}", class_=kind, role="img", title=words, aria_label=words)


def main_rows(sections: Sequence[Section]) -> dict[str, Row]:
    """By section, the row that stands for LNTrust: called so here or in another section, else its last."""
    ours = [
        (section.name, row) for section in sections for row in section.rows if row.first.method == "lntrust"
    ]
    called = {row.first.row_key for _, row in ours if _is_called_so(row)}
    out: dict[str, Row] = {}
    for fits in (lambda row: True, lambda row: row.first.row_key in called, _is_called_so):
        out |= {name: row for name, row in ours if fits(row)}  # the last that fits best
    return out


def _is_called_so(row: Row) -> bool:
    return row.label.lower() == "lntrust"


def anchor(section: Section) -> str:
    """A name for links: letters, digits and dashes only."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in section.name)
    return f"s-{kept}"
