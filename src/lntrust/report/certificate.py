"""What `--certify` found, in a few lines: the numbers over the nodes, and what is assumed but is not so."""

from collections.abc import Sequence
from math import log
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from lntrust.core.text import seeds_text

_ROWS = {  # without letters that are put together of two: terminals differ on how wide they are
    "validation_risk": "clipped log-loss of α on V_i",
    "xi_at_least": "ξ at least",
    "xi": "ξ at most: above the best α on V_i",
    "excess_bound": "2Δ: above the best α there is, beside ξ",
    "drift": "drift ‖θ − ϑ‖ from training alone",
    "drift_bound_log10": "log₁₀ of the drift's bound",
}
_EARLIER = "xi"  # of earlier versions: without what is at least, and no upper bound


def certificate_table(summaries: Sequence[dict[str, Any]]) -> Table:
    """The certificates of one method's runs, node by node, all seeds together."""
    found = [summary["method_report"]["certificate"] for summary in summaries]
    nodes = {name: [v for each in found for v in each["per_node"].get(name, [])] for name in _ROWS}
    if any("assumptions" not in each for each in found):
        nodes[_EARLIER] = []
    name, seeds = summaries[0]["method"], sorted(summary["seed"] for summary in summaries)
    table = Table(
        "",
        title=escape(f"{name}, {seeds_text(seeds)}: its certificate"),
        caption=escape("\n".join(_remarks(found))), caption_justify="left",
    )  # fmt: skip
    for title in ("least", "median", "most"):
        table.add_column(title, justify="right")
    for name, values in nodes.items():
        if known := [value for value in values if value is not None]:
            table.add_row(_ROWS[name], *(f"{of(known):.3g}" for of in (min, median, max)))
    return table


def _remarks(found: Sequence[dict[str, Any]]) -> list[str]:
    """How to read it, and what does not hold."""
    first = found[0]
    epsilon = first["epsilon_dep"]
    out = [
        f"Over nodes. ε = {epsilon:g}, δ = {first['delta']:g}. Losses, ξ and 2Δ are in nats; no loss is "
        f"above {log(1 / epsilon):.2g}, and a larger 2Δ says nothing."
    ]
    if any("assumptions" not in each for each in found):
        return [*out, "Made by an earlier version, whose ξ was no upper bound: --fresh makes it anew."]
    for bound in dict.fromkeys(each["bound"] for each in first["assumptions"]):
        broken = [each for each in first["assumptions"] if each["bound"] == bound and not each["holds"]]
        for one in broken:
            out.append(f"The {bound} bound assumes that {one['says']}. Not so: {'; '.join(one['why_not'])}.")
        if not broken:
            out.append(f"All that the {bound} bound assumes holds.")
    return out
