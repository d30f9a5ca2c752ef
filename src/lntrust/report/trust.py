"""Whom the nodes of a run chose to trust, as a table in the terminal."""

from typing import Any

from rich.table import Table

from lntrust.study.settings import Study

_SHOWN = 4  # members per node


def trust_table(summary: dict[str, Any], kinds: list[int], study: Study) -> Table:
    """One row per node: its model, whom it trusts how far, and what it answers with."""
    report, scores = summary["method_report"], summary["per_node"]
    names = [study.population.learners[k].name for k in kinds]
    pooled = scores["test_pooled"] is not None
    table = Table(
        title=f"{summary['method']}, seed {summary['seed']}: whom each node trusts",
        caption=f"The {_SHOWN} largest deployment weights α. A node answers alone where its "
        "deployment gate is closed. "
        + ("Scores are pooled." if pooled else "Scores are on the node's own test set."),
        caption_justify="left",
    )
    for name in ("node", "trusts", "answers", "Self", "Test"):
        table.add_column(name, justify="right" if name in ("Self", "Test") else "left")
    own, deployed = (scores[k] for k in (("self_pooled", "test_pooled") if pooled else ("self", "test")))
    for i, (trust, together) in enumerate(zip(report["trust"], report["together"], strict=True)):
        best = sorted(trust.items(), key=lambda item: -item[1])[:_SHOWN]
        shown = ", ".join(
            f"{'itself' if int(j) == i else f'{j} ({names[int(j)]})'} {weight:.2f}"
            for j, weight in best
            if weight >= 0.005
        )
        row = (f"{i} ({names[i]})", shown, "together" if together else "alone")
        table.add_row(*row, _number(own[i]), _number(deployed[i]))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
