"""Figures with lines: scores per round, against bytes, and along an ablation."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from lntrust.core.text import bytes_text, score_text
from lntrust.report.figures.style import (
    GREY,
    INK,
    Look,
    end_labels,
    footnote,
    log_axis,
    looks_of,
    name_of,
    score_axis,
    sheet,
    styled,
)
from lntrust.report.rows import Row, Score, headers_text, main_row

_FEW = 3  # rows whose Test and Self are told apart in one panel
_MARKS = 4  # on a line
_DASHES = (0, (2.5, 1.5))
_ODD = {  # what one may wonder about
    "centralized": "trained once, as Stage 2 begins",
    "fedpae": "alone until it selects its ensemble at the end",
}


# -- scores per round ----------------------------------------------------------------------------


@styled()
def draw_curves(rows: Sequence[Row], title: str) -> Figure:
    """Test (solid) and Self (dashed) per round, with a band of one standard deviation over seeds.

    More than a few rows get a panel for each of the two, and no bands: those would hide the lines.
    """
    shown = [row for row in rows if row.evaluated]
    looks = looks_of(shown)
    together = len(shown) <= _FEW
    variants = sum(row.first.method == "lntrust" for row in shown) > 1
    panels: list[tuple[Score, ...]] = [("test", "self")] if together else [("test",), ("self",)]
    tall = max(1.9 if together else 1.6, 0.6 + 0.107 * len(shown))
    figure = sheet(0.45 + tall * len(panels), title)
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, scores in zip(all_axes, panels, strict=True):
        for number, (row, look) in enumerate(zip(shown, looks, strict=True)):
            for score in scores:
                path, dashed = row.courses[score], together and score == "self"
                # Below its variants, which often run along it, a bold line is wide enough to be seen.
                axes.plot(
                    path.rounds, path.mean, color=look.colour,
                    linewidth=look.width * (0.75 if dashed else 1), linestyle=_DASHES if dashed else "-",
                    zorder=1.8 if look.bold and variants else look.order, marker=look.marker,
                    markevery=_marks(len(path.rounds), number, len(shown)),
                    markersize=4.2 if look.bold else 3.6, markeredgecolor="white", markeredgewidth=0.4,
                )  # fmt: skip
                if together and path.std.any():
                    axes.fill_between(
                        path.rounds, path.mean - path.std, path.mean + path.std, color=look.colour,
                        alpha=0.09 if dashed else 0.18, linewidth=0, zorder=1,
                    )  # fmt: skip
        score_axis(axes, "accuracy" if together else scores[0].capitalize())
        axes.margins(x=0.01)
        _mark_stage2(axes, shown)
    all_axes[-1].set_xlabel("round")
    if together:  # which line is which score
        keys = [Line2D([], [], color=INK, linewidth=1),
                Line2D([], [], color=INK, linewidth=0.8, linestyle=_DASHES)]  # fmt: skip
        all_axes[0].legend(
            keys, ["Test (as deployed)", "Self (own model)"], loc="lower left", bbox_to_anchor=(-0.02, 0.99),
            ncols=2, borderpad=0.2,
        )  # fmt: skip
    notes = [_seeds_text(shown, "bands" if together else "")]
    if not together:
        bold = [row for row, look in zip(shown, looks, strict=True) if look.bold]
        notes += [_deviation(row) for row in [*filter(None, [main_row(bold)]), *bold][:1]]
    notes += [f"{name_of(row)}: {odd}" for row in shown if (odd := _ODD.get(row.first.method))]
    footnote(figure, "; ".join(note for note in notes if note) + _every_round(shown))
    for axes, (score, *_) in zip(all_axes, panels, strict=True):
        end_labels(axes, [row.courses[score] for row in shown], [name_of(row) for row in shown], looks)
    return figure


def _marks(points: int, number: int, of: int) -> list[int]:
    """Which rounds are marked: a few of each line, others than of its neighbours."""
    if points == 1:
        return [0]
    step = max(points / _MARKS, 1.0)
    return sorted({int((k + (number + 0.5) / of) * step) for k in range(_MARKS)} & set(range(points)))


def _mark_stage2(axes: Axes, rows: Sequence[Row]) -> None:
    first = {row.first.identity["study"]["training"]["stage1_rounds"] for row in rows}
    last = max(float(row.courses["test"].rounds[-1]) for row in rows)
    if len(first) == 1 and 0 < (start := first.pop()) < last:
        axes.axvline(start, color=GREY, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
        axes.annotate(
            "Stage 2", (start, 0), xycoords=("data", "axes fraction"), xytext=(2, 2),
            textcoords="offset points", fontsize=5.5, color=GREY,
        )  # fmt: skip


def _deviation(row: Row) -> str:
    """Said of one row where there is no room for bands."""
    last = row.courses["test"].std[-1]
    end = f"standard deviation over seeds at the end, Test of “{name_of(row)}”: {score_text(last)}"
    return f"no bands, too many lines; {end}" if last else ""


def _every_round(rows: Sequence[Row]) -> str:
    selected = any(row.test_selected for row in rows)
    return "; curves show every round; the table's † is the best one" if selected else ""


def _seeds_text(rows: Sequence[Row], what: str) -> str:
    counts = sorted({len(row.records) for row in rows})
    many = "–".join(map(str, sorted({counts[0], counts[-1]})))
    if counts[-1] == 1:
        return "one seed"
    return f"mean over {many} seeds" + (f"; {what}: one standard deviation over them" if what else "")


# -- accuracy against bytes ----------------------------------------------------------------------


@styled()
def draw_bytes(rows: Sequence[Row], title: str) -> Figure:
    """Test against what a node has sent so far; below, against replies and parameters alone, at the end.

    Both panels have the same axes: what moves to the left in the lower one has sent mostly queries. Methods
    that send nothing in training lie flat.
    """
    shown = [row for row in rows if row.evaluated]
    figure = sheet(max(3.4, 0.8 + 0.135 * len(shown)), title)
    every, answers = figure.subplots(2, sharex=True, sharey=True, height_ratios=[1.25, 1])
    lines: list[tuple[float, Line2D, Look]] = []
    for row, look in zip(shown, looks_of(shown), strict=True):
        path = row.courses["test"]
        style: dict[str, Any] = {
            "color": look.colour, "zorder": look.order, "label": name_of(row), "linewidth": look.width,
            "marker": look.marker, "markersize": 5 if look.bold else 4,
            "markeredgecolor": "white", "markeredgewidth": 0.4,
        }  # fmt: skip
        end, talks = float(path.mean[-1]), path.bytes > 0
        if talks.any():
            line = every.plot(path.bytes[talks], path.mean[talks], markevery=[-1], **style)[0]
        else:
            line = _level(every, row, look, end)
        lines.append((end, line, look))
        if row.answers > 0:
            answers.plot([1e9 * row.answers], [end], **style)
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
    notes = [
        "one seed" if max(len(row.records) for row in shown) == 1 else "means over seeds",
        "marked: after the last round",
        *["flat lines: nothing is sent in training"] * any(row.gigabytes() == 0 for row in shown),
        *["anchors count as parameters do"] * any(row.gigabytes("anchors") > 0 for row in shown),
        f"below, only where each ends (the course of queries is not stored), {headers_text(shown, name_of)}",
    ]
    footnote(figure, "; ".join(notes) + _every_round(shown))
    return figure


def _level(axes: Axes, row: Row, look: Look, height: float) -> Line2D:
    """Of a method that sends nothing."""
    dots = (0, (1, 1.2)) if row.first.method == "independent" else (0, (4, 1.5))
    return axes.axhline(
        height, linewidth=0.9, linestyle=dots, color=look.colour, zorder=look.order, label=name_of(row)
    )


# -- ablations -----------------------------------------------------------------------------------


@styled()
def draw_ablation(rows: Sequence[Row], title: str, x: str) -> Figure:
    """Test and Self over what is varied; hollow: the paper's numbers. Rows without an x are flat lines."""
    varied = sorted((row for row in rows if row.x is not None), key=lambda row: row.x or 0.0)
    values = np.array([row.x for row in varied], float)
    places, kind = _places(values)
    figure = sheet(2.3, title)
    axes = figure.add_subplot()
    # A little beside each other, so that one's bars do not hide the other's.
    for score, colour, marker, side in (("test", "#d55e00", "o", -1), ("self", "#0072b2", "s", 1)):
        if kind == "log":
            beside = places * (places.max() / places.min()) ** (0.006 * side)
        else:
            beside = places + 0.006 * side * (np.ptp(places) or 1.0)
        spreads = [row.test if score == "test" else row.spread("self") for row in varied]
        known = [(at, each) for at, each in zip(beside.tolist(), spreads, strict=True) if each is not None]
        if known:
            axes.errorbar(
                [at for at, _ in known], [s.mean for _, s in known], yerr=[s.std for _, s in known],
                color=colour, marker=marker, markersize=4, linewidth=1.2, elinewidth=0.8, capsize=2,
                capthick=0.8, label=score.capitalize(), zorder=3,
            )  # fmt: skip
        paper = [(at, row.paper[score]) for at, row in zip(beside.tolist(), varied, strict=True)
                 if score in row.paper]  # fmt: skip
        if paper:
            axes.plot(
                *np.array(paper).T, linestyle="none", marker=marker, markersize=5.5, markerfacecolor="none",
                markeredgecolor=colour, markeredgewidth=0.8, label=f"{score.capitalize()}, paper", zorder=4,
            )  # fmt: skip
    for number, row in enumerate(row for row in rows if row.x is None):
        if row.test is not None:
            style = ("-.", ":", "--", "-")[number % 4]
            label = f"{name_of(row)} (Test)"
            axes.axhline(row.test.mean, color=GREY, linewidth=0.9, linestyle=style, label=label)
    if kind == "log":
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(places, [f"{value:g}" for value in values])
    axes.set_xlabel(x)
    score_axis(axes, "accuracy")
    axes.margins(x=0.06, y=0.08)
    first = {"Test": 0, "Self": 1}
    entries = sorted(
        zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: first.get(entry[1], 2)
    )
    axes.legend(
        *zip(*entries, strict=True), loc="lower left", bbox_to_anchor=(-0.02, 0.99),
        ncols=(len(entries) + 1) // 2, borderpad=0.2, columnspacing=1.2,
    )  # fmt: skip
    selected = any(row.test_selected for row in varied)
    which = "; Test of LNTrust: its best round on test, as in the paper" if selected else ""
    footnote(figure, _seeds_text(varied, "bars") + which)
    return figure


def _places(values: Float[ndarray, "k"]) -> tuple[Float[ndarray, "k"], Literal["linear", "log", "even"]]:
    """True to scale where the values then stand apart, else evenly."""
    if len(values) < 2 or _apart(values):
        return values, "linear"
    if (values > 0).all() and _apart(np.log(values)):
        return values, "log"
    return np.arange(len(values), dtype=float), "even"


def _apart(values: Float[ndarray, "k"]) -> bool:
    return bool(np.diff(values).min() >= 0.07 * (values[-1] - values[0]))
