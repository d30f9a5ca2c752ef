"""Numbers as people read them, and the name that a misspelt one may stand for."""

import difflib
import re
from collections.abc import Iterable, Sequence


def bytes_text(count: float, decimals: int | None = None) -> str:
    """2.5 MB, 300 kB, 12 B: three digits that count, or so many decimals; decimal units, as networks do."""
    shown, units = f"{count:.0f}", ["B", "kB", "MB", "GB", "TB"]
    while len(shown.partition(".")[0].replace(",", "")) > 3 and len(units) > 1:
        count, units = count / 1000, units[1:]
        shown = three_digits(count) if decimals is None else f"{count:.{decimals}f}"
    return f"{shown} {units[0]}"


def three_digits(value: float) -> str:
    """12.3, 0.5, 1,234: three digits that count, and all that stand before the point."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):.10f}".rstrip("0").rstrip(".")


def number_text(value: float) -> str:
    """Like three digits; two of them below 1, as in 0.00078."""
    return three_digits(value if value >= 1 else float(f"{value:.2g}"))


def tick_text(value: float) -> str:
    """10k, 1M: for the ticks of an axis."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{three_digits(value / size)}{unit}"
    return three_digits(value)


def score_text(value: float, decimals: int = 3, sign: bool = False) -> str:
    """.775; with a sign, +.045"""
    return re.sub(r"^([+-]?)0\.", r"\1.", f"{value:{'+' if sign else ''}.{decimals}f}")


def percent_text(share: float, decimals: int = 0) -> str:
    """0.25 → 25 %"""
    return f"{100 * share:.{decimals}f} %"


def time_text(seconds: float) -> str:
    """What something took: 1.25 ms, 3.2 s, 120 s."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def age_text(seconds: float) -> str:
    """How long ago, or how long still: 12.0 s, 5 min, 3 h, 90 days."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def count_text(count: int, one: str, many: str | None = None) -> str:
    """1 run, 3 runs, 2 studies"""
    return f"{count} {one if count == 1 else many or one + 's'}"


def seeds_text(seeds: Sequence[int]) -> str:
    """seed 3, seeds 0, 1, 2"""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean digits? `, to stand before the rest of a sentence; nothing if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}? " if close else ""
