"""Lines and bars: scores per round, for what is sent, along an ablation; and what trust looks at."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from lntrust.core.text import bytes_text, number_text, score_text, tick_text
from lntrust.report.figures import style
from lntrust.report.figures.style import GREY, INK, VERMILLION, Look
from lntrust.report.rows import Row, Score, headers_text, main_row

_FEW = 3  # rows whose Test and Self are told apart in one panel
_MARKS = 4  # on a line
_DASHES = (0, (2.5, 1.5))
_ODD = {  # what one may wonder about
    "centralized": "trained once, as Stage 2 begins",
    "fedpae": "alone until it selects its ensemble at the end",
    "stacking": "alone until it is fitted at the end",
    "fens": "alone until it is fitted at the end",
    "knn_per": "its model alone until the end",
}
_LOG = 8.0  # a longest bar that is so many times the shortest asks for a logarithmic axis
_SELECTED = "Test of LNTrust: its best round on test, as in the paper"


# -- scores per round ----------------------------------------------------------------------------


def draw_curves(rows: Sequence[Row], title: str) -> Figure:
    """Test (solid) and Self (dashed) per round, with a band of one standard deviation over seeds.

    More than a few rows get a panel for each of the two, and no bands: those would hide the lines.
    """
    shown = [row for row in rows if row.evaluated]
    looks = style.looks_of(shown)
    together = len(shown) <= _FEW
    variants = sum(row.first.method == "lntrust" for row in shown) > 1
    panels: list[tuple[Score, ...]] = [("test", "self")] if together else [("test",), ("self",)]
    tall = max(1.9 if together else 1.6, 0.6 + 0.107 * len(shown))
    figure = style.sheet(0.45 + tall * len(panels), title)
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, scores in zip(all_axes, panels, strict=True):
        for number, (row, look) in enumerate(zip(shown, looks, strict=True)):
            for score in scores:
                path, dashed = row.courses[score], together and score == "self"
                line = look.line(4.2 if look.bold else 3.6) | {"linestyle": _DASHES if dashed else "-"}
                line["linewidth"] *= 0.75 if dashed else 1
                if look.bold and variants:  # below its variants, which often run along it: it is wide enough
                    line["zorder"] = 1.8
                marks = _marks(len(path.rounds), number, len(shown))
                axes.plot(path.rounds, path.mean, markevery=marks, **line)
                if together and path.std.any():
                    axes.fill_between(
                        path.rounds, path.mean - path.std, path.mean + path.std, color=look.colour,
                        alpha=0.09 if dashed else 0.18, linewidth=0, zorder=1,
                    )  # fmt: skip
        style.score_axis(axes, "accuracy" if together else scores[0].capitalize())
        axes.margins(x=0.01)
        _mark_stage2(axes, shown)
    all_axes[-1].set_xlabel("round")
    if together:  # which line is which score
        deployed = Line2D([], [], color=INK, linewidth=1, label="Test (as deployed)")
        own = Line2D([], [], color=INK, linewidth=0.8, linestyle=_DASHES, label="Self (own model)")
        style.legend_above(all_axes[0], [deployed, own], ncols=2)
    notes = [_seeds_text(shown, "bands" if together else "")]
    bold = [row for row, look in zip(shown, looks, strict=True) if look.bold]
    if bold and not together and (last := (row := main_row(bold) or bold[0]).courses["test"].std[-1]):
        end = f"standard deviation over seeds at the end, Test of “{style.name_of(row)}”: {score_text(last)}"
        notes.append(f"no bands, too many lines; {end}")
    notes += [f"{style.name_of(row)}: {odd}" for row in shown if (odd := _ODD.get(row.first.method))]
    style.footnote(figure, *notes, _every_round(shown))
    for axes, (score, *_) in zip(all_axes, panels, strict=True):
        style.end_labels(axes, [row.courses[score] for row in shown], looks)
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


def _every_round(rows: Sequence[Row]) -> str:
    selected = any(row.test_selected for row in rows)
    return "curves show every round; the table's † is the best one" if selected else ""


def _seeds_text(rows: Sequence[Row], what: str) -> str:
    counts = sorted({len(row.records) for row in rows})
    if counts[-1] == 1:
        return "one seed"
    many = "–".join(map(str, sorted({counts[0], counts[-1]})))
    return f"mean over {many} seeds" + (f"; {what}: one standard deviation over them" if what else "")


# -- accuracy against bytes ----------------------------------------------------------------------


def draw_bytes(rows: Sequence[Row], title: str) -> Figure:
    """Test against what a node has sent so far; below, against replies and parameters alone, at the end.

    Both panels have the same axes: what moves to the left in the lower one has sent mostly queries. Methods
    that send nothing in training lie flat.
    """
    shown = [row for row in rows if row.evaluated]
    figure = style.sheet(max(3.4, 0.8 + 0.135 * len(shown)), title)
    every, answers = figure.subplots(2, sharex=True, sharey=True, height_ratios=[1.25, 1])
    lines: list[tuple[float, Line2D, Look]] = []
    for row, look in zip(shown, style.looks_of(shown), strict=True):
        path = row.courses["test"]
        end, talks = float(path.mean[-1]), path.bytes > 0
        line = look.line(5 if look.bold else 4)
        dots = (0, (1, 1.2)) if row.first.method == "independent" else (0, (4, 1.5))
        kept = {name: line[name] for name in ("color", "zorder", "label")}
        flat = kept | {"linewidth": 0.9, "linestyle": dots}
        if talks.any():
            [drawn] = every.plot(path.bytes[talks], path.mean[talks], markevery=[-1], **line)
        else:
            drawn = every.axhline(end, **flat)
        lines.append((end, drawn, look))
        if row.answers > 0:
            answers.plot([1e9 * row.answers], [end], **line)
        elif not talks.any():
            answers.axhline(end, **flat)
    for axes, text in ((every, "Everything sent"), (answers, "Replies and parameters only")):
        style.log_axis(axes, bytes_text, ticks=4)
        style.score_axis(axes, "Test")
        axes.set_title(text, loc="left", pad=3)
    answers.set_xlabel("sent per node in training")
    lines.sort(key=lambda each: -each[0])  # as the ends lie, from the top
    legend = figure.legend(
        handles=[drawn for _, drawn, _ in lines], loc="outside right center", labelspacing=0.35, borderpad=0.1
    )
    for entry, (_, _, look) in zip(legend.get_texts(), lines, strict=True):
        entry.set_fontweight(look.weight)
    style.footnote(
        figure,
        "one seed" if max(len(row.records) for row in shown) == 1 else "means over seeds",
        "marked: after the last round",
        "flat lines: nothing is sent in training" if any(row.gigabytes() == 0 for row in shown) else "",
        "anchors count as parameters do" if any(row.gigabytes("anchors") > 0 for row in shown) else "",
        "below, only where each ends (the course of queries is not stored), "
        + headers_text(shown, style.name_of),
        _every_round(shown),
    )
    return figure


# -- ablations -----------------------------------------------------------------------------------


def draw_ablation(rows: Sequence[Row], title: str, x: str) -> Figure:
    """Test and Self over what is varied; hollow: the paper's numbers. Rows without an x are flat lines."""
    varied = sorted((row for row in rows if row.x is not None), key=lambda row: row.x or 0.0)
    values = np.array([row.x for row in varied], float)
    places, kind = _places(values)
    figure = style.sheet(2.3, title)
    axes = figure.add_subplot()
    # A little beside each other, so that one's bars do not hide the other's.
    for score, colour, marker, side in (("test", "#d55e00", "o", -1), ("self", "#0072b2", "s", 1)):
        if kind == "log":
            beside = places * (places.max() / places.min()) ** (0.006 * side)
        else:
            beside = places + 0.006 * side * (np.ptp(places) or 1.0)
        at = list(zip(beside.tolist(), varied, strict=True))
        spreads = [(place, row.test if score == "test" else row.spread("self")) for place, row in at]
        if known := [(place, *spread) for place, spread in spreads if spread]:
            x_places, means, deviations = zip(*known, strict=True)
            axes.errorbar(
                x_places, means, yerr=deviations, color=colour, marker=marker, markersize=4, linewidth=1.2,
                elinewidth=0.8, capsize=2, capthick=0.8, label=score.capitalize(), zorder=3,
            )  # fmt: skip
        paper = [(place, row.paper[score]) for place, row in at if score in row.paper]
        if paper:
            axes.plot(
                *np.array(paper).T, linestyle="none", marker=marker, markersize=5.5, markerfacecolor="none",
                markeredgecolor=colour, markeredgewidth=0.8, label=f"{score.capitalize()}, paper", zorder=4,
            )  # fmt: skip
    for number, row in enumerate(row for row in rows if row.x is None):
        if row.test is not None:
            dashes, label = ("-.", ":", "--", "-")[number % 4], f"{style.name_of(row)} (Test)"
            axes.axhline(row.test.mean, color=GREY, linewidth=0.9, linestyle=dashes, label=label)
    if kind == "log":
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(places, [f"{value:g}" for value in values])
    axes.set_xlabel(x)
    style.score_axis(axes, "accuracy")
    axes.margins(x=0.06, y=0.08)
    handles, _ = axes.get_legend_handles_labels()
    handles.sort(key=lambda each: {"Test": 0, "Self": 1}.get(str(each.get_label()), 2))
    style.legend_above(axes, handles, ncols=(len(handles) + 1) // 2, columnspacing=1.2)
    selected = any(row.test_selected for row in varied)
    style.footnote(figure, _seeds_text(varied, "bars"), _SELECTED if selected else "")
    return figure


def _places(values: Float[ndarray, "k"]) -> tuple[Float[ndarray, "k"], Literal["linear", "log", "even"]]:
    """True to scale where the values then stand apart, else evenly."""

    def apart(values: Float[ndarray, "k"]) -> bool:
        return bool(np.diff(values).min() >= 0.07 * (values[-1] - values[0]))

    if len(values) < 2 or apart(values):
        return values, "linear"
    if (values > 0).all() and apart(np.log(values)):
        return values, "log"
    return np.arange(len(values), dtype=float), "even"


# -- bars ----------------------------------------------------------------------------------------


def draw_communication(rows: Sequence[Row], title: str) -> Figure:
    """Test per GB that a node sends in training, counted as the paper does and in full."""
    scored = [row for row in rows if row.test is not None]
    averaging = [row.gigabytes("parameters") > 0 for row in scored]
    counted = [row.gigabytes("parameters") or row.gigabytes("reply") for row in scored]
    panels = [("Replies or parameters, as in the paper", counted),
              ("Everything sent, queries included", [row.gigabytes() for row in scored])]  # fmt: skip
    heights = [max(sum(size > 0 for size in sizes), 1) for _, sizes in panels]
    figure = style.sheet(1.15 + 0.155 * sum(heights), title)
    all_axes = figure.subplots(2, height_ratios=heights)
    looks = [replace(look, colour=GREY) if grey else look
             for look, grey in zip(style.looks_of(scored), averaging, strict=True)]  # fmt: skip
    for axes, (text, sizes) in zip(all_axes, panels, strict=True):
        bars = [(row.test.mean, size, look) for row, look, size in zip(scored, looks, sizes, strict=True)
                if row.test is not None and size > 0]  # fmt: skip
        _efficiency(axes, sorted(bars, key=lambda bar: bar[0] / bar[1]))
        axes.set_title(text, loc="left", pad=3)
    all_axes[-1].set_xlabel("Test per GB sent per node")
    silent = ", ".join(style.name_of(row) for row in scored if row.gigabytes() == 0)
    style.footnote(
        figure,
        "beside the bars: Test, and what a node sends in training",
        "grey: they send parameters, and above only those are counted" if any(averaging) else "",
        f"send nothing in training, and are left out: {silent}" if silent else "",
        _SELECTED if any(row.test_selected for row in scored) else "",
    )
    return figure


def _efficiency(axes: Axes, bars: Sequence[tuple[float, float, Look]]) -> None:
    """Bars from the shortest up, of Test, GB and look."""
    heights = [test / size for test, size, _ in bars]
    drawn = axes.barh(range(len(bars)), heights, height=0.68, color=[look.colour for _, _, look in bars])
    style.names_beside(axes, [look.name for _, _, look in bars])
    if bars and heights[-1] > _LOG * heights[0]:
        start = 10 ** (np.floor(np.log10(heights[0]) - 0.15))
        room = (heights[-1] / start) ** 0.55  # for what stands beside the bars
        axes.set_xlim(start, heights[-1] * room)
        style.log_axis(axes, tick_text, ticks=5)
    elif bars:
        axes.set_xlim(0, 1.5 * heights[-1])
    # In GB, as the axis; what would be zeros after the point, in smaller units.
    sizes = [f"{number_text(size)} GB" if size >= 0.001 else bytes_text(1e9 * size) for _, size, _ in bars]
    words = [f"{score_text(test)} · {size}" for (test, _, _), size in zip(bars, sizes, strict=True)]
    axes.bar_label(drawn, words, padding=2, fontsize=5.5)
    for (_, _, look), tick in zip(bars, axes.get_yticklabels(), strict=True):
        tick.set_fontweight(look.weight)


def draw_importance(row: Row, title: str, which: str) -> Figure:
    """Permutation importance of the trust model's features: mean over seeds, bars over repetitions."""
    reports = [record.summary["method_report"] for record in row.records]
    names = list(reports[0]["importance"])
    mean, std = (
        np.array([[report[key][name] for name in names] for report in reports]).mean(0)
        for key in ("importance", "importance_std")
    )
    order, places = np.argsort(mean, kind="stable"), np.arange(len(names))
    figure = style.sheet(0.75 + 0.19 * len(names), title)
    axes = figure.add_subplot()
    axes.barh(
        places, mean[order], xerr=std[order], height=0.66, color=VERMILLION,
        error_kw={"elinewidth": 0.8, "capsize": 2, "capthick": 0.8},
    )  # fmt: skip
    style.names_beside(axes, [names[i] for i in order])
    axes.axvline(0, linewidth=0.6, color="black")
    axes.set_xlabel("rise of the validation loss if permuted")
    bars = "error bars: one standard deviation over repetitions"
    style.footnote(figure, which or style.name_of(row), _seeds_text([row], ""), bars)
    return figure
