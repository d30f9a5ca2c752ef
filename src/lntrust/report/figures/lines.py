"""Figures with lines: scores per round, and along an ablation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from lntrust.experiment.store import Record
from lntrust.report.claims import short
from lntrust.report.figures.style import (
    GREY,
    INK,
    WIDTH,
    Look,
    end_labels,
    footnote,
    in_style,
    looks_of,
    name_of,
    score_axis,
    sheet,
)
from lntrust.report.rows import Row, Spread, main_row

_FEW = 3  # rows whose Test and Self are told apart in one panel
_MARKS = 4  # on a line
_ODD = {  # what one may wonder about
    "centralized": "trained once, as Stage 2 begins",
    "fedpae": "alone until it selects its ensemble at the end",
}
Score = Literal["test", "self"]


@dataclass(frozen=True)
class Course:
    """A score over the rounds that were evaluated under every seed."""

    rounds: Float[ndarray, "k"]
    bytes: Float[ndarray, "k"]  # sent so far, per node
    mean: Float[ndarray, "k"]
    std: Float[ndarray, "k"]

    @property
    def empty(self) -> bool:
        return not len(self.rounds)


def course(row: Row, score: Score) -> Course:
    """Means over seeds."""
    by_seed = [_evaluated(record, score) for record in row.records]
    common = sorted(set.intersection(*(set(each) for each in by_seed)))
    table = np.array([[each[number] for number in common] for each in by_seed], dtype=float)
    table = table.reshape(len(by_seed), len(common), 2)
    sent, values = table[..., 0], table[..., 1]
    return Course(np.array(common, float), sent.mean(0), values.mean(0), values.std(0))


def _evaluated(record: Record, score: Score) -> dict[int, tuple[float, float]]:
    """Bytes and score by round."""
    if "rounds" not in record.tables:
        return {}
    columns = (record.rounds.column(name).to_pylist() for name in ("round", "bytes", score))
    nodes = record.summary["nodes"]
    return {r: (sent / nodes, value) for r, sent, value in zip(*columns, strict=True) if value is not None}


def has_rounds(row: Row) -> bool:
    return not course(row, "test").empty


# -- scores per round ----------------------------------------------------------------------------


@in_style
def draw_curves(rows: Sequence[Row], title: str) -> Figure:
    """Test (solid) and Self (dashed) per round, with a band of one standard deviation over seeds.

    More than a few rows get a panel for each of the two, and no bands: those would hide the lines.
    """
    shown = [row for row in rows if has_rounds(row)]
    looks = looks_of(shown)
    together = len(shown) <= _FEW
    variants = sum(row.first.method == "lntrust" for row in shown) > 1
    panels: list[tuple[Score, ...]] = [("test", "self")] if together else [("test",), ("self",)]
    tall = max(1.9 if together else 1.6, 0.6 + 0.107 * len(shown))
    figure = sheet(WIDTH, 0.45 + tall * len(panels), title)
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, scores in zip(all_axes, panels, strict=True):
        for number, (row, look) in enumerate(zip(shown, looks, strict=True)):
            for score in scores:
                path, dashed = course(row, score), together and score == "self"
                # Below its variants, which often run along it, a bold line is wide enough to be seen.
                order = 1.8 if look.bold and variants else look.order
                _curve(axes, path, look, order, dashed=dashed, marks=_marks(path, number, len(shown)))
                if together:
                    _band(axes, path, look, 0.09 if dashed else 0.18)
        _decorate(axes, shown, "accuracy" if together else scores[0].capitalize())
    all_axes[-1].set_xlabel("round")
    if together:
        _key(all_axes[0])
    notes = [_seeds_text(shown, "bands" if together else "")]
    if not together:
        bold = [row for row, look in zip(shown, looks, strict=True) if look.bold]
        notes += [_deviation(row) for row in [*filter(None, [main_row(bold)]), *bold][:1]]
    notes += [f"{name_of(row)}: {odd}" for row in shown if (odd := _ODD.get(row.first.method))]
    footnote(figure, "; ".join(note for note in notes if note) + every_round(shown))
    for axes, scores in zip(all_axes, panels, strict=True):
        ends = []
        for row, look in zip(shown, looks, strict=True):
            path = course(row, scores[0])
            if not path.empty:
                ends.append((float(path.rounds[-1]), float(path.mean[-1]), name_of(row), look))
        end_labels(axes, ends)
    return figure


def _deviation(row: Row) -> str:
    """Said of one row where there is no room for bands."""
    last = course(row, "test").std[-1]
    end = f"standard deviation over seeds at the end, Test of “{name_of(row)}”: {short(last)}"
    return f"no bands, too many lines; {end}" if last else ""


def every_round(rows: Sequence[Row]) -> str:
    selected = any(row.test_selected for row in rows)
    return "; curves show every round; the table's † is the best one" if selected else ""


def _marks(path: Course, number: int, of: int) -> list[int]:
    """Which rounds are marked: a few of each line, others than of its neighbours."""
    points = len(path.rounds)
    if points == 1:
        return [0]
    step = max(points / _MARKS, 1.0)
    return sorted({int((k + (number + 0.5) / of) * step) for k in range(_MARKS)} & set(range(points)))


def _curve(axes: Axes, path: Course, look: Look, order: float, *, dashed: bool, marks: list[int]) -> None:
    if not path.empty:
        axes.plot(
            path.rounds, path.mean, color=look.colour, linewidth=look.width * (0.75 if dashed else 1),
            linestyle=(0, (2.5, 1.5)) if dashed else "-", zorder=order, marker=look.marker,
            markevery=marks, markersize=4.2 if look.bold else 3.6, markeredgecolor="white",
            markeredgewidth=0.4,
        )  # fmt: skip


def _band(axes: Axes, path: Course, look: Look, alpha: float) -> None:
    if not path.empty and path.std.any():
        low, high = path.mean - path.std, path.mean + path.std
        axes.fill_between(path.rounds, low, high, color=look.colour, alpha=alpha, linewidth=0, zorder=1)


def _decorate(axes: Axes, rows: Sequence[Row], label: str) -> None:
    score_axis(axes, label)
    axes.margins(x=0.01)
    first = {row.first.identity["study"]["training"]["stage1_rounds"] for row in rows}
    last = max(float(course(row, "test").rounds[-1]) for row in rows)
    if len(first) == 1 and 0 < (start := first.pop()) < last:
        axes.axvline(start, color=GREY, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
        axes.annotate(
            "Stage 2", (start, 0), xycoords=("data", "axes fraction"), xytext=(2, 2),
            textcoords="offset points", fontsize=5.5, color=GREY,
        )  # fmt: skip


def _key(axes: Axes) -> None:
    """Which line is which score."""
    lines = [
        Line2D([], [], color=INK, linewidth=1),
        Line2D([], [], color=INK, linewidth=0.8, linestyle=(0, (2.5, 1.5))),
    ]
    axes.legend(
        lines, ["Test (as deployed)", "Self (own model)"], loc="lower left", bbox_to_anchor=(-0.02, 0.99),
        ncols=2, borderpad=0.2,
    )  # fmt: skip


def _seeds_text(rows: Sequence[Row], what: str) -> str:
    counts = sorted({len(row.records) for row in rows})
    many = "–".join(map(str, sorted({counts[0], counts[-1]})))
    if counts[-1] == 1:
        return "one seed"
    return f"mean over {many} seeds" + (f"; {what}: one standard deviation over them" if what else "")


# -- ablations -----------------------------------------------------------------------------------


@in_style
def draw_ablation(rows: Sequence[Row], title: str, x: str) -> Figure:
    """Test and Self over what is varied; hollow: the paper's numbers. Rows without an x are flat lines."""
    varied = sorted((row for row in rows if row.x is not None), key=lambda row: row.x or 0.0)
    values = np.array([row.x for row in varied], float)
    places, kind = _places(values)
    figure = sheet(WIDTH, 2.3, title)
    axes = figure.add_subplot()
    # A little beside each other, so that one's bars do not hide the other's.
    for score, colour, marker, label, side in (
        ("test", "#d55e00", "o", "Test", -1),
        ("self", "#0072b2", "s", "Self", 1),
    ):
        spreads = [row.test if score == "test" else row.spread("self") for row in varied]
        known = [(p, s) for p, s in zip(places, spreads, strict=True) if s is not None]
        at = _beside(np.array([p for p, _ in known]), side, kind, places)
        _errors(axes, at, [s for _, s in known], colour, marker, label)
        _paper(axes, varied, score, _beside(places, side, kind, places), colour, marker)
    flat = [row for row in rows if row.x is None]
    for number, row in enumerate(flat):
        if (level := row.test) is not None:
            style = ("-.", ":", "--", "-")[number % 4]
            axes.axhline(
                level.mean, color=GREY, linewidth=0.9, linestyle=style, label=f"{name_of(row)} (Test)"
            )
    if kind == "log":
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(places, [f"{value:g}" for value in values])
    axes.set_xlabel(x)
    score_axis(axes, "accuracy")
    axes.margins(x=0.06, y=0.08)
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(
        range(len(labels)), key=lambda i: ["Test", "Self"].index(labels[i]) if len(labels[i]) == 4 else 2
    )
    axes.legend(
        [handles[i] for i in order], [labels[i] for i in order],
        loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=(len(order) + 1) // 2,
        borderpad=0.2, columnspacing=1.2,
    )  # fmt: skip
    footnote(figure, _seeds_text(varied, "bars") + _selected(varied))
    return figure


def _places(values: Float[ndarray, "k"]) -> tuple[Float[ndarray, "k"], Literal["linear", "log", "even"]]:
    """True to scale where the values then stand apart, else evenly."""
    if len(values) < 2:
        return values, "linear"
    for kind, scaled in (("linear", values), ("log", np.log(values) if (values > 0).all() else None)):
        if scaled is not None and np.diff(scaled).min() >= 0.07 * (scaled[-1] - scaled[0]):
            return values, "log" if kind == "log" else "linear"
    return np.arange(len(values), dtype=float), "even"


def _beside(
    at: Float[ndarray, "k"], side: int, kind: str, places: Float[ndarray, "m"]
) -> Float[ndarray, "k"]:
    if kind == "log":
        return np.asarray(at * (places.max() / places.min()) ** (0.006 * side))
    return np.asarray(at + 0.006 * side * (np.ptp(places) or 1.0))


def _errors(
    axes: Axes, at: Float[ndarray, "k"], spreads: Sequence[Spread], colour: str, marker: str, label: str
) -> None:
    if not len(at):
        return
    axes.errorbar(
        at, [s.mean for s in spreads], yerr=[s.std for s in spreads], color=colour, marker=marker,
        markersize=4, linewidth=1.2, elinewidth=0.8, capsize=2, capthick=0.8, label=label, zorder=3,
    )  # fmt: skip


def _paper(
    axes: Axes, rows: Sequence[Row], score: str, at: Float[ndarray, "k"], colour: str, marker: str
) -> None:
    found = [(p, row.paper[score]) for p, row in zip(at.tolist(), rows, strict=True) if score in row.paper]
    if found:
        axes.plot(
            *np.array(found).T, linestyle="none", marker=marker, markersize=5.5, markerfacecolor="none",
            markeredgecolor=colour, markeredgewidth=0.8, label=f"{score.capitalize()}, paper", zorder=4,
        )  # fmt: skip


def _selected(rows: Sequence[Row]) -> str:
    return (
        "; Test of LNTrust: its best round on test, as in the paper"
        if any(r.test_selected for r in rows)
        else ""
    )
