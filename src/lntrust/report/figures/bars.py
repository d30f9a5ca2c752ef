"""Figures with bars: accuracy for what is sent, and what the trust model looks at."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lntrust.core.text import bytes_text, number_text, score_text, tick_text
from lntrust.report.figures.style import (
    GREY,
    VERMILLION,
    Look,
    footnote,
    log_axis,
    looks_of,
    name_of,
    sheet,
    styled,
)
from lntrust.report.rows import Row

_LOG = 8.0  # a longest bar that is so many times the shortest asks for a logarithmic axis


def _sends_parameters(row: Row) -> bool:
    return row.gigabytes("parameters") > 0


@styled()
def draw_communication(rows: Sequence[Row], title: str) -> Figure:
    """Test per GB that a node sends in training, counted as the paper does and in full."""
    scored = [row for row in rows if row.test is not None]
    looks = {row.label: look for row, look in zip(scored, looks_of(scored), strict=True)}
    countings: list[tuple[str, Callable[[Row], float]]] = [
        ("Replies or parameters, as in the paper",
         lambda row: row.gigabytes("parameters" if _sends_parameters(row) else "reply")),
        ("Everything sent, queries included", lambda row: row.gigabytes()),
    ]  # fmt: skip
    panels = [(text, sent, [row for row in scored if sent(row) > 0]) for text, sent in countings]
    bars = [max(len(shown), 1) for _, _, shown in panels]
    figure = sheet(1.15 + 0.155 * sum(bars), title)
    all_axes = figure.subplots(2, height_ratios=bars)
    for axes, (text, sent, shown) in zip(all_axes, panels, strict=True):
        _efficiency(axes, shown, sent, looks)
        axes.set_title(text, loc="left", pad=3)
    all_axes[-1].set_xlabel("Test per GB sent per node")
    silent = [name_of(row) for row in scored if row.gigabytes() == 0]
    notes = ["beside the bars: Test, and what a node sends in training"]
    if any(map(_sends_parameters, scored)):
        notes.append("grey: they send parameters, and above only those are counted")
    if silent:
        notes.append(f"send nothing in training, and are left out: {', '.join(silent)}")
    if any(row.test_selected for row in scored):
        notes.append("Test of LNTrust: its best round on test, as in the paper")
    footnote(figure, "; ".join(notes))
    return figure


def _efficiency(
    axes: Axes, rows: Sequence[Row], sent: Callable[[Row], float], looks: dict[str, Look]
) -> None:
    scores = {row.label: row.test.mean for row in rows if row.test is not None}
    rows = sorted(rows, key=lambda row: scores[row.label] / sent(row))
    heights = np.array([scores[row.label] / sent(row) for row in rows])
    places = np.arange(len(rows))
    colours = [GREY if _sends_parameters(row) else looks[row.label].colour for row in rows]
    axes.barh(places, heights, height=0.68, color=colours)
    axes.set_yticks(places, [name_of(row) for row in rows])
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if looks[row.label].bold else "normal")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    if len(rows):
        low, high = float(heights.min()), float(heights.max())
        if high > _LOG * low:
            start = 10 ** (np.floor(np.log10(low) - 0.15))
            axes.set_xlim(start, high * (high / start) ** 0.55)  # room for what stands beside the bars
            log_axis(axes, tick_text, ticks=5)
        else:
            axes.set_xlim(0, 1.5 * high)
    for place, height, row in zip(places.tolist(), heights.tolist(), rows, strict=True):
        count = sent(row)  # in GB, as the axis; what would be zeros after the point, in smaller units
        size = f"{number_text(count)} GB" if count >= 0.001 else bytes_text(1e9 * count)
        axes.annotate(
            f"{score_text(scores[row.label])} · {size}", (height, place), xytext=(2, 0),
            textcoords="offset points", va="center", fontsize=5.5,
        )  # fmt: skip


@styled()
def draw_importance(row: Row, title: str, which: str = "") -> Figure:
    """Permutation importance of the trust model's features: mean over seeds, bars over repetitions."""
    reports = [record.summary["method_report"] for record in row.records]
    names = list(reports[0]["importance"])
    mean, std = (
        np.array([[report[key][name] for name in names] for report in reports]).mean(0)
        for key in ("importance", "importance_std")
    )
    order = np.argsort(mean, kind="stable")
    figure = sheet(0.75 + 0.19 * len(names), title)
    axes = figure.add_subplot()
    axes.barh(
        np.arange(len(names)), mean[order], xerr=std[order], height=0.66, color=VERMILLION,
        error_kw={"elinewidth": 0.8, "capsize": 2, "capthick": 0.8},
    )  # fmt: skip
    axes.set_yticks(np.arange(len(names)), [names[i] for i in order])
    axes.tick_params(axis="y", length=0)
    axes.axvline(0, linewidth=0.6, color="black")
    axes.grid(axis="x")
    axes.set_xlabel("rise of the validation loss if permuted")
    seeds = len(reports)
    mean_of = "one seed" if seeds == 1 else f"mean over {seeds} seeds"
    bars = "error bars: one standard deviation over repetitions"
    footnote(figure, f"{which or name_of(row)}; {mean_of}; {bars}")
    return figure
