"""`lntrust report`: runs as one HTML page that needs nothing but itself."""

import base64
import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import lntrust
from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.core.text import count_text, seeds_text
from lntrust.experiment.reproduction import Reproduction, list_reproductions
from lntrust.experiment.store import Record, identities, without_mark
from lntrust.report.page import data, tables
from lntrust.report.page.html import Child, Html, h, joined
from lntrust.report.page.tables import anchor
from lntrust.report.rows import Row, flat, headers_text
from lntrust.report.sections import Section, sections_of
from lntrust.report.text import superseded_words
from lntrust.study.loading import describe, list_studies, load_study

LIMIT = 2_900_000  # bytes of a page; single nodes of runs are left out before it grows larger
_SLACK = 8_000  # the contents, and words that are not known before
_SCRIPTS = ("vendor/echarts.min.js", "core.js", "style.js", "charts.js", "nodes.js", "map.js", "start.js")
_DECIDED_ELSEWHERE = ("name", "evaluation.checkpoint_every", "data.content")  # --data decides the last
_ASSETS = resources.files("lntrust.report.page") / "assets"
_DAGGER = (
    "† The best round, selected on test, as the paper reads it: too good. All else is of the last round."
)
_CHARTS = {  # their titles, and what has to be known to read them
    "ablation": ("Over what is varied", "Bars: standard deviation over seeds. Hollow: the paper's numbers."),
    "bytes": ("Accuracy against bytes",
     "Higher is better, further left is cheaper: the Test that is reached once a node has sent so much in "
     "training, on a logarithmic axis. Dashed level: a method that sends nothing while it trains. Without "
     "queries: replies, parameters and anchors alone, as a point at the end, since their course is not "
     "stored; "),
    "per_gb": ("Accuracy per gigabyte",
     "Test over GB sent per node, on a logarithmic axis. The paper counts replies, and what is sent in their "
     "stead: parameters, anchors. Methods that send nothing are left out."),
    "curves": ("Learning curves", "Mean over seeds. Test: as deployed. Self: each node's own model."),
    "scatter": ("Node by node, against Independent",
     "A point is a node of one seed. Above the line it scores higher than it does alone."),
    "importance": ("What trust rests on",
     "How much the validation loss rises when one feature is shuffled among the neighbours."),
}  # fmt: skip


def write_page(records: Sequence[Record], path: Path, command: str) -> None:
    """Make the page and put it in place."""
    text = page(records, command)
    write_whole(path, lambda temporary: temporary.write_text(text, "utf-8"))


def page(
    records: Sequence[Record], command: str, reproductions: Sequence[Reproduction] | None = None,
    limit: int = LIMIT,
) -> str:  # fmt: skip
    """The whole page as text."""
    sections = _named_apart(sections_of(records, reproductions))
    described: dict[str, str] = {}
    scripts = [_asset(name) for name in _SCRIPTS]
    parts: dict[str, Html] = {
        "CSS": Html(_asset("page.css")),
        "SUBTITLE": _subtitle(records, sections),
        "OVERVIEW": tables.overview(sections),
        "TALLY": _tally(sections),
        "SECTIONS": joined([_section(section, index, described) for index, section in enumerate(sections)]),
        "MACHINES": tables.machines(records),
        "COMMAND": joined(command),
        "VERSION": joined(lntrust.__version__),
        "SCRIPTS": Html("\n".join(f"<script>{script}</script>" for script in scripts)),
        "POLICY": _policy(scripts),
        # No text in a script element may end that element.
        "DATA": Html(data.compact(data.all_sections(sections)).replace("<", "\\u003c")),
    }
    packed: dict[str, Any] = {"maps": data.maps(records)}
    frame = sum(len(_asset(name)) for name in ("page.html", "nodes.html", "maps.html"))
    used = sum(len(part.encode()) for part in parts.values()) + len(data.pack(packed)) + frame
    packed["graphs"], left_out = data.graphs(sections, limit - used - _SLACK)
    with_nodes, with_map = bool(packed["graphs"]["runs"]), bool(packed["maps"])
    more = f"{left_out} more runs of LNTrust are left out, so that the page stays small."
    parts["LEFT_OUT"] = joined(more if left_out else None)
    parts["NODES"] = _filled("nodes.html", parts) if with_nodes else Html("")
    parts["MAPS"] = _filled("maps.html", parts) if with_map else Html("")
    parts["NAV"] = _navigation(sections, with_nodes, with_map)
    parts["PACKED"] = Html(data.pack(packed))
    return _filled("page.html", parts)


def _filled(name: str, parts: dict[str, Html]) -> Html:
    """A template with its places filled, in one pass: what was filled in is not searched for places again."""
    return Html(re.sub(r"\{\{([A-Z_]+)\}\}", lambda match: parts[match[1]], _asset(name)))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8").strip()


def _policy(scripts: Sequence[str]) -> Html:
    """What the browser may do: run these scripts and no others, and fetch nothing."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return Html(f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:")


def _named_apart(sections: Sequence[Section]) -> list[Section]:
    """Links need one section to a name: who comes second to one gets a number."""
    out: list[Section] = []
    taken: set[str] = set()
    for section in sections:
        names = (section.name, *(f"{section.name}-again-{k}" for k in range(len(sections))))
        named = next(each for name in names if anchor(each := replace(section, name=name)) not in taken)
        taken.add(anchor(named))
        out.append(named)
    return out


def _subtitle(records: Sequence[Record], sections: Sequence[Section]) -> Html:
    words = [
        f"{len(records)} runs",
        count_text(len({record.study for record in records}), "study", "studies"),
        count_text(len(sections), "table"),
        seeds_text(sorted({record.seed for record in records})),
        " and ".join(sorted({record.identity["device"] for record in records})),
    ]
    return joined(" · ".join(words))


def _tally(sections: Sequence[Section]) -> Html:
    counts = Counter(verdict.outcome for each in sections for verdict in each.counted)
    there = [outcome for outcome in tables.MARKS if counts[outcome]]
    shown = [h("li", h("strong", str(counts[each])), " ", tables.badge(each)) for each in there]
    heading = h("p", f"Of the paper's {counts.total()} claims held against these runs:")
    return h("div", heading, h("ul", shown, class_="tally")) if shown else Html("")


def _navigation(sections: Sequence[Section], nodes: bool, on_earth: bool) -> Html:
    items = [("overview", "Overview"), *((anchor(section), section.title) for section in sections)]
    items += [("nodes", "Whom the nodes trust")] * nodes + [("maps", "Map")] * on_earth
    items.append(("about", "How it was made"))
    return h("ol", [h("li", h("a", title, href=f"#{name}")) for name, title in items])


def _section(section: Section, index: int, described: dict[str, str]) -> Html:
    shown, more = (
        h("div", [_chart(kind, index, section) for kind in kinds], class_="charts") if kinds else None
        for kinds in data.charts_of(section)
    )
    title = [section.title, h("span", section.place, class_="place") if section.place else None]
    content: list[Child] = [
        h("h2", title, id=f"{anchor(section)}-title"),
        tables.section_words(section),
        tables.section_table(section, index),
        h("p", _DAGGER, class_="note") if any(row.test_selected for row in section.rows) else None,
        [h("p", words, class_="note") for words in superseded_words(section)],
        _links(section),
        shown,
        h("details", h("summary", "More charts of these runs"), more, class_="more") if more else None,
        _exact_study(section, described),
    ]
    return h("section", content, id=anchor(section), aria_labelledby=f"{anchor(section)}-title")


def _chart(kind: str, index: int, section: Section) -> Html:
    title, note = _CHARTS[kind]
    note += f"{headers_text(section.rows)}." if kind == "bytes" else ""
    heading = h("figcaption", h("h3", title), h("div", class_="controls"))
    box = h("div", class_="chart", data_chart=kind, data_section=index, role="img", aria_label=title)
    return h("figure", heading, box, h("p", note, class_="note"), class_="card", data_kind=kind)


def _links(section: Section) -> Html | None:
    """To the graph and the map, where the paper's figure is one of those."""
    links: list[Child] = []
    for figure in section.figures:
        if figure.kind in ("trust", "topology"):
            node = figure.node
            text = "See this graph" if node is None else f"See node {node} among its neighbours"
            links.append(h("a", f"{text} →", href="#nodes", class_="go", data_study=section.study,
                           data_seed=figure.seed, data_node=node))  # fmt: skip
        elif figure.kind == "map":
            links.append(h("a", "See the map →", href="#maps", class_="go"))
    return h("p", links) if links else None


# -- how to make the runs again -------------------------------------------------------------------


def _exact_study(section: Section, described: dict[str, str]) -> Html:
    """How to run a section again, and each row's settings in full, unless an earlier section has them.

    `described`: which section has which rows; is added to.
    """
    here, command = f"{anchor(section)}-study", f"lntrust reproduce {section.reproduction}"
    known = section.reproduction in list_reproductions()
    again = h("p", "All of this table: ", h("code", command)) if known else None
    rows: list[Html] = []
    for row in section.rows:
        seeds = [record.seed for record in row.runs]
        where = described.setdefault(f"{row.first.row_key} {seeds}", here)
        if where == here:
            of = row.first.identity
            kept = {k: v for k, v in of.items() if k not in ("seed", "versions", "hardware")}
            settings = json.dumps({**kept, "seeds": seeds}, indent=1, ensure_ascii=False)
            codes = [h("pre", h("code", text)) for text in (run_command(row), settings)]
            rows.append(h("details", h("summary", row.label), codes))
        else:
            rows.append(h("p", f"{row.label}: the runs of ", h("a", "an earlier section", href=f"#{where}")))
    summary = h("summary", "The exact study: commands and settings")
    return h("details", summary, again, rows, class_="study", id=here)


def run_command(row: Row) -> str:
    """`lntrust run …` that makes a row's runs; of a study that is not shipped, with a file of its name."""
    first = row.first
    changes = _changes(first) if first.study in list_studies() else None
    study = f"{first.study}.toml" if changes is None else first.study
    words = ["lntrust", "run", study, "--method", row.method]
    for record in row.runs:  # also those that diverged: they are made again like the others
        words += ["--seed", str(record.seed)]
    for change in changes or []:
        words += ["--set", change]
    return shlex.join([*words, "--device", first.identity["device"]])


def _today(value: str) -> str:
    """What takes the place of a value that is superseded."""
    before = without_mark(value)
    return "per_class_nearest" if before == "per_class_rounded" else before


def _changes(record: Record) -> list[str] | None:
    """What was set on top of a shipped study; None if that cannot be said on a command line."""
    method, study = without_mark(record.method), record.identity["study"]
    try:
        honest = load_study(record.study, [f"reading={without_mark(study.get('reading', 'honest'))}"])
        (plain,) = identities(honest, method, [record.seed], "cpu")
    except LNTrustError:
        return None
    # What a corrected method was set to says nothing to today's.
    then = record.identity if method == record.method else record.identity | {"settings": plain["settings"]}
    ours, theirs = (flat({**of["study"], "methods": {method: of["settings"]}}) for of in (then, plain))
    ours = {k: _today(v) if isinstance(v, str) else v for k, v in ours.items()}
    # What the reading sets goes without saying; what is at its default although the reading sets it does not.
    defaults = {path: value for path, value, _ in describe(load_study(record.study))}
    ours |= {path: defaults[path] for path in theirs.keys() - ours.keys() if path in defaults}
    theirs["reading"] = "honest"
    changed = {k: v for k, v in ours.items() if theirs.get(k) != v and k not in _DECIDED_ELSEWHERE}
    if any(isinstance(value, list | dict) for value in changed.values()):
        return None
    words = {path: "none" if value is None else str(value) for path, value in changed.items()}
    return [f"{path}={word.lower() if word in ('True', 'False') else word}" for path, word in words.items()]
