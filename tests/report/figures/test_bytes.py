"""Accuracy against bytes: lines end at all that was sent, points stand at what was no question."""

import dataclasses
import itertools

import numpy as np
import pytest
from drawn import by_method, changed, footnote, preset, renamed
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lntrust.experiment.store import Record
from lntrust.report.figures.draw import draw
from lntrust.report.figures.lines import course
from lntrust.report.figures.style import NAMES, name_of
from lntrust.report.rows import Row

BASELINES = ("centralized", "decdiff_vt", "desa", "dfedavg", "dml", "dml_public", "fedmd", "fedpae",
             "gossip_fedavg", "mean_teacher")  # fmt: skip


def by_name(axes: Axes) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in axes.lines}


def end(line: Line2D) -> list[float]:
    return [float(np.asarray(data)[-1]) for data in (line.get_xdata(), line.get_ydata())]


def older(record: Record) -> Record:
    """As runs were stored before headers were counted by kind."""
    kept = {
        k: v for k, v in record.summary["bytes"].items() if k not in ("framing_by_kind", "asked_per_input")
    }
    return changed(record, bytes=kept)


def test_lines_end_at_all_that_was_sent(rows: list[Row]) -> None:
    every, _ = draw("bytes", rows, title="small").axes
    lines = by_name(every)
    assert every.get_xscale() == "log"
    for method in ("d_psgd", "lntrust"):
        row = by_method(rows)[method]
        line = lines[name_of(row)]
        score = np.mean([record.summary["test"] for record in row.records])
        assert end(line) == pytest.approx([1e9 * row.gigabytes(), score])
        assert line.get_markevery() == [-1]
    alone = np.asarray(lines["Independent"].get_ydata())
    assert alone == pytest.approx(np.full(2, by_method(rows)["independent"].spread("test")[0]))  # type: ignore[index]


def test_points_stand_at_what_is_no_question_with_its_headers(rows: list[Row]) -> None:
    figure = draw("bytes", rows, title="small")
    every, answers = figure.axes
    lines = by_name(answers)
    for method, kind in (("d_psgd", "parameters"), ("lntrust", "reply")):
        row = by_method(rows)[method]
        books = [record.summary["bytes"] for record in row.records]
        sent = np.mean([(book[kind] + book["framing_by_kind"][kind]) / 6 for book in books])
        assert len(lines[name_of(row)].get_xdata()) == 1  # type: ignore[arg-type]
        assert end(lines[name_of(row)])[0] == pytest.approx(sent)
        assert end(lines[name_of(row)])[1] == pytest.approx(end(by_name(every)[name_of(row)])[1])
    assert end(lines["LNTrust"])[0] < 0.5 * end(by_name(every)["LNTrust"])[0]  # mostly inputs
    assert (every.get_xlim(), every.get_ylim()) == (answers.get_xlim(), answers.get_ylim())
    assert len(lines["Independent"].get_xdata()) == 2  # type: ignore[arg-type]
    assert footnote(figure).endswith("(the course of queries is not stored), with their headers")


def test_headers_that_are_not_known_are_not_counted_and_that_is_said(rows: list[Row]) -> None:
    def aged(row: Row) -> Row:
        return dataclasses.replace(row, records=[older(record) for record in row.records])

    ours = by_method(rows)["lntrust"]
    figure = draw("bytes", [aged(row) for row in rows], title="small")
    assert end(by_name(figure.axes[1])["LNTrust"])[0] == pytest.approx(1e9 * ours.gigabytes("reply"))
    assert footnote(figure).endswith("without headers, which these runs have not stored by kind")
    lean = preset(rows, "lean")
    some = footnote(draw("bytes", [*map(aged, rows), lean], title="small"))
    assert "with headers only of LNTrust, lean: the other runs have not" in some
    most = footnote(draw("bytes", [*rows, aged(lean)], title="small"))
    assert "with headers, but not of LNTrust, lean, whose runs have not" in most


def test_anchors_are_told_of_where_there_are_any(rows: list[Row]) -> None:
    assert "anchors" not in footnote(draw("bytes", rows, title="small"))
    book = by_method(rows)["d_psgd"].first.summary["bytes"]
    desa = [changed(r, bytes={**book, "anchors": 600}) for r in by_method(rows)["d_psgd"].records]
    figure = draw("bytes", [dataclasses.replace(by_method(rows)["d_psgd"], records=desa)], title="small")
    assert "anchors count as parameters do" in footnote(figure)
    headers = book["framing_by_kind"]["parameters"]
    assert end(figure.axes[1].lines[0])[0] == pytest.approx((book["parameters"] + headers + 600) / 6)


def test_what_is_sent_after_the_last_round_counts(rows: list[Row]) -> None:
    """As when models are fetched once training is over."""
    quiet = by_method(rows)["uniform"]
    sent = {**quiet.first.summary["bytes"], "total": 6_000_000}
    late = dataclasses.replace(quiet, records=[changed(record, bytes=sent) for record in quiet.records])
    every, answers = draw("bytes", [late], title="small").axes
    assert np.asarray(every.lines[0].get_xdata()) == pytest.approx([1_000_000])
    assert len(answers.lines) == 0  # it sends, but only questions


def test_the_legend_is_in_the_order_of_the_ends(rows: list[Row]) -> None:
    [legend] = draw("bytes", rows, title="small").legends
    named = {name_of(row): float(course(row, "test").mean[-1]) for row in rows}
    shown = [named[text.get_text()] for text in legend.get_texts()]
    assert shown == sorted(shown, reverse=True)


def test_presets_beside_every_baseline_can_be_read(rows: list[Row]) -> None:
    """Seventeen lines: nothing of the legend lies on anything else, or beyond the edge."""
    others = [
        dataclasses.replace(renamed(rows[2 if k % 2 else 1], name), label=name)
        for k, name in enumerate(BASELINES)
    ]
    presets = [preset(rows, name) for name in ("lean", "safe", "best")]
    figure = draw("bytes", [*rows[:3], *others, rows[3], *presets], title="small")
    figure.draw_without_rendering()
    [legend] = figure.legends
    entries = legend.get_texts()
    assert {entry.get_text() for entry in entries} == set(NAMES.values())
    assert {entry.get_text() for entry in entries if entry.get_fontweight() == "bold"} == {
        "LNTrust", "LNTrust, lean", "LNTrust, safe", "LNTrust, best",
    }  # fmt: skip
    boxes = [entry.get_window_extent() for entry in entries]
    assert all(a.y0 > b.y1 - 1 for a, b in itertools.pairwise(boxes))
    assert max(box.x1 for box in boxes) <= figure.bbox.x1
    around = legend.get_window_extent()
    assert figure.bbox.y0 <= around.y0 < around.y1 <= figure.bbox.y1
    for axes in figure.axes:
        reach = axes.get_tightbbox()  # titles and labels included
        assert reach is not None
        assert reach.x1 < around.x0
