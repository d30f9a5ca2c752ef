"""All models' answers at once are the answers that each would give."""

import numpy as np
import pytest
import torch
from small_runs import FLOAT64, MIXED, TORCH

from lntrust import LNTrustError, load_study
from lntrust.experiment.driver import Runs
from lntrust.learners.views import Views
from lntrust.network import Network, Questions, Route

SMALL = ["graph.nodes=6", "partition.labelled=300", "training.stage1_rounds=2", "training.stage2_rounds=1"]


def make(views: Views, kinds: str, *seeds: int) -> Runs:
    return Runs(load_study("digits", [*SMALL, FLOAT64, kinds]), "independent", list(seeds), views)


@pytest.fixture(scope="module", params=[TORCH, MIXED], ids=["torch", "mixed"])
def runs(request: pytest.FixtureRequest, views64: Views) -> Runs:
    """Two worlds side by side that have trained a little."""
    out = make(views64, request.param, 0, 5)
    out()
    return out


def asking(runs: Runs, wide: float = 0.0) -> Network:
    """A network that computes all answers (0), or those that are asked for (10)."""
    return Network(runs.world, runs.population, wide=wide)


def shard(runs: Runs, B: int) -> Questions:
    ids = np.stack([ids[:B] for ids in runs.world.partition.shard])
    return Questions.of(torch.from_numpy(ids), "shard")


def validation(runs: Runs) -> Questions:
    return Questions.ragged(runs.world.partition.validation, "validation", torch.device("cpu"))


@pytest.mark.parametrize("even", [True, False])
def test_a_cache_says_what_the_models_say(runs: Runs, even: bool) -> None:
    replies = []
    for wide in (0.0, 10.0):
        network, asked = asking(runs, wide), shard(runs, 30) if even else validation(runs)
        first, again = (network.ask(asked, "probe").probabilities for _ in range(2))
        assert torch.equal(first, again)
        replies.append(first)
    torch.testing.assert_close(*replies, rtol=0, atol=1e-12)


def test_answers_are_kept_while_nobody_learns(runs: Runs) -> None:
    network, asked = asking(runs), shard(runs, 9)
    ids = asked.ids.view(runs.world.n, 9)
    own = runs.population.predict_own(ids)
    weight = next(iter(runs.population.torch_stacks[0].params.values()))
    with network.frozen_models():
        before = network.ask(asked, "probe").probabilities
        weight.mul_(-1.0)
        assert torch.equal(network.ask(asked, "probe").probabilities, before)
        torch.testing.assert_close(network.own(ids), own, rtol=0, atol=1e-12)  # not computed anew
    assert not torch.equal(network.ask(asked, "probe").probabilities, before)
    assert not torch.allclose(network.own(ids), own)
    weight.mul_(-1.0)
    torch.testing.assert_close(network.ask(asked, "probe").probabilities, before)


def test_what_is_not_in_the_pool_is_no_question_about_it(runs: Runs) -> None:
    own = np.stack([ids[:2] for ids in runs.world.partition.train])
    with pytest.raises(LNTrustError, match="'shard' is about examples of another"):
        asking(runs).ask(Questions.of(torch.from_numpy(own), "shard"), "probe")


def in_place(_shape: tuple[int, ...], _classes: int) -> torch.nn.Module:
    """A module that changes its inputs where they lie."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.SiLU(inplace=True), torch.nn.Linear(64, 10))


def test_a_module_that_works_in_place_is_asked_about_the_same_inputs_again(views64: Views) -> None:
    run = make(views64, f'population.learners=[{{name="own",kind="{__name__}:in_place",view="pixels"}}]', 0)
    assert run.population.torch_stacks[0].looped_because is None
    network = asking(run)
    first, again = (network.ask(shard(run, 20), "probe").probabilities for _ in range(2))
    assert torch.equal(first, again)


def test_a_route_knows_whose_rows_are_whose(runs: Runs) -> None:
    asked, edges, some = validation(runs), runs.network.edges, torch.tensor([5, 0, 3])
    route = Route(asked, edges, some)
    sizes = asked.counts[edges[some, 0].numpy()].tolist()
    assert route.offsets.diff().tolist() == route.counts.tolist() == sizes
    rows = torch.ones(route.rows, dtype=torch.bool)
    rows[int(route.offsets[1])] = False  # one wrong row spoils its edge, and no other
    assert route.all_of(rows).tolist() == [True, False, True]
