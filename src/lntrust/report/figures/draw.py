"""Figures for a paper, from finished runs: which there are, and how they are written."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.experiment.reproduction import FigureKind, FigureSettings
from lntrust.experiment.store import Record, fingerprint
from lntrust.report.figures.bars import draw_communication, draw_importance
from lntrust.report.figures.bytes import draw_bytes
from lntrust.report.figures.lines import draw_ablation, draw_curves, has_rounds
from lntrust.report.figures.map import draw_graph_figure, draw_map
from lntrust.report.figures.style import name_of, styled
from lntrust.report.figures.trust import choose_node, draw_trust
from lntrust.report.rows import Row, main_row
from lntrust.report.sections import Section

Format = Literal["png", "pdf", "both"]
DPI = 200
_WORLDS: tuple[FigureKind, ...] = ("topology", "map")  # show a world, whatever was run in it


def draw(
    kind: FigureKind,
    rows: Sequence[Row],
    *,
    title: str,
    x: str | None = None,
    node: int | None = None,
    seed: int = 0,
) -> Figure:
    """A figure of these rows. `x`: what an ablation varies; `node`, `seed`: whose trust or graph."""
    rows = [row for row in rows if row.records]  # what diverged at every seed has nothing to show
    reason = missing(kind, rows)
    if reason:
        raise LNTrustError(f"figure {kind} of {title}: {reason}")
    match kind:
        case "communication":
            return draw_communication(rows, title)
        case "bytes":
            return draw_bytes(rows, title)
        case "curves":
            return draw_curves(rows, title)
        case "ablation":
            return draw_ablation(rows, title, x or "x")
        case "importance":
            row = _trusting(rows, "importance")
            return draw_importance(row, title, _which(row, rows))
        case "trust":
            row = _trusting(rows, "trust")
            return draw_trust(_of_seed(row.records, seed), title, node, _which(row, rows))
        case "topology":
            return draw_graph_figure(_of_seed(rows[0].records, seed), title)
        case "map":
            return draw_map(_of_seed(rows[0].records, seed), title)


def missing(kind: FigureKind, rows: Sequence[Row]) -> str:
    """Why this cannot be drawn of these rows; nothing if it can."""
    if not rows:
        return "nothing of it was run"
    match kind:
        case "communication" if not any(row.gigabytes() > 0 and row.test for row in rows):
            return "nobody sends anything in training"
        case "bytes" if not any(has_rounds(row) and row.gigabytes() > 0 for row in rows):
            return "nobody sends anything in rounds that were evaluated"
        case "curves" if not any(map(has_rounds, rows)):
            return "no round was evaluated"
        case "ablation" if not any(row.x is not None for row in rows):
            return "its rows vary nothing"
        case "importance" | "trust" if not _reporting(rows, kind):
            return f"LNTrust was not run, or reports no {kind}"
        case "map" if rows[0].first.world["tiles"] is None:
            return "its nodes have no places on a map"
    return ""


def _trusting(rows: Sequence[Row], report: Literal["importance", "trust"]) -> Row:
    """The row that stands for LNTrust, of those that report this. There must be one."""
    row = main_row(_reporting(rows, report))
    assert row is not None
    return row


def _reporting(rows: Sequence[Row], report: Literal["importance", "trust"]) -> list[Row]:
    """LNTrust's rows that report this: one that is deployed or weighs otherwise may have less to say."""
    ours = [row for row in rows if row.first.method == "lntrust"]
    return [row for row in ours if all(report in _said(record) for record in row.records)]


def _which(row: Row, rows: Sequence[Row]) -> str:
    """Said where LNTrust has several rows."""
    several = sum(other.first.method == "lntrust" for other in rows)
    return f"one of {several} LNTrust rows: {name_of(row)}" if several > 1 else ""


def _said(record: Record) -> dict[str, Any]:
    return dict(record.summary["method_report"])


def _of_seed(records: Sequence[Record], seed: int) -> Record:
    """The run of this seed; the first where it was not run. The figure says which."""
    return next((record for record in records if record.seed == seed), records[0])


# -- all figures of a section --------------------------------------------------------------------


def all_figures(sections: Sequence[Section]) -> Iterator[tuple[str, Figure]]:
    """Those of all sections, each once: first what sections name, then what they have besides."""
    seen: set[str] = set()
    for section in sections:
        yield from _figures(section, seen, named=True)
    for section in sections:
        yield from _figures(section, seen, named=False)


def section_figures(section: Section, seen: set[str] | None = None) -> Iterator[tuple[str, Figure]]:
    """The figures a section names and those that every such section has, with the names of their files.

    What cannot be drawn of what was run is left out. With `seen` shared between calls, a figure that several
    sections would have, since they show the same runs, is given once.
    """
    seen = set() if seen is None else seen
    yield from _figures(section, seen, named=True)
    yield from _figures(section, seen, named=False)


def named_figures(section: Section) -> Iterator[tuple[str, Figure]]:
    """Only those that it names."""
    yield from _figures(section, set(), named=True)


def _figures(section: Section, seen: set[str], *, named: bool) -> Iterator[tuple[str, Figure]]:
    section = replace(section, rows=[row for row in section.rows if row.records])
    for asked in section.figures if named else _defaults(section):
        if missing(asked.kind, section.rows):
            continue
        key, once = _key(asked, section), _once(asked.kind, section)
        if key in seen or (not named and once in seen):
            continue
        seen |= {key, once}
        title = section.study if asked.kind in _WORLDS else section.title
        figure = draw(asked.kind, section.rows, title=title, x=section.x, node=asked.node, seed=asked.seed)
        yield _stem(asked, section), figure


def _defaults(section: Section) -> list[FigureSettings]:
    """What a section has unasked: nothing where it names pictures of something special."""
    named = {figure.kind for figure in section.figures}
    if section.x is None and not named <= {"curves", "bytes"}:
        return []
    kinds: list[FigureKind] = ["curves"]
    if section.x is not None:
        kinds.insert(0, "ablation")
    else:
        kinds.append("bytes")
        if len({row.first.method for row in section.rows if row.gigabytes() > 0}) > 1:  # else it says nothing
            kinds.append("communication")
    if any(row.first.method == "lntrust" for row in section.rows):
        kinds += ["importance", "trust", "topology", "map"]
    return [FigureSettings(kind=kind) for kind in kinds if kind not in named]


def _once(kind: FigureKind, section: Section) -> str:
    """Of figures for which this is the same, one is enough, unless more are asked for: a graph, however its
    nodes' examples are split; whom the nodes of a study trust."""
    if kind in _WORLDS:
        world = section.rows[0].first.world
        parts = {name: world[name] for name in ("edges", "kinds", "learners")}
        return fingerprint({"once": kind, "study": section.study, **parts})
    if kind in ("importance", "trust"):
        return fingerprint({"once": kind, "study": section.study})
    return _key(FigureSettings(kind=kind), section)


def _key(asked: FigureSettings, section: Section) -> str:
    """The same for figures that would look the same."""
    rows, kind = section.rows, asked.kind
    if kind in _WORLDS:
        record = _of_seed(rows[0].records, asked.seed)
        return fingerprint({"kind": kind, "study": record.study, "world": record.world_text})
    if kind == "trust":
        record = _of_seed(_trusting(rows, "trust").records, asked.seed)
        node = choose_node(record)[0] if asked.node is None else asked.node
        return fingerprint({"kind": kind, "run": record.key, "node": node})
    if kind == "importance":
        rows = [_trusting(rows, "importance")]
    return fingerprint({"kind": kind, "runs": [[record.key for record in row.records] for row in rows]})


def _stem(asked: FigureSettings, section: Section) -> str:
    parts = [section.name, asked.kind, *([f"node{asked.node}"] if asked.node is not None else [])]
    return "-".join([*parts, *([f"seed{asked.seed}"] if asked.seed else [])])


def save(figure: Figure, stem: Path, format_: Format = "both") -> list[Path]:
    """Write stem.png and stem.pdf; the same runs give the same files."""
    written = []
    for kind in ("png", "pdf") if format_ == "both" else (format_,):
        path = stem.with_name(f"{stem.name}.{kind}")
        metadata = {"CreationDate": None} if kind == "pdf" else None

        def write(temporary: Path, kind: str = kind, metadata: dict[str, None] | None = metadata) -> None:
            with styled():
                figure.savefig(temporary, dpi=DPI, format=kind, metadata=metadata)

        write_whole(path, write)
        written.append(path)
    return written
