"""Rows: which runs they are made of, what they are compared with, and what they are called."""

from typing import Any

import numpy as np
import pytest
from made_up import NODES, identified, made, made_seeds, sending

from lntrust.experiment.statistics import Interval
from lntrust.experiment.store import Record
from lntrust.report.nodes import Below, difference
from lntrust.report.rows import Row, main_row, make_row, rows_of


def rows(*records: Record) -> list[Row]:
    (found,) = rows_of(records).values()
    return found


def labels(*records: Record) -> list[str]:
    return [row.label for row in rows(*records)]


def made_of(record: Record, method: str | None = None, **content: dict[str, str]) -> Record:
    """The same run, with files and sources of the user's."""
    content = {**record.identity["content"], **content}
    return identified(record, method=method or record.method, content=content)


def gain(row: Row) -> float | None:
    return None if row.difference is None else row.difference.mean


def pooled(row: Row) -> Interval | None:
    return difference(row.records, row.independent, "test_pooled")


class TestWhatIsComparedWithWhat:
    def test_independent_in_the_same_world(self) -> None:
        alone = [made("independent", seed, 0.7) for seed in (1, 0)]
        row = rows(*alone, *made_seeds("lntrust", 0.8, 0.9))[-1]
        assert row.seeds == [0, 1]
        assert row.independent == alone[::-1]
        assert row.difference is not None
        assert row.difference.mean == pytest.approx(0.15)
        assert row.difference.above_zero
        assert (row.improvement, row.below_independent) == (1.0, Below(0.0, 0.0))

    def test_one_made_on_another_device_will_do_where_there_is_no_nearer_one(self) -> None:
        far, near, ours = made("independent", device="cuda"), made("independent"), made("lntrust")
        assert rows(far, ours)[-1].independent == [far]
        assert rows(far, near, ours)[-1].independent == [near]

    @pytest.mark.parametrize(
        ("alone", "ours"),
        [
            ({"seed": 1}, {}),  # one seed without a partner is enough for none
            ({"sets": ["training.lr=0.02"]}, {}),
            ({}, {"sets": ["training.stage2_rounds=7"]}),
            ({}, {"sets": ["partition.skew=3"]}),
            ({}, {"sets": ["graph.attach=3"]}),
            ({}, {"sets": ["reading=paper"]}),
            ({"sets": ["deploy=trust"]}, {}),
        ],
    )
    def test_nothing_else_will_do(self, alone: dict[str, Any], ours: dict[str, Any]) -> None:
        row = rows(made("independent", **alone), made("lntrust", **ours))[-1]
        assert row.first.method == "lntrust"
        assert row.independent == []
        assert row.difference is pooled(row) is row.improvement is row.below_independent is None

    def test_what_does_not_touch_independent_still_pairs(self) -> None:
        changes = ["partition.val_fraction=0.1", "training.refresh=3", "evaluation.every=3", "deploy=trust",
                   "network.query=ids", "methods.lntrust.budget=7", "methods.lntrust.lr=0.05"]  # fmt: skip
        for change in changes:
            found = rows(made("independent"), made("lntrust", sets=[change]))
            assert found[-1].independent, change

    @pytest.mark.parametrize("part", ["files", "sources"])
    def test_one_made_of_the_same(self, part: str) -> None:
        """Of two edits of a model, a graph or an ONNX file each has its own Independent."""
        runs = [
            made_of(made(method, test=test), **{part: {"mine": digest}})
            for digest, alone in (("before", 0.3), ("after", 0.6))
            for method, test in (("independent", alone), ("uniform", 0.7))
        ]
        for order in (runs, runs[::-1]):
            assert {row.label: gain(row) for row in rows(*order)} == {
                "independent, mine before": 0, "independent, mine after": 0,
                "uniform, mine before": pytest.approx(0.4), "uniform, mine after": pytest.approx(0.1),
            }  # fmt: skip

    def test_a_method_of_ones_own_brings_its_source(self) -> None:
        def own(**sources: str) -> Record:
            return made_of(made("uniform"), method="mine:Own", sources={"mine": "a", **sources})

        plain, models = made("independent"), made_of(made("independent"), sources={"models": "a"})
        assert make_row("ours", [own()], [plain, models]).independent == [plain]
        assert make_row("ours", [own(models="a")], [models]).independent == [models]
        assert make_row("ours", [own(models="b")], [models]).independent == []

    def test_models_that_the_first_runs_said_nothing_of(self) -> None:
        kind = "sklearn.ensemble:ExtraTreesClassifier"
        sets = [f'population.learners=[{{name="m",kind="{kind}",view="pixels"}}]']
        new = [made(method, sets=sets) for method in ("independent", "uniform")]
        sources = {"mine": "a", **new[1].identity["content"]["sources"]}
        new.append(made_of(new[1], method="mine:Own", sources=sources))
        old = [identified(record, content={"schema": 2}) for record in new]
        for record in new:
            assert make_row("ours", [record], [old[0]]).independent == []
            assert make_row("ours", [record], [old[0], new[0]]).independent == [new[0]]
        for record in old:
            assert make_row("ours", [record], [new[0]]).independent == []
            assert make_row("ours", [record], [old[0], new[0]]).independent == [old[0]]

    def test_of_several_independents_that_of_the_study_is_taken(self) -> None:
        plain = made("independent", test=0.7)
        tuned = [made("independent", sets=[f"methods.independent.lr={lr}"]) for lr in (0.002, 0.05, 0.1)]
        for among in ([plain, *tuned], [*tuned, plain]):
            assert make_row("ours", [made()], among).independent == [plain]
        first = make_row("ours", [made()], tuned).independent
        assert make_row("ours", [made()], tuned[::-1]).independent == first, "whatever the order"

    def test_node_by_node(self) -> None:
        alone = made("independent", test=[0.9, 0.1, None, 0.5])
        row = rows(alone, made("lntrust", test=[0.8, 0.4, 1.0, None]))[-1]
        assert gain(row) == pytest.approx((-0.1 + 0.3) / 2)
        [_, nobody] = rows(made("independent"), made(test=[None] * NODES))
        assert nobody.test is nobody.gain is nobody.difference is nobody.improvement is None
        assert row.improvement == 0.5
        assert row.below_independent == Below(0.5, 0.5), "of the two nodes that have both scores"

    def test_single_nodes_are_judged_pooled_if_both_can_be(self) -> None:
        alone, lower = made("independent", test=0.5, pooled=0.6), [0.9, 0.9, 0.9, 0.1]
        row = rows(alone, made(test=0.9, pooled=lower))[-1]
        assert (row.improvement, row.below_independent) == (0.75, Below(0.25, 0.25))
        assert row.below_independent_on("test") == Below(0.0, 0.0)
        found = pooled(row)
        assert found is not None
        assert found.mean == pytest.approx(0.1)
        row = rows(alone, made(test=lower, sets=["evaluation.pooled=false"]))[-1]
        assert (row.improvement, row.below_independent) == (0.75, Below(0.25, 0.25)), "own with own"
        assert pooled(row) is row.below_independent_on("test_pooled") is None

    def test_places_and_people_are_judged_on_their_own_tests_with_pooled_beside(self) -> None:
        lower, of = [0.9, 0.9, 0.9, 0.1], {"study": "wearables"}
        alone, ours = made("independent", test=0.5, pooled=lower, **of), made(test=lower, pooled=0.5, **of)
        row = rows(alone, ours)[-1]
        assert row.on_own_tests
        assert (row.improvement, row.below_independent) == (0.75, Below(0.25, 0.25))
        assert row.below_independent_on("test_pooled") == Below(0.75, 0.75)
        assert not rows(made(pooled=0.5))[0].on_own_tests, "label skew is alike everywhere"

    def test_by_more_than_a_point_and_over_seeds(self) -> None:
        """A node that loses half a point is below; of two seeds the shares are averaged."""
        alone = made_seeds("independent", 0.5, 0.5)
        row = rows(*alone, *made_seeds("lntrust", [0.495, 0.48, 0.5, 0.6], [0.4, None, 0.5, 0.6]))[-1]
        assert row.below_independent_on("test") == pytest.approx(((1 / 2 + 1 / 3) / 2, (1 / 4 + 1 / 3) / 2))

    def test_harmed_is_below_the_nodes_own_model(self) -> None:
        tests = [0.8, 0.695, 0.6, None]
        (row,) = rows(made(test=tests, own=0.7, own_pooled=0.7, pooled=[0.7, 0.7, 0.7, 0.6]))
        assert row.harmed == row.harmed_on("test_pooled") == Below(0.25, 0.25)
        assert row.harmed_on("test") == pytest.approx((2 / 3, 1 / 3))
        assert row.p10 == pytest.approx(0.63)


class TestLabels:
    def test_independent_first_then_by_name_lntrust_and_its_presets(self) -> None:
        order = ["independent", "d_psgd", "dml", "uniform", "lntrust", "lntrust+lean", "lntrust+safe",
                 "lntrust+best"]  # fmt: skip
        found = rows(*map(made, reversed(order)), *(made(name, 1) for name in order))
        assert [row.label for row in found] == order, "one setting needs no words"
        assert main_row(found) is found[4]
        assert all(row.independent for row in found)

    @pytest.mark.parametrize(("method", "sets", "expected"), [
        ("lntrust", [["methods.lntrust.top_k=10"], ["methods.lntrust.top_k=9"]], ["top_k = 9", "top_k = 10"]),
        ("lntrust", [["training.lr=0.1"], ["training.lr=1e-05"]], ["lr = 1e-05", "lr = 0.1"]),
        ("lntrust", [["graph.seed=10"], ["graph.seed=9"]], ["seed = 9", "seed = 10"]),
        ("lntrust", [["evaluation.every=1"], ["evaluation.every=2"]], ["every = 1", "every = 2"]),
        ("lntrust", [[f"training.refresh={k}", f"evaluation.every={k}"] for k in (1, 2)],
         ["refresh = 1", "refresh = 2"]),
        ("lntrust", [[], ["methods.lntrust.top_k=2", "methods.lntrust.training_gate=false"]],
         ["training_gate = False, top_k = 2", "training_gate = True, top_k = None"]),
        ("lntrust+lean", [[f"methods.lntrust+lean.budget={k}"] for k in (5, 50)],
         ["budget = 5", "budget = 50"]),
    ])  # fmt: skip
    def test_what_differs_is_told(self, method: str, sets: list[list[str]], expected: list[str]) -> None:
        found = labels(*(made(method, sets=each) for each in sets))
        assert found == [f"{method}, {label}" for label in expected]

    def test_of_learners_only_what_differs(self) -> None:
        noisy = made("lntrust", sets=["population.learners.1.noise=2"])
        assert labels(made("lntrust"), noisy) == ["lntrust", "lntrust, noise = 2.0"]

    def test_ways_to_deploy_and_devices_are_rows_and_a_setting_of_one_method_is_not_the_others(self) -> None:
        assert labels(made("dml", sets=["deploy=trust"]), made("dml")) == ["dml", "dml → trust"]
        assert labels(made(device="cuda"), made()) == ["lntrust, device = cpu", "lntrust, device = cuda"]
        changed = "methods.lntrust.budget=7"
        found = labels(made("uniform"), made("uniform", 1, sets=[changed]), made(), made(sets=[changed]))
        assert found == ["uniform", "lntrust, budget = 7", "lntrust, budget = 200"]

    def test_the_papers_reading(self) -> None:
        plain, paper = labels(made(), made(sets=["reading=paper"]))
        assert "draws = disjoint" in plain
        for words in ("reading = paper", "draws = overlapping", "size_seed = 0", "split = per_class_nearest"):
            assert words in paper


class TestScores:
    def test_mean_and_deviation_over_seeds(self) -> None:
        (row,) = rows(*(made(seed=seed, test=test) for seed, test in ((2, 0.7), (0, 0.8), (1, 0.9))))
        assert row.test == pytest.approx((0.8, np.sqrt(0.02 / 3)))
        assert row.gain == pytest.approx((0.2, np.sqrt(0.02 / 3)))
        assert rows(made(stage1=None))[0].gain is None, "it needs a Stage 1"

    @pytest.mark.parametrize(("method", "reading", "selected"), [
        ("lntrust", "paper", True), ("uniform", "paper", False), ("lntrust", "honest", False),
    ])  # fmt: skip
    def test_the_papers_reading_shows_the_best_round_of_lntrust_only(
        self, method: str, reading: str, selected: bool
    ) -> None:
        (row,) = rows(made(method, test=0.8, best=0.85, sets=[f"reading={reading}"]))
        assert row.test_selected == selected
        assert row.test == pytest.approx((0.85 if selected else 0.8, 0))
        assert row.gain == pytest.approx((0.25 if selected else 0.2, 0)), "of the Test that is shown"


SENT = {"query": 900, "reply": 400, "parameters": 40, "anchors": 4, "framing": 60}
HEADERS = {"query": 30, "reply": 20, "parameters": 8, "anchors": 2}


class TestBytes:
    def known(self, seed: int, times: int) -> Record:
        record = made("lntrust", seed, sent={kind: times * sent for kind, sent in SENT.items()})
        headers = {kind: times * sent for kind, sent in HEADERS.items()}
        return sending(record, framing_by_kind=headers, asked_per_input=1.5 * times)

    def test_answers_are_all_but_queries_with_their_headers(self) -> None:
        (row,) = rows(self.known(0, 1), self.known(1, 3))
        assert row.headers("query") == pytest.approx(2 * 30 / NODES / 1e9)
        assert row.answers == pytest.approx(2 * (400 + 40 + 4 + 20 + 8 + 2) / NODES / 1e9)
        assert row.asked == pytest.approx(3.0)

    @pytest.mark.parametrize("new", [0, 1])
    def test_runs_that_do_not_know_their_headers(self, new: int) -> None:
        """One of them is enough: what is known of the other is no mean."""
        old = [made("lntrust", seed, sent=SENT) for seed in range(2 - new)]
        (row,) = rows(*old, *(self.known(1, 1) for _ in range(new)))
        assert row.headers("reply") is None
        assert row.asked is None
        assert row.answers == pytest.approx((400 + 40 + 4) / NODES / 1e9)


class TestDiverged:
    """A run that diverged is in no mean, and is named."""

    def broken(self, method: str = "uniform", seed: int = 1, number: int = 7) -> Record:
        return made(method, seed, None, own=None, stage1=None, diverged=number)

    def test_means_are_of_the_others(self) -> None:
        alone = made_seeds("independent", 0.6, 0.6, 0.6)
        *_, row = rows(*alone, made("uniform", 0, 0.6), self.broken(), made("uniform", 2, 0.8))
        assert gain(row) == pytest.approx(0.1), "the others are paired as ever"
        assert row.test == pytest.approx((0.7, 0.1))
        assert (row.seeds, [record.seed for record in row.runs]) == ([0, 2], [0, 1, 2])
        assert row.what_diverged == "2 of 3 seeds; seed 1 diverged at round 7"

    def test_where_all_did_there_are_no_numbers(self) -> None:
        alone = [made("independent", seed, 0.6) for seed in (0, 1)]
        _, row = rows(*alone, self.broken(seed=0, number=9), self.broken(seed=1))
        assert row.what_diverged == "seed 0 diverged at round 9; seed 1 diverged at round 7"
        assert row.test is row.gain is row.difference is row.improvement is row.below_independent is None
        assert row.asked is row.p10 is row.harmed is None
        assert row.first.seed == 0

    def test_an_independent_that_did_is_nobodys_partner(self) -> None:
        alone = [made("independent", 0, 0.6), self.broken("independent", 1)]
        *_, row = rows(*alone, made("uniform", 0, 0.7), made("uniform", 1, 0.7))
        assert row.difference is None
        assert row.test is not None
