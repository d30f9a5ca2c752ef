"""Which figures there are of which runs, and how they are written."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.experiment.reproduction import FigureKind, FigureSettings
from lntrust.report.figures import charts, graphs
from lntrust.report.figures.map import draw_map
from lntrust.report.figures.style import name_of, styled
from lntrust.report.rows import Row, main_row
from lntrust.report.sections import Section

Format = Literal["png", "pdf", "both"]
_WORLDS: tuple[FigureKind, ...] = ("topology", "map")  # show a world, whatever was run in it
_NEEDS: dict[FigureKind, tuple[Callable[[Sequence[Row]], object], str]] = {  # and why there is none without
    "communication": (lambda rows: any(row.gigabytes() > 0 and row.test for row in rows),
                      "nobody sends anything in training"),
    "bytes": (lambda rows: any(row.evaluated and row.gigabytes() > 0 for row in rows),
              "nobody sends anything in rounds that were evaluated"),
    "curves": (lambda rows: any(row.evaluated for row in rows), "no round was evaluated"),
    "ablation": (lambda rows: any(row.x is not None for row in rows), "its rows vary nothing"),
    "importance": (lambda rows: _reporting(rows, "importance"),
                   "LNTrust was not run, or reports no importance"),
    "trust": (lambda rows: _reporting(rows, "trust"), "LNTrust was not run, or reports no trust"),
    "topology": (lambda _: True, ""),
    "map": (lambda rows: rows[0].first.world["tiles"] is not None, "its nodes have no places on a map"),
}  # fmt: skip


def draw(
    kind: FigureKind, rows: Sequence[Row], *, title: str, x: str | None = None, node: int | None = None,
    seed: int = 0,
) -> Figure:  # fmt: skip
    """A figure of these rows. `x`: what an ablation varies; `node`, `seed`: whose trust or graph."""
    rows = [row for row in rows if row.records]  # what diverged at every seed has nothing to show
    if reason := _missing(kind, rows):
        raise LNTrustError(f"figure {kind} of {title}: {reason}")
    # The row that stands for LNTrust, of those that report this, or the first; and its run of this seed, or
    # the first where it was not run. The figure says which.
    row = main_row(_reporting(rows, kind)) or rows[0]
    record = next((record for record in row.records if record.seed == seed), row.records[0])
    several = sum(other.first.method == "lntrust" for other in rows)
    which = f"one of {several} LNTrust rows: {name_of(row)}" if several > 1 else ""
    drawings: dict[FigureKind, Callable[[], Figure]] = {
        "communication": lambda: charts.draw_communication(rows, title),
        "bytes": lambda: charts.draw_bytes(rows, title),
        "curves": lambda: charts.draw_curves(rows, title),
        "ablation": lambda: charts.draw_ablation(rows, title, x or "x"),
        "importance": lambda: charts.draw_importance(row, title, which),
        "trust": lambda: graphs.draw_trust(record, title, node, which),
        "topology": lambda: graphs.draw_graph_figure(record, title),
        "map": lambda: draw_map(record, title),
    }
    with styled():
        return drawings[kind]()


def _missing(kind: FigureKind, rows: Sequence[Row]) -> str:
    """Why this cannot be drawn of these rows; nothing if it can."""
    possible, otherwise = _NEEDS[kind] if rows else (bool, "nothing of it was run")
    return "" if possible(rows) else otherwise


def _reporting(rows: Sequence[Row], report: FigureKind) -> list[Row]:
    """LNTrust's rows that report this: one that is deployed or weighs otherwise may have less to say."""
    ours = [row for row in rows if row.first.method == "lntrust"]
    return [row for row in ours if all(report in record.summary["method_report"] for record in row.records)]


# -- all figures of sections ---------------------------------------------------------------------


def all_figures(sections: Sequence[Section]) -> Iterator[tuple[str, Figure]]:
    """Those of all sections, each once, with the names of their files; what cannot be drawn is left out.

    First what sections name, then what they have besides.
    """
    seen: set[object] = set()
    for named in (True, False):
        for section in sections:
            yield from _figures(section, seen, named=named)


def named_figures(section: Section) -> Iterator[tuple[str, Figure]]:
    """Only those that it names."""
    return _figures(section, set(), named=True)


def _figures(section: Section, seen: set[object], *, named: bool) -> Iterator[tuple[str, Figure]]:
    section = replace(section, rows=[row for row in section.rows if row.records])
    runs = tuple(record.key for row in section.rows for record in row.records)
    for asked in section.figures if named else _defaults(section):
        kind, node, seed = asked.kind, asked.node, asked.seed
        if _missing(kind, section.rows):
            continue
        exactly = (kind, node, seed, runs)
        once = _once(kind, section) or exactly
        if (exactly if named else once) in seen:
            continue
        seen |= {exactly, once}
        title = section.study if kind in _WORLDS else section.title
        figure = draw(kind, section.rows, title=title, x=section.x, node=node, seed=seed)
        whose = ("" if node is None else f"-node{node}") + (f"-seed{seed}" if seed else "")
        yield f"{section.name}-{kind}{whose}", figure


def _defaults(section: Section) -> list[FigureSettings]:
    """What a section has unasked: nothing where it names pictures of something special."""
    named = {figure.kind for figure in section.figures}
    if section.x is None and not named <= {"curves", "bytes"}:
        return []
    kinds: list[FigureKind] = ["curves", "bytes"] if section.x is None else ["ablation", "curves"]
    if section.x is None and len({row.first.method for row in section.rows if row.gigabytes() > 0}) > 1:
        kinds.append("communication")  # which else says nothing
    if any(row.first.method == "lntrust" for row in section.rows):
        kinds += ["importance", "trust", "topology", "map"]
    return [FigureSettings(kind=kind) for kind in kinds if kind not in named]


def _once(kind: FigureKind, section: Section) -> object:
    """Of figures for which this is the same, one is enough, unless more are asked for: a graph, however its
    nodes' examples are split; whom the nodes of a study trust."""
    if kind in _WORLDS:
        world = section.rows[0].first.world
        return kind, section.study, json.dumps([world[name] for name in ("edges", "kinds", "learners")])
    return (kind, section.study) if kind in ("importance", "trust") else None


def save(figure: Figure, stem: Path, format_: Format = "both") -> list[Path]:
    """Write stem.png (200 dots per inch) and stem.pdf; the same runs give the same files."""
    written = []
    for kind in ("png", "pdf") if format_ == "both" else (format_,):
        path = stem.with_name(f"{stem.name}.{kind}")
        metadata = {"CreationDate": None} if kind == "pdf" else None
        with styled():
            write_whole(path, partial(figure.savefig, dpi=200, format=kind, metadata=metadata))
        written.append(path)
    return written
