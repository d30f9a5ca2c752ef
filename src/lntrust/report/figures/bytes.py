"""The figure of accuracy against bytes: everything that is sent, and what of it is not a question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lntrust.report.figures.lines import course, every_round, has_rounds
from lntrust.report.figures.style import (
    WIDTH,
    Look,
    bytes_text,
    footnote,
    in_style,
    log_axis,
    looks_of,
    name_of,
    score_axis,
    sheet,
)
from lntrust.report.rows import Row, headers


@in_style
def draw_bytes(rows: Sequence[Row], title: str) -> Figure:
    """Test against what a node has sent so far; below, against replies and parameters alone, at the end.

    Both panels have the same axes: what moves to the left in the lower one has sent mostly queries. Methods
    that send nothing in training lie flat.
    """
    shown = [row for row in rows if has_rounds(row)]
    looks = looks_of(shown)
    figure = sheet(WIDTH, max(3.4, 0.8 + 0.135 * len(shown)), title)
    every, answers = figure.subplots(2, sharex=True, sharey=True, height_ratios=[1.25, 1])
    lines: list[tuple[float, Line2D, Look]] = []
    for row, look in zip(shown, looks, strict=True):
        path = course(row, "test")
        # All that was sent led to the last score, also what was sent after the last round.
        sent = np.append(path.bytes[:-1], 1e9 * row.gigabytes())
        end, talks = float(path.mean[-1]), sent > 0
        if talks.any():
            line = every.plot(sent[talks], path.mean[talks], markevery=[-1], **_style(row, look))[0]
        else:
            line = _level(every, row, look, end)
        lines.append((end, line, look))
        if row.answers > 0:
            answers.plot([1e9 * row.answers], [end], **_style(row, look))
        elif not talks.any():
            _level(answers, row, look, end)
    log_axis(every, bytes_text, ticks=4)
    log_axis(answers, bytes_text, ticks=4)
    for axes, text in ((every, "Everything sent"), (answers, "Replies and parameters only")):
        score_axis(axes, "Test")
        axes.set_title(text, loc="left", pad=3)
    answers.set_xlabel("sent per node in training")
    lines.sort(key=lambda each: -each[0])  # as the ends lie, from the top
    legend = figure.legend(
        handles=[line for _, line, _ in lines], loc="outside right center", labelspacing=0.35, borderpad=0.1
    )
    for entry, (_, _, look) in zip(legend.get_texts(), lines, strict=True):
        entry.set_fontweight("bold" if look.bold else "normal")
    silent = any(row.gigabytes() == 0 for row in shown)
    notes = [
        "one seed" if max(len(row.records) for row in shown) == 1 else "means over seeds",
        "marked: after the last round",
        *["flat lines: nothing is sent in training"] * silent,
        *["anchors count as parameters do"] * any(row.gigabytes("anchors") > 0 for row in shown),
        f"below, only where each ends (the course of queries is not stored), {headers(shown, name_of)}",
    ]
    footnote(figure, "; ".join(notes) + every_round(shown))
    return figure


def _style(row: Row, look: Look) -> dict[str, Any]:
    return {
        "color": look.colour, "zorder": look.order, "label": name_of(row), "linewidth": look.width,
        "marker": look.marker, "markersize": 5 if look.bold else 4,
        "markeredgecolor": "white", "markeredgewidth": 0.4,
    }  # fmt: skip


def _level(axes: Axes, row: Row, look: Look, height: float) -> Line2D:
    """Of a method that sends nothing."""
    dots = (0, (1, 1.2)) if row.first.method == "independent" else (0, (4, 1.5))
    return axes.axhline(
        height, linewidth=0.9, linestyle=dots, color=look.colour, zorder=look.order, label=name_of(row)
    )
