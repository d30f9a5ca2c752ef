"""How figures look: print size, fonts, and for every method the same colour and marker in all of them."""

import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.style import context
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator
from numpy import ndarray
from scipy.optimize import isotonic_regression

from lntrust.report.rows import Course, Row, main_row

WIDTH = 3.5  # inches, one column of a paper
WIDE = 7.16  # both columns
GREY, INK, PALE = "#8a8f98", "#20242b", "#c9ced6"
VERMILLION = "#d55e00"
# Okabe and Ito's colours, which also those tell apart who see no red or no green.
OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
MORE = (*OKABE_ITO, "#8a8f98", "#7b4a2d", "#44aa99", "#882255")  # for more than eight classes

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 7, "axes.titlesize": 7, "axes.labelsize": 7, "xtick.labelsize": 6.5, "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5, "legend.frameon": False, "legend.handlelength": 1.8,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.width": 0.4,
    "xtick.major.size": 2.5, "ytick.major.size": 2.5, "xtick.minor.size": 1.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "grid.color": "#e4e7eb", "grid.linewidth": 0.5, "lines.linewidth": 1.0, "lines.markersize": 3.5,
    "text.parse_math": False,  # a label may contain a dollar
    "pdf.fonttype": 42, "savefig.dpi": 200, "figure.dpi": 200,
}  # fmt: skip


def styled() -> AbstractContextManager[None]:
    """Our look, whatever the user's own settings of matplotlib are; they are back afterwards."""
    return context(_STYLE, after_reset=True)


def sheet(height: float, title: str) -> Figure:
    """An empty figure with its title, so many inches high, and a column wide."""
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03))
    if title:
        figure.suptitle(textwrap.fill(title, int(WIDTH * 17)), fontsize=7.5, x=0.01, ha="left")
    return figure


def footnote(figure: Figure, *notes: str) -> None:
    """A line below everything."""
    text = textwrap.fill("; ".join(filter(None, notes)), int(WIDTH * 22))
    figure.supxlabel(text, fontsize=5.5, color="#5a616b", x=0.01, ha="left")


# -- names and looks of methods ------------------------------------------------------------------

# Black and greys: those that send nothing. Dark or dull: parameters. LNTrust's presets are lighter or darker
# than its orange, so that a grey print tells them apart, too.
_METHODS = {
    "lntrust": ("LNTrust", VERMILLION, "o"),
    "lntrust+lean": ("LNTrust, lean", "#f5a04d", "v"),
    "lntrust+safe": ("LNTrust, safe", "#9e3a00", "s"),
    "lntrust+best": ("LNTrust, best", "#560a16", "D"),
    "independent": ("Independent", "#000000", "s"),
    "mean_teacher": ("Mean Teacher", "#8a8f98", "D"),
    "centralized": ("Centralized", "#4d5560", "P"),
    "uniform": ("Uniform", "#56b4e9", "s"),
    "fedpae": ("FedPAE", "#0072b2", "D"),
    "stacking": ("Stacking", "#1b3f8b", "v"),
    "fens": ("FENS", "#6a8fd6", "^"),
    "knn_per": ("kNN-Per", "#b5a48b", "X"),
    "fedmd": ("FedMD", "#009e73", "^"),
    "feddf": ("FedDF", "#00664b", "<"),
    "dml": ("DML", "#cc79a7", "v"),
    "dml_public": ("DML (public)", "#8f3f70", "<"),
    "desa": ("DeSA", "#d3bd00", "P"),
    "d_psgd": ("D-PSGD", "#7b4a2d", "X"),
    "dfedavg": ("DFedAvg", "#5b3fa8", ">"),
    "gossip_fedavg": ("Gossip FedAvg", "#8ea604", "h"),
    "decdiff_vt": ("DecDiff+VT", "#12606b", "p"),
}
NAMES = {method: name for method, (name, _, _) in _METHODS.items()}
_OTHERS = ("#332288", "#999933", "#aa4499", "#6699cc", "#44aa99", "#117733")
_MARKERS = "8*Hd"
# Of one method's rows: apart from LNTrust's orange, and as far as possible from each other.
_VARIANTS = (
    "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#332288", "#8ea604", "#882255", "#7b4a2d", "#e69f00",
)  # fmt: skip
_CROWD = 6  # with more methods in a figure no colour is free for variants


@dataclass(frozen=True)
class Look:
    """How one row is drawn wherever it is drawn."""

    name: str
    colour: str
    marker: str
    bold: bool  # LNTrust, and presets of it

    @property
    def weight(self) -> str:
        """Of the letters of its name."""
        return "bold" if self.bold else "normal"

    def line(self, marker: float) -> dict[str, Any]:
        """For `plot`, with markers of this size; bold lines lie above the others."""
        return {
            "color": self.colour, "linewidth": 1.9 if self.bold else 0.95, "label": self.name,
            "zorder": 3.0 if self.bold else 2.0, "marker": self.marker, "markersize": marker,
            "markeredgecolor": "white", "markeredgewidth": 0.4,
        }  # fmt: skip


def name_of(row: Row) -> str:
    """A row's label with the method's proper name."""
    method = row.method
    rest = row.label.removeprefix(method)
    known = method in NAMES and rest != row.label and rest[:1] in ("", ",", " ")
    return NAMES[method] + rest if known else row.label


def looks_of(rows: Sequence[Row]) -> list[Look]:
    """The method's own look. Where a method has several rows, the one that stands for it has that.

    Each other has a colour that no method in the figure has, and a marker; among many methods a variant is
    a shade of its method's colour.
    """
    methods = [row.method for row in rows]
    own = {method: _own_look(method) for method in methods}
    taken = {colour for colour, _ in own.values()}
    free = [colour for colour in _VARIANTS if colour not in taken] if len(taken) <= _CROWD else []
    out: list[Look] = []
    variants: Counter[str] = Counter()
    for row, method in zip(rows, methods, strict=True):
        mine = [other for other in rows if other.method == method]
        colour, marker = own[method]
        if row is (main_row(mine) or mine[0]):
            out.append(Look(name_of(row), colour, marker, method.partition("+")[0] == "lntrust"))
            continue
        number = variants[method]
        variants[method] += 1
        if free:
            colour = free.pop(0)
        else:  # nearly half way towards white, or black
            goal = 1.0 - number % 2
            red, green, blue = (c + 0.45 * (goal - c) for c in to_rgb(colour))
            colour = to_hex((red, green, blue))
        marker = [other for other in "sD^vP<>X" if other != marker][number % 7]
        out.append(Look(name_of(row), colour, marker, False))
    return out


def _own_look(method: str) -> tuple[str, str]:
    number = zlib.crc32(method.encode())  # a plug-in: always the same, whatever stands beside it
    other = (method, _OTHERS[number % len(_OTHERS)], _MARKERS[number // 7 % len(_MARKERS)])
    return _METHODS.get(method, other)[1:]


# -- labels that do not lie on each other --------------------------------------------------------


def spaced(wanted: Float[ndarray, "k"], gap: float, low: float, high: float) -> Float[ndarray, "k"]:
    """Places as near as possible to the wanted ones, in the same order, at least a gap apart.

    They stay between low and high where there is room for all.
    """
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    room = max(high - low - gap * (len(wanted) - 1), 0.0)
    out = np.empty(len(wanted))
    out[order] = np.clip(isotonic_regression(wanted[order] - steps).x, low, low + room) + steps
    return out


def end_labels(axes: Axes, lines: Sequence[Course], looks: Sequence[Look]) -> None:
    """Names beside the right edge, each joined to where its line ends. Call last: it lays the figure out."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    notes = [
        axes.annotate(
            look.name, xy=(line.rounds[-1], line.mean[-1]), xytext=(1.07, 0.5), textcoords="axes fraction",
            va="center", ha="left", annotation_clip=False,
            fontsize=6, color=look.colour, fontweight=look.weight,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": look.colour, "shrinkA": 1, "shrinkB": 1,
                        "relpos": (0, 0.5)},
        )
        for line, look in zip(lines, looks, strict=True)
    ]  # fmt: skip
    figure.draw_without_rendering()  # only now the axes' height is known
    height = axes.get_window_extent().height * 72 / figure.dpi
    low, high = axes.get_ylim()
    wanted = np.array([(line.mean[-1] - low) / (high - low) for line in lines])
    for note, place in zip(notes, spaced(wanted, 7.5 / height, 0.0, 1.0).tolist(), strict=True):
        note.set_position((1.07, place))


# -- axes ------------------------------------------------------------------------------------------


def log_axis(axes: Axes, text: Callable[[float], str], ticks: int) -> None:
    """A logarithmic x axis with so many ticks at most, which read as numbers. Set its limits before."""
    axes.set_xscale("log")
    low, high = np.log10(axes.get_xlim())
    decades = np.arange(np.ceil(low), np.floor(high) + 1)
    if len(decades) >= 2:
        stride = int(np.ceil(len(decades) / ticks))
        axes.set_xticks((10.0 ** decades[::stride]).tolist())
        axes.set_xticks((10.0**decades).tolist() if stride > 1 else [], minor=True)
    else:  # less than ten to one: numbers between the powers of ten
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def names_beside(axes: Axes, names: Sequence[str]) -> None:
    """Of lying bars, from below."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def legend_above(axes: Axes, handles: Sequence[Any], **look: Any) -> None:
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 0.99), borderpad=0.2, **look)


def score_axis(axes: Axes, label: str) -> None:
    """An upright axis of scores, with few and short ticks."""
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.grid(axis="y")
