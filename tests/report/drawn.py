"""What stands in a drawing."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation


def texts(axes: Axes) -> list[str]:
    return [note.get_text() for note in axes.texts if isinstance(note, Annotation)]


def bars(axes: Axes) -> dict[str, float]:
    """Lengths of lying bars by the names beside them."""
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    [container] = [c for c in axes.containers if isinstance(c, BarContainer)]
    return dict(zip(names, [patch.get_width() for patch in container], strict=True))


def by_name(axes: Axes) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in axes.lines}


def end(line: Line2D) -> list[float]:
    return [float(np.asarray(data)[-1]) for data in (line.get_xdata(), line.get_ydata())]


def footnote(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())
