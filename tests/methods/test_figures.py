"""A small figure per method, kept: whoever changes a number shall know it.

`LNTRUST_RECORD=1 pytest tests/methods/test_figures.py` writes figures.json anew; its diff says what moved.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from small_runs import LINEAR, MIXED, ended, shared_end

from lntrust.learners.views import Views
from lntrust.methods import list_methods

FILE = Path(__file__).with_name("figures.json")
COMPLETE = "graph.kind=complete"  # so that every kind has neighbours of its kind
SHORT = "methods.desa.condense_steps=20"


def figures(views64: Views, method: str) -> dict[str, Any]:
    one, summary = ended(views64, MIXED, COMPLETE, SHORT, method=method)
    norm = sum(float(s.flat().square().sum()) for s in one.population.torch_stacks)
    return {
        "test_pooled": summary["test_pooled"],
        "self_pooled": summary["self_pooled"],
        "squared_norm": norm,
        **{kind: summary["bytes"][kind] for kind in ("query", "reply", "parameters", "anchors", "framing")},
        "per_deployed_query": summary["bytes"]["per_deployed_query"],
    }


@pytest.mark.parametrize("method", list_methods())
def test_the_figures_are_as_before(views64: Views, method: str) -> None:
    now = figures(views64, method)
    kept = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    if os.environ.get("LNTRUST_RECORD"):
        FILE.write_text(json.dumps({**kept, method: now}, indent=1, sort_keys=True) + "\n", "utf-8")
        return
    # Another processor rounds otherwise; a tie that tips moves a score by an example, and bytes never.
    slack = {"test_pooled": 0.02, "self_pooled": 0.02, "squared_norm": 1e-4, "per_deployed_query": 0.3}
    for name, value in kept[method].items():
        assert now[name] == pytest.approx(value, rel=slack.get(name, 0)), name


def test_there_is_a_figure_for_every_method_and_no_other() -> None:
    assert sorted(json.loads(FILE.read_text("utf-8"))) == sorted(list_methods())


@pytest.mark.parametrize(
    "method",
    ["d_psgd", "dfedavg", "gossip_fedavg", "decdiff_vt", "fedmd", "feddf", "dml_public", "ditto", "idkd"],
)
def test_where_everybody_is_alike_it_pays_to_share(views: Views, method: str) -> None:
    """Ten linear heads on a full graph, scarce and skewed data: what the dense setting is about."""
    how = (
        "graph.nodes=10", "partition.labelled=500", COMPLETE, f"population.learners=[{LINEAR}]",
        "training.stage1_rounds=10", "training.stage2_rounds=20", "evaluation.every=20",
    )  # fmt: skip
    _, alone = shared_end(views, *how, method="independent")
    _, together = ended(views, *how, method=method)
    assert together["test_pooled"] > alone["test_pooled"] + 0.01
