"""The table of whom each node trusts."""

import io
from typing import Any

from rich.console import Console

from lntrust import load_study
from lntrust.report.trust import trust_table


def summary(pooled: list[float] | None) -> dict[str, Any]:
    return {
        "method": "lntrust",
        "seed": 3,
        "method_report": {
            "trust": [{"0": 0.25, "1": 0.75}, {"1": 1.0, "0": 0.001}],
            "together": [True, False],
        },
        "per_node": {"test": [0.5, None], "self": [0.4, None], "test_pooled": pooled, "self_pooled": pooled},
    }


def printed(pooled: list[float] | None) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(trust_table(summary(pooled), [0, 1], load_study("digits")))
    return console.export_text()


def test_largest_first_and_nothing_negligible() -> None:
    text = printed([0.6, 0.7])
    assert "1 (mlp) 0.75, itself 0.25" in text
    assert "itself 1.00" in text
    assert "0.00" not in text
    assert text.index("together") < text.index("alone")
    assert "0.600" in text


def test_without_pooled_scores_it_shows_the_nodes_own() -> None:
    text = printed(None)
    assert "0.400" in text
    assert "0.500" in text
    assert "–" in text, "a node without test examples"
