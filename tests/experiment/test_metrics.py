"""Scores, against examples worked out by hand."""

from typing import Any

import networkx as nx
import numpy as np
import pytest

from lntrust import load_study
from lntrust.experiment.metrics import Examiner, finite, mean, summarise
from lntrust.world import Ragged, World
from lntrust.world.graphs import directed_edges
from lntrust.world.partition.partition import Partition
from lntrust.world.world import SealedLabels

# Ten examples of classes 0, 1, 2. Three nodes on a path 0 – 1 – 2; ids 0–5 are tested.
LABELS = np.array([0, 0, 1, 1, 2, 1, 0, 1, 2, 0])
TEST = [[0, 2], [1, 3, 4], [5]]
TRAIN = [[6], [7], [8]]
VALIDATION = [[9], [], []]
P = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])


def world(
    test: list[list[int]] = TEST, drawn_from: np.ndarray | None = P, overrides: tuple[str, ...] = ()
) -> World:
    nodes, nothing = len(test), [np.zeros(0, np.int64)] * len(test)
    graph = nx.path_graph(nodes)

    def ragged(lists: list[list[int]]) -> Ragged:
        return Ragged.of([np.array(one, dtype=np.int64) for one in lists])

    hidden = LABELS.copy()
    hidden[[i for one in test for i in one]] = -1
    return World(
        study=load_study("digits", overrides), seed=0, graph=graph, edges=directed_edges(graph),
        kinds=np.zeros(nodes, dtype=np.int64), classes=("a", "b", "c"), input_shape=(1,), input_dtype="uint8",
        labels=hidden, class_distribution=np.full((nodes, 3), 1 / 3), sealed=SealedLabels(LABELS),
        partition=Partition(
            train=ragged(TRAIN), validation=ragged(VALIDATION), test=ragged(test),
            given_up=Ragged.of(nothing), shard=Ragged.of(nothing), pool=np.zeros(0, np.int64),
            favoured=np.arange(nodes), favoured_share=np.full(nodes, 0.5), drawn_from=drawn_from,
        ),
    )  # fmt: skip


# What the three nodes predict on ids 0…5, whose labels are 0 0 1 1 2 1.
SELF = np.array([[0, 1, 0, 1, 2, 0], [0, 0, 1, 0, 0, 1], [2, 2, 2, 2, 2, 2]])
DEPLOYED = np.array([[0, 0, 1, 1, 2, 1], [0, 0, 1, 0, 0, 1], [2, 2, 2, 2, 2, 1]])


def pooled_scores(here: World, predicted: np.ndarray = SELF) -> list[float]:
    pooled = Examiner(here).score(predicted).pooled
    assert pooled is not None
    return list(pooled.tolist())


class TestExaminer:
    def test_own_accuracy(self) -> None:
        assert Examiner(world()).score(SELF).own.tolist() == [1 / 2, 1 / 3, 0.0]
        assert Examiner(world()).score(DEPLOYED).own.tolist() == [1.0, 1 / 3, 1.0]

    def test_pooled_accuracy(self) -> None:
        """Per class, of 2, 3 and 1 test examples: node 0 has ½, ⅓, 1; node 1 has 1, ⅔, 0; node 2 0, 0, 1."""
        by_hand = [0.5 * 1 / 2 + 0.25 * 1 / 3 + 0.25 * 1, 1.0 * 2 / 3, 0.5]
        assert pooled_scores(world()) == pytest.approx(by_hand, abs=1e-12)

    def test_a_class_without_test_examples_is_left_out(self) -> None:
        ids = [0, 1, 2, 3, 5]  # no class 2
        pooled = pooled_scores(world(test=[[0, 2], [1, 3], [5]]), SELF[:, ids])
        assert pooled[0] == pytest.approx((0.5 * 1 / 2 + 0.25 * 1 / 3) / 0.75)
        assert pooled[2] == 0.0

    def test_where_the_study_made_no_distribution_it_is_counted_over_all_of_a_nodes_labels(self) -> None:
        """Node 0 holds labels 0 1 | 0 | 0: ¾, ¼, 0. Node 1: 0 1 2 | 1: ¼, ½, ¼. Node 2: 1 | 2: 0, ½, ½."""
        by_hand = [0.75 * 1 / 2 + 0.25 * 1 / 3, 0.25 * 1 + 0.5 * 2 / 3, 0.5 * 0 + 0.5 * 1]
        assert pooled_scores(world(drawn_from=None)) == pytest.approx(by_hand)

    @pytest.mark.parametrize("change", ["partition.draws=overlapping", "evaluation.pooled=false"])
    def test_overlapping_draws_have_no_pooled_score_and_a_study_may_do_without(self, change: str) -> None:
        assert Examiner(world(overrides=(change,))).score(SELF).pooled is None

    def test_best_neighbour_is_of_the_closed_neighbourhood(self) -> None:
        """Node 0 hears 0 and 1 (½ and 1), node 1 all three, node 2 hears 1 and 2 (1 and 0)."""
        # On node 1's test ids 1, 3, 4 (labels 0 1 2): node 0 is right on 3 and 4, node 1 on 1, node 2 on 4.
        assert Examiner(world()).best_neighbour(SELF) == pytest.approx((1.0 + 2 / 3 + 1.0) / 3)

    def test_the_seal_is_broken_once(self) -> None:
        here = world()
        Examiner(here)
        with pytest.raises(RuntimeError, match="read once, after training"):
            Examiner(here)


def summary(here: World, **rounds: np.ndarray) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Rounds r2=…, r4=… with deployed predictions; `self` is SELF."""
    table = {int(name[1:]): {"self": SELF, "deployed": p} for name, p in rounds.items()}
    return summarise(here, table, stage1=2)


class TestSummary:
    def test_the_last_round_counts_and_one_picked_on_test_is_shown_under_its_name_only(self) -> None:
        found, rows = summary(world(), r2=SELF, r4=DEPLOYED, r5=SELF)
        assert [row["round"] for row in rows] == [2, 4, 5]
        assert found["test"] == found["self"] == found["stage1"] == pytest.approx(5 / 18)
        assert rows[1]["test"] == found["best_round_test_selected"] == pytest.approx(7 / 9)
        assert found["per_node"]["test"] == [1 / 2, 1 / 3, 0.0]
        assert found["per_node"]["size"] == [4, 4, 2], "of the whole allocation"
        found, _ = summary(world(), r2=DEPLOYED, r4=SELF)  # Stage 1 is nobody's method
        assert found["best_round_test_selected"] == found["test"]

    def test_harmed_and_p10_are_judged_on_the_pooled_score(self) -> None:
        # Only node 1 loses: one more of the three examples of class 1.
        worse = np.array([[0, 0, 1, 1, 2, 1], [0, 0, 0, 0, 0, 1], [2, 2, 2, 2, 2, 2]])
        found, _ = summary(world(), r2=SELF, r5=worse)
        assert found["harmed"] == pytest.approx(1 / 3)
        pooled = [1.0, 1 / 3, 0.5]
        assert found["per_node"]["test_pooled"] == pytest.approx(pooled)
        assert found["p10"] == pytest.approx(1 / 3 + 0.2 * (0.5 - 1 / 3))  # linear between the lowest two
        assert found["test_pooled"] == pytest.approx(np.mean(pooled))

    @pytest.mark.parametrize("by", ["region", "subject"])
    def test_places_and_people_are_judged_on_their_own_tests(self, by: str) -> None:
        """Node 1 loses the only one of its three that it had right; pooled it loses nothing."""
        worse = np.array([[0, 0, 1, 1, 2, 1], [1, 1, 1, 0, 0, 1], [2, 2, 2, 2, 2, 2]])
        overrides = (f"partition.by={by}", "graph.kind=ring")
        found, _ = summary(world(overrides=overrides), r2=SELF, r5=worse)
        assert found["per_node"]["test"][1] == 0.0
        assert found["per_node"]["test_pooled"] == pytest.approx([1.0, 2 / 3, 0.5])
        assert found["harmed"] == pytest.approx(1 / 3)
        assert summary(world(), r2=SELF, r5=worse)[0]["harmed"] == 0.0

    def test_without_pooled_scores_own_ones_judge(self) -> None:
        found, rows = summary(world(overrides=("partition.draws=overlapping",)), r2=SELF, r5=DEPLOYED)
        assert found["test_pooled"] is found["self_pooled"] is found["per_node"]["test_pooled"] is None
        assert rows[0]["test_pooled"] is None
        assert found["harmed"] == 0.0
        assert found["p10"] == pytest.approx(1 / 3 + 0.2 * 2 / 3)

    def test_a_node_without_test_examples_has_no_score_and_does_not_count(self) -> None:
        found, _ = summary(world(test=[[0, 2], [1, 3, 4, 5], []]), r2=SELF, r5=SELF)
        assert found["per_node"]["test"] == [0.5, 0.5, None]
        assert found["test"] == pytest.approx(0.5)
        assert found["per_node"]["test_pooled"][2] == pytest.approx(0.5)

    def test_nobody_has_test_examples(self) -> None:
        empty = SELF[:, :0]
        found, _ = summarise(world(test=[[], [], []]), {5: {"self": empty, "deployed": empty}}, stage1=2)
        for name in ("test", "self", "test_pooled", "p10", "harmed", "best_neighbor_oracle"):
            assert found[name] is None
        assert found["best_round_test_selected"] is None
        assert found["per_node"]["test"] == [None, None, None]

    def test_variants_stand_beside(self) -> None:
        table = {5: {"self": SELF, "deployed": SELF, "variant/other": DEPLOYED}}
        found, _ = summarise(world(), table, stage1=2)
        assert found["variants"]["other"]["test"] == pytest.approx(7 / 9)
        assert found["test"] == pytest.approx(5 / 18)


def test_mean_and_list_know_no_nan() -> None:
    assert mean(np.array([0.5, np.nan])) == 0.5
    assert mean(np.array([np.nan])) is None
    assert finite((1.5, float("nan"), None, 3, float("-inf"))) == [1.5, None, None, 3, None]
