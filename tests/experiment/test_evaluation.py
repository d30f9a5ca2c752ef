"""What nodes answer together, from who answers with which weights."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_evidence import generator, parts
from torch import Tensor

from lntrust.core.randomness import Seeds
from lntrust.experiment import evaluation
from lntrust.methods import Deployment
from lntrust.world import Ragged

# Three nodes' probabilities for two examples and three classes.
OWN = torch.tensor(
    [
        [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]],
        [[0.1, 0.8, 0.1], [0.4, 0.3, 0.3]],
        [[0.2, 0.2, 0.6], [0.1, 0.2, 0.7]],
    ]
)


def answers(members: list[list[int]], weights: Tensor, own: Tensor = OWN, **more: Any) -> dict[str, Tensor]:
    """Predicted classes under a deployment; neighbours are heard as they speak."""
    n, C = len(own), own.shape[-1]
    said = {"predict_all": lambda ids: own[:, ids]}
    population: Any = SimpleNamespace(n=n, classes=C, seeds=Seeds((0,), n), **said)
    network: Any = SimpleNamespace(heard=lambda said: said)
    rows = torch.tensor(members, dtype=torch.int64).reshape(-1, 2)
    return evaluation.answers(population, network, Deployment(rows, weights, **more), torch.tensor([0, 1]))


def classes(members: list[list[int]], weights: Tensor, **more: Any) -> dict[str, Any]:
    return {name: p.tolist() for name, p in answers(members, weights, **more).items()}


ALONE = [[0, 0], [1, 1], [2, 2]]


def test_a_weighted_mean_of_members() -> None:
    """Node 0: 0.4·own + 0.6·node 2; node 1 and 2 alone."""
    members = [[0, 0], [0, 2], [1, 1], [2, 2]]
    got = classes(members, torch.tensor([0.4, 0.6, 1.0, 1.0]))
    by_hand = (0.4 * OWN[0] + 0.6 * OWN[2]).argmax(-1).tolist()
    assert got["deployed"] == [by_hand, [1, 0], [2, 2]]
    assert by_hand != [0, 1]
    assert got["self"] == [[0, 1], [1, 0], [2, 2]]


def test_weights_by_class() -> None:
    members = [[0, 0], [0, 1], [1, 1], [2, 2]]
    weights = torch.tensor([[0.9, 0.1, 0.1], [0.1, 0.9, 0.9], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    by_hand = (weights[0] * OWN[0] + weights[1] * OWN[1]).argmax(-1).tolist()
    assert classes(members, weights)["deployed"][0] == by_hand
    alone = torch.tensor([[0.1, 1.0, 1.0]] * 3)  # they count for a node alone too
    assert classes(ALONE, alone)["deployed"] == (alone[0] * OWN).argmax(-1).tolist()


class TestCombined:
    def test_a_node_makes_of_its_members_answers_what_it_likes(self) -> None:
        """In the order of its rows; it is told who it is and about what, and sees nobody else's answers."""
        seen: dict[int, tuple[Tensor, list[int]]] = {}

        def combine(i: int, said: Tensor, ids: Tensor) -> Tensor:
            seen[i] = said, ids.tolist()
            return said.min(0).values if i == 0 else said[-1]

        members = [[2, 0], [0, 2], [0, 0], [2, 2]]
        got = answers(members, torch.full((4,), 0.5), combine=combine)
        assert torch.equal(got["deployed"][0], torch.minimum(OWN[0], OWN[2]).argmax(-1))
        assert torch.equal(got["deployed"][1], OWN[1].argmax(-1)), "who has no row answers alone"
        assert torch.equal(got["deployed"][2], OWN[2].argmax(-1))
        assert torch.equal(got["self"], OWN.argmax(-1))
        assert seen.keys() == {0, 2}
        for i, order in ((0, [2, 0]), (2, [0, 2])):
            assert torch.equal(seen[i][0], OWN[order])
            assert seen[i][1] == [0, 1]

    def test_it_knows_itself_and_hears_the_others(self) -> None:
        """Who is not heard has said 0; of worlds side by side each has its own examples."""
        heard = 0.5 * OWN.repeat(2, 1, 1)
        heard[1] = 0.0

        def combine(_: int, said: Tensor, ids: Tensor) -> Tensor:
            return torch.stack([said.sum((0, 2)), ids, ids], 1)

        way = Deployment(torch.tensor([[0, 0], [0, 1], [5, 4], [5, 5]]), torch.ones(4), combine=combine)
        blend = evaluation.combined(way, OWN.repeat(2, 1, 1), heard, torch.tensor([[0, 1], [5, 7]]))
        torch.testing.assert_close(blend[0], torch.tensor([[1.0, 0, 0], [1.0, 1, 1]]))
        torch.testing.assert_close(blend[5], torch.tensor([[1.5, 5, 5], [1.5, 7, 7]]))
        assert torch.equal(blend[1:5], OWN.repeat(2, 1, 1)[1:5])


@pytest.mark.parametrize("members", [[], [[1, 1]], [[1, 0], [1, 2]]])
def test_a_node_without_a_row_answers_by_itself(members: list[list[int]]) -> None:
    got = classes(members, torch.full((len(members),), 0.5))
    assert got["deployed"][0] == got["self"][0]
    assert got["deployed"][2] == got["self"][2]


def test_a_prior_multiplies_and_another_model_may_answer() -> None:
    assert classes(ALONE, torch.ones(3))["deployed"] == [[0, 1], [1, 0], [2, 2]]
    prior = torch.tensor([[0.0, 0.0, 1.0]] * 3)
    for more in ({"prior": prior}, {"answer": lambda ids: OWN[[2, 2, 2]][:, ids]}):
        assert classes(ALONE, torch.ones(3), **more)["deployed"] == [[2, 2]] * 3


def test_members_of_a_variant_are_heard_with_its_own_answer_and_without_one_it_is_the_nodes() -> None:
    """Node 0 asks node 1, who says what the variant's model 1 says, here node 2's. `self` is the main's."""
    swapped, main = OWN[[1, 2, 0]], OWN[[2, 0, 1]]
    rows, weights = torch.tensor([[0, 0], [0, 1], [1, 1], [2, 2]]), torch.tensor([0.3, 0.7, 1.0, 1.0])
    variants = {
        "swapped": Deployment(rows, weights, answer=lambda ids: swapped[:, ids]),
        "own": Deployment(torch.tensor(ALONE), torch.ones(3)),
    }
    got = classes(ALONE, torch.ones(3), answer=lambda ids: main[:, ids], variants=variants)
    by_hand = (0.3 * OWN[1] + 0.7 * OWN[2]).argmax(-1).tolist()
    assert got["variant/swapped"] == [by_hand, [2, 2], [0, 1]]
    assert by_hand != (0.3 * OWN[0] + 0.7 * OWN[1]).argmax(-1).tolist()
    assert got["deployed"] == got["self"] == [[2, 2], [0, 1], [1, 0]]
    assert got["variant/own"] == [[0, 1], [1, 0], [2, 2]]


@pytest.mark.parametrize(("count", "dtype"), [(10, torch.uint8), (256, torch.uint8), (300, torch.int16)])
def test_classes_fit_their_type(count: int, dtype: torch.dtype) -> None:
    own = torch.zeros(1, 2, count)
    own[:, :, -1] = 1.0
    got = answers([[0, 0]], torch.ones(1), own)["deployed"]
    assert got.dtype == dtype
    assert got.tolist() == [[count - 1] * 2]


class TestOneByOne:
    @given(st.integers(0, 10_000), st.sampled_from([1, 2, 3]), st.integers(2, 5))
    def test_until_nobody_could_change_it_is_as_asking_all(self, seed: int, worlds: int, n: int) -> None:
        g = generator(seed)
        mix, own = parts(worlds, n, n, g=g), parts(worlds * n, 6, 3, g=g)
        heard = parts(worlds * n, 6, 3, g=g)  # as neighbours hear it: not quite what was said
        everybody = evaluation.blended(own, heard, mix)
        blend, asked = evaluation.one_by_one(own, heard, mix, 1.0)
        assert torch.equal(blend.argmax(-1), everybody.argmax(-1))
        others = (mix > 0).sum(-1) - (mix.diagonal(dim1=1, dim2=2) > 0).long()
        assert (asked <= others.flatten()[:, None]).all()

    @given(st.integers(0, 10_000), st.floats(0, 1))
    def test_worlds_side_by_side_do_not_hear_each_other(self, seed: int, kappa: float) -> None:
        g = generator(seed)
        mix, own = parts(2, 3, 3, g=g), parts(6, 4, 3, g=g)
        blend, asked = evaluation.one_by_one(own, own, mix, kappa)
        for w, rows in enumerate((slice(0, 3), slice(3, 6))):
            alone = evaluation.one_by_one(own[rows], own[rows], mix[w : w + 1], kappa)
            assert torch.equal(blend[rows], alone[0])
            assert torch.equal(asked[rows], alone[1])

    def test_by_hand(self) -> None:
        """Node 0 with half the weight itself, 0.3 for node 2 and 0.2 for node 1."""
        mix = torch.tensor([[[0.5, 0.2, 0.3], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]], dtype=torch.float64)
        own = OWN.double()
        # Its lead: 0.5·0.3 and 0.5·0.2. With κ = 0.25 it must exceed 0.125, and with node 2 asked 0.05.
        blend, asked = evaluation.one_by_one(own, own, mix, 0.25)
        assert asked.tolist() == [[0, 1], [0, 0], [0, 0]]
        expected = torch.stack([0.5 * own[0, 0], 0.5 * own[0, 1] + 0.3 * own[2, 1]])
        torch.testing.assert_close(blend[0], expected)

    def test_who_hears_nothing_answers_alone(self) -> None:
        mix = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        own = OWN[:2]
        blend, asked = evaluation.one_by_one(own, torch.zeros_like(own), mix, 1.0)
        assert torch.equal(blend, own)
        assert (asked == 1).all(), "they were asked all the same"

    def test_a_deployment_says_how_many_were_asked(self) -> None:
        members, weights = [[0, 0], [0, 2], [1, 1], [2, 2]], torch.tensor([0.4, 0.6, 1.0, 1.0])
        certain = classes(members, weights, certainty=1.0)
        assert certain["asked"] == [[1, 1], [0, 0], [0, 0]]
        assert certain["deployed"] == classes(members, weights)["deployed"]
        assert "asked" not in classes(members, weights)
        alone = classes(members, weights, certainty=0.0)
        assert alone["asked"] == [[0, 0]] * 3
        assert alone["deployed"] == alone["self"]


@pytest.mark.parametrize(("second", "mean"), [([3], 4), ([], 10 / 4)])
def test_neighbours_asked_on_average(second: list[int], mean: float) -> None:
    """(1 + 3)/2 on inputs 5 and 9; 4 on input 3, or the mean over all without test inputs; (1 + 3)/2."""
    asked = torch.tensor([[0, 1, 2, 3], [4, 0, 0, 6], [1, 1, 3, 3]], dtype=torch.int16)
    test = Ragged.of([np.array(ids, np.int64) for ids in ([5, 9], second, [8, 5])])
    world: Any = SimpleNamespace(partition=SimpleNamespace(test=test), n=3)
    assert evaluation.asked_on_average(asked, world, np.array([3, 5, 8, 9])) == 2 + mean + 2


def test_who_keeps_silent_changes_nothing_for_those_who_do_not_ask_it() -> None:
    """Weights by class need not sum to 1; node 0 answers alone, node 1 with node 2."""
    own = torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])[:, None]
    mix = torch.zeros(1, 3, 3, 2)
    mix[0, 0, 0], mix[0, 2, 2] = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])
    mix[0, 1, 1], mix[0, 1, 2] = torch.tensor([0.5, 1.0]), torch.tensor([0.5, 3.0])
    everybody, silent = own.clone(), own.clone()
    silent[2] = 0.0
    before, after = (evaluation.blended(own, heard, mix) for heard in (everybody, silent))
    assert torch.equal(before[0], after[0])
    torch.testing.assert_close(after[1, 0], torch.tensor([1.0, 4.0]) * 0.5)
