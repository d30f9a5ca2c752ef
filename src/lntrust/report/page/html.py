"""HTML from Python: text is text, whatever it contains; and how numbers are written on the page."""

import html
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from lntrust.core.text import bytes_text, score_text
from lntrust.experiment.statistics import Interval
from lntrust.report.text import NOTHING, Cell

_VOID = ("br", "meta", "input")
_WIDTH, _EDGE = 70, 4  # of the pictures of intervals, and what stays free at their sides


class Html(str):
    """Text that is markup already. All other text is escaped."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def h(name: str, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """An element. `class_` is class, `data_x` is data-x; None and False leave an attribute out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{html.escape(str(value))}"')
    parts.append(">")
    if name not in _VOID:
        parts += [joined(children), f"</{name}>"]
    return Html("".join(parts))


def joined(children: Child) -> Html:
    """Text and elements, one after the other."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, str):
        return Html(html.escape(children, quote=False))  # no attribute: quotes may stay
    return Html("".join(joined(child) for child in children))


def scrolled(table: Html, label: str) -> Html:
    """A table in a box of its own, which scrolls where the page is too narrow for it."""
    return h("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"Table: {label}")


# -- numbers --------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """.775, −.013"""
    return NOTHING if value is None else with_minus(score_text(value))


def with_minus(words: str) -> str:
    """Words with a minus before numbers that have a hyphen there."""
    return re.sub(r"(?<![\w.)\]])-(?=\.?\d)", "−", words)


def numbers(cell: Cell, mark: Html | None = None) -> Html:
    """A number, how sure it is, and a mark between them."""
    sure = h("span", f" {with_minus(cell.spread)}", class_="std") if cell.spread else None
    return joined([with_minus(cell.value), mark, sure])


def gigabytes(value: float) -> str:
    """In GB, or in the unit that says something of less."""
    return "0" if value == 0 else number(value) if value >= 0.001 else bytes_text(value * 1e9, 1)


# -- pictures of intervals ------------------------------------------------------------------------


class Scale(NamedTuple):
    """What the pictures of a table's intervals share: zero and all of them lie in it."""

    low: float
    high: float

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> "Scale":
        ends = [end for interval in intervals for end in interval if math.isfinite(end)]
        low, high = min([0.0, *ends]), max([0.0, *ends])
        return cls(low, high) if high > low else cls(-1.0, 1.0)

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return _EDGE + (inside - self.low) / (self.high - self.low) * (_WIDTH - 2 * _EDGE)


def interval_bar(interval: Interval, scale: Scale) -> Html:
    """A picture of an interval and of zero; the numbers stand beside it."""
    zero, low, mean, high = (
        f"{scale.at(value):.1f}" for value in (0, interval.low, interval.mean, interval.high)
    )
    kind = "up" if interval.above_zero else "down" if interval.below_zero else "even"
    return _picture(
        [h("line", x1=0, x2=_WIDTH, y1=8, y2=8, class_="ground"),
         h("line", x1=zero, x2=zero, y1=0, y2=16, class_="zero"),
         h("line", x1=low, x2=high, y1=8, y2=8, class_="reach"),
         h("circle", cx=mean, cy=8, r=3)],
        kind, 16,
    )  # fmt: skip


def scale_bar(scale: Scale) -> Html:
    """The ends of a scale and its zero, for the head of a column of intervals."""
    marks = [(scale.at(value), text) for value, text in
             ((scale.low, _end(scale.low)), (0.0, "0"), (scale.high, _end(scale.high)))]  # fmt: skip
    zero = marks[1][0]
    texts = []
    for x, text in marks:
        # An end that is zero, or too near to it to be written beside it, has no words of its own.
        if text == "0" or abs(x - zero) > 24:
            anchor, at = ("start", 0) if x < 12 else ("end", _WIDTH) if x > _WIDTH - 12 else ("middle", x)
            texts.append(h("text", text, x=f"{at:.1f}", y=9, text_anchor=anchor))
    ticks = [h("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=11, y2=15) for x, _ in marks]
    return _picture([*texts, *ticks], "scale", 15)


def _picture(parts: Child, kind: str, height: int) -> Html:
    return h("svg", parts, class_=f"interval {kind}", viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH,
             height=height, aria_hidden="true", focusable="false")  # fmt: skip


def _end(value: float) -> str:
    text = with_minus(score_text(value))
    return ("+" if value > 0 else "") + re.sub(r"0$", "", text)
