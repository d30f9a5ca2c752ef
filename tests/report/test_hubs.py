"""Hubs and leaves, on a world drawn by hand: nodes 0 and 1 are hubs, 4 knows none of them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from made_up import changed, in_study, made

from lntrust.experiment.store import Record
from lntrust.report.hubs import Hubs, Weight, hubs_of, weakened
from lntrust.report.rows import Row, make_row

EDGES = [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 4]]
TRUST: list[dict[str, float]] = [
    {},
    {},
    {"2": 0.2, "0": 0.4, "1": 0.2, "3": 0.2},
    {"3": 0.5, "1": 0.1, "2": 0.3, "4": 0.1},
    {},
]
LEARNERS: list[dict[str, Any]] = [
    {"name": name, "kind": "linear", "view": "pixels"} for name in ("hub", "leaf")
]


def run(
    method: str, seed: int = 0, *, noise: float = 1.0, assign: str = "by_degree", **scores: Any
) -> Record:
    learners = [LEARNERS[0], LEARNERS[1] | ({"noise": noise} if noise else {})]
    record = in_study(made(method, seed), population={"assign": assign, "learners": learners})
    nothing = dict.fromkeys(("test", "self", "test_pooled", "self_pooled"))
    report = {"trust": TRUST} if method == "lntrust" else {}
    record = changed(record, per_node=nothing | scores, method_report=report)
    return replace(record, world_text=json.dumps({"kinds": [0, 0, 1, 1, 1], "edges": EDGES}))


ALONE: dict[str, Any] = {"test": [0.5] * 5, "self": [0.9, 0.8, 0.3, 0.5, 0.1]}
OURS: dict[str, Any] = {"test": [0.9, 0.9, 0.6, 0.8, 0.0], "self": [0.9, 0.8, 0.3, 0.5, 0.1]}


def row(*ours: Record) -> Row:
    alone = [run("independent", record.seed, **ALONE) for record in ours]
    return make_row("LNTrust", list(ours), [*ours, *alone])


def hubs(*ours: Record) -> Hubs:
    found = hubs_of(row(*ours))
    assert found is not None
    return found


def test_strength_of_hubs_and_of_leaves_beside_them() -> None:
    found = hubs(run("lntrust", **OURS))
    assert found.hubs_self is not None
    assert found.leaves_self is not None
    assert found.hubs_self.mean == pytest.approx(0.85)
    assert found.leaves_self.mean == pytest.approx(0.4), "not of node 4"


def test_what_leaves_gain_is_paired_by_node() -> None:
    found = hubs(run("lntrust", 0, **OURS), run("lntrust", 1, **OURS | {"test": [0.9, 0.9, 0.5, 0.5, 0.0]}))
    assert found.leaves_gain is not None
    assert found.leaves_gain.mean == pytest.approx((0.1 + 0.3 + 0.0 + 0.0) / 4)
    assert hubs_of(make_row("LNTrust", [run("lntrust", **OURS)], [])) == replace(
        hubs(run("lntrust", **OURS)), leaves_gain=None
    ), "without Independent nothing is known of it"


def test_scores_are_pooled_where_there_are_pooled_ones() -> None:
    pooled = hubs(run("lntrust", **OURS, self_pooled=[0.1, 0.3, 0.2, 0.4, 0.9]))
    assert pooled.hubs_self is not None
    assert pooled.leaves_self is not None
    assert (pooled.hubs_self.mean, pooled.leaves_self.mean) == pytest.approx((0.2, 0.3))
    only_ours = hubs(run("lntrust", **OURS, test_pooled=[0.7] * 5))
    assert only_ours.leaves_gain == hubs(run("lntrust", **OURS)).leaves_gain, "Independent has none"


def test_trust_on_hubs_against_equal_weights() -> None:
    found = hubs(run("lntrust", **OURS))
    assert found.members == pytest.approx(Weight((0.6 + 0.1) / 2, (2 / 4 + 1 / 4) / 2))
    assert found.teachers == pytest.approx(Weight((0.6 / 0.8 + 0.1 / 0.5) / 2, (2 / 3 + 1 / 3) / 2))
    assert found.members is not None
    assert found.members.ratio == pytest.approx(0.35 / 0.375)


def test_a_leaf_that_trusts_itself_alone_has_no_teachers() -> None:
    alone = [{}, {}, {"2": 1.0, "0": 0.0, "1": 0.0, "3": 0.0}, TRUST[3], {}]
    record = changed(run("lntrust", **OURS), method_report={"trust": alone})
    assert hubs(record).members == pytest.approx(Weight((0.0 + 0.1) / 2, (2 / 4 + 1 / 4) / 2))
    assert hubs(record).teachers == pytest.approx(Weight(0.1 / 0.5, 1 / 3))


def test_who_reports_no_trust_has_none() -> None:
    found = hubs_of(make_row("Independent", [run("independent", **ALONE)], []))
    assert found is not None
    assert (found.members, found.teachers, found.leaves_gain) == (None, None, None)


def test_a_study_without_hubs_has_nothing_to_say_of_them() -> None:
    assert hubs_of(row(run("lntrust", **OURS, assign="in_turn"))) is None
    assert hubs_of(make_row("LNTrust", [made("lntrust")], [])) is None


def test_tables_speak_of_hubs_where_leaves_are_weakened() -> None:
    weak, as_ever = row(run("lntrust", **OURS)), row(run("lntrust", **OURS, noise=0.0))
    assert weakened([weak])
    assert weakened([as_ever, weak])
    assert not weakened([as_ever])
