"""HTML from Python: text is text, whatever it contains; and how numbers are written on the page."""

import html
from collections.abc import Iterable

from lntrust.experiment.statistics import Interval
from lntrust.report.comparison import Spread
from lntrust.report.table import human_bytes

_VOID = ("br", "meta", "input")


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


def number(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "–"
    text = f"{value:{'+' if sign else ''}.3f}"
    return text.replace("-", "−")


def plus_minus(spread: Spread | None, seeds: int) -> Html:
    """Mean ± standard deviation; of one seed, the value."""
    if spread is None:
        return Html("–")
    if seeds < 2:
        return Html(number(spread.mean))
    return Html(f'{number(spread.mean)}<span class="std"> ± {number(spread.std)}</span>')


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def gigabytes(value: float) -> str:
    """In GB, or in the unit that says something of less."""
    return "0" if value == 0 else f"{value:.3f}" if value >= 0.001 else human_bytes(value * 1e9)


def interval_bar(interval: Interval, widest: float) -> Html:
    """A picture of an interval around zero; the numbers stand beside it."""
    width, height, middle = 84.0, 16, 8
    reach = widest or 1.0
    low, mean, high = (
        min(max(width / 2 + value / reach * (width / 2 - 6), 2), width - 2)
        for value in (interval.low, interval.mean, interval.high)
    )
    kind = "up" if interval.above_zero else "down" if interval.below_zero else "even"
    return h(
        "svg",
        h("line", x1=width / 2, x2=width / 2, y1=1, y2=height - 1, class_="zero"),
        h("line", x1=f"{low:.1f}", x2=f"{high:.1f}", y1=middle, y2=middle, class_="reach"),
        h("circle", cx=f"{mean:.1f}", cy=middle, r=3.5),
        class_=f"interval {kind}", viewBox=f"0 0 {width:g} {height}", width=f"{width:g}", height=height,
        aria_hidden="true", focusable="false",
    )  # fmt: skip
