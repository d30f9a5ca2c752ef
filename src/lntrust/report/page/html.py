"""HTML from Python: text is text, whatever it contains; and how numbers are written on the page."""

import html
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from lntrust.core.text import score_text
from lntrust.experiment.statistics import Interval
from lntrust.report.text import Cell

_WIDTH, _EDGE = 70, 4  # of the pictures of intervals, and what stays free at their sides


class Html(str):
    """Text that is markup already. All other text is escaped."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def h(name: str, *children: Child, **attributes: str | int | float | None) -> Html:
    """An element. `class_` is class, `data_x` is data-x; None leaves an attribute out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    parts = [f' {key}="{html.escape(str(value))}"' for key, value in given.items() if value is not None]
    return Html(f"<{name}{''.join(parts)}>{joined(children)}</{name}>")


def joined(children: Child) -> Html:
    """Text and elements, one after the other."""
    if children is None or isinstance(children, Html):
        return children or Html("")
    if isinstance(children, str):
        return Html(html.escape(children, quote=False))  # no attribute: quotes may stay
    return Html("".join(map(joined, children)))


def table(caption: Child, head: Child, lines: Child, kind: str, label: str) -> Html:
    """In a box of its own, which scrolls where the page is too narrow for it."""
    whole = h("table", caption, h("thead", head), h("tbody", lines), class_=kind)
    return h("div", whole, class_="scroll", tabindex=0, role="region", aria_label=f"Table: {label}")


# -- numbers --------------------------------------------------------------------------------------


def with_minus(words: str) -> str:
    """Words with a minus before numbers that have a hyphen there."""
    return re.sub(r"(?<![\w.)\]])-(?=\.?\d)", "−", words)


def numbers(cell: Cell) -> Html:
    """A number, how sure it is, and a mark between them."""
    mark = h("abbr", cell.note, title="the best round on test, as the paper reads it") if cell.note else None
    sure = h("span", f" {with_minus(cell.spread)}", class_="std") if cell.spread else None
    return joined([with_minus(cell.value), mark, sure])


# -- pictures of intervals ------------------------------------------------------------------------


class Scale(NamedTuple):
    """What the pictures of a table's intervals share: zero and all of them lie in it."""

    low: float
    high: float

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> "Scale":
        ends = [0.0, *(end for interval in intervals for end in interval if math.isfinite(end))]
        return cls(min(ends), max(ends)) if any(ends) else cls(-1.0, 1.0)

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return _EDGE + (inside - self.low) / (self.high - self.low) * (_WIDTH - 2 * _EDGE)

    def bar(self, interval: Interval) -> Html:
        """A picture of an interval and of zero; the numbers stand beside it."""
        zero, mean, low, high = (f"{self.at(value):.1f}" for value in (0, *interval))
        kind = "up" if interval.above_zero else "down" if interval.below_zero else "even"
        return _picture(
            [h("line", x1=0, x2=_WIDTH, y1=8, y2=8, class_="ground"),
             h("line", x1=zero, x2=zero, y1=0, y2=16, class_="zero"),
             h("line", x1=low, x2=high, y1=8, y2=8, class_="reach"),
             h("circle", cx=mean, cy=8, r=3)],
            kind, 16,
        )  # fmt: skip

    def axis(self) -> Html:
        """Its ends and zero, for the head of a column of intervals."""
        texts, ticks = [], []
        low, high = (with_minus(score_text(end, sign=True)) for end in self)
        for value, text in ((self.low, low), (0.0, "0"), (self.high, high)):
            x = self.at(value)
            ticks.append(h("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=11, y2=15))
            # An end that is zero, or too near to it to be written beside it, has no words of its own.
            if text == "0" or abs(x - self.at(0.0)) > 24:
                side, at = ("start", 0) if x < 12 else ("end", _WIDTH) if x > _WIDTH - 12 else ("middle", x)
                texts.append(h("text", re.sub(r"(?<=.)0$", "", text), x=f"{at:.1f}", y=9, text_anchor=side))
        return _picture([*texts, *ticks], "scale", 15)


def _picture(parts: Child, kind: str, height: int) -> Html:
    return h("svg", parts, class_=f"interval {kind}", viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH,
             height=height, aria_hidden="true", focusable="false")  # fmt: skip
