"""Tables: all models' answers at once are the answers that each would give."""

import numpy as np
import pytest
import torch

from lntrust import LNTrustError, load_study
from lntrust.experiment.driver import Runs
from lntrust.learners.views import Views
from lntrust.network import Questions
from lntrust.network import answer_cache as table
from lntrust.network.questions import Route
from lntrust.world import load_dataset

LINEAR = '{name="linear",kind="linear",view="pixels"}'
MLP = '{name="mlp",kind="mlp",view="pixels",options={hidden=6}}'
FOREST = '{name="forest",kind="forest",view="pixels",options={trees=3}}'
KINDS = {"torch": f"[{LINEAR},{MLP}]", "mixed": f"[{LINEAR},{MLP},{FOREST}]"}


@pytest.fixture(scope="module", params=KINDS)
def runs(request: pytest.FixtureRequest) -> Runs:
    """Two worlds side by side that have trained a little."""
    views = Views(load_dataset("digits"), torch.device("cpu"), torch.float64)
    small = [
        "graph.nodes=6",
        "partition.labelled=300",
        "training.stage1_rounds=2",
        "training.stage2_rounds=1",
    ]
    study = load_study(
        "digits", [*small, "training.precision=float64", f"population.learners={KINDS[request.param]}"]
    )
    out = Runs(study, "independent", [0, 5], views)
    out()
    return out


def shard(runs: Runs, B: int) -> Questions:
    ids = np.stack([ids[:B] for ids in runs.world.partition.shard])
    return Questions.of(torch.from_numpy(ids), "shard")


def test_a_table_says_what_the_models_say(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = {}
    for wide in (0.0, 10.0):
        monkeypatch.setattr(table, "WIDE", wide)
        replies[wide] = runs.network.ask(shard(runs, 30), "probe").probabilities
    torch.testing.assert_close(replies[0.0], replies[10.0], rtol=0, atol=1e-12)


def test_uneven_sets_of_every_world_too(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = {}
    for wide in (0.0, 10.0):
        monkeypatch.setattr(table, "WIDE", wide)
        asked = Questions.ragged(runs.world.partition.validation, "validation", torch.device("cpu"))
        first, again = (runs.network.ask(asked, "probe").probabilities for _ in range(2))
        assert torch.equal(first, again)
        replies[wide] = first
    torch.testing.assert_close(replies[0.0], replies[10.0], rtol=0, atol=1e-12)


def test_own_answers_are_read_off_it_while_nobody_learns(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "WIDE", 0.0)
    ids = shard(runs, 30).ids.view(runs.world.n, 30)
    expected = runs.population.predict_own(ids)
    with runs.network.frozen_models():
        runs.network.ask(shard(runs, 30), "probe")
        monkeypatch.setattr(type(runs.population), "predict_own", None)  # nobody computes them anew
        torch.testing.assert_close(runs.network.own(ids), expected, rtol=0, atol=1e-12)


def test_answers_are_kept_only_while_standing_still(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "WIDE", 0.0)
    stack = runs.population.torch_stacks[0]
    weight = next(iter(stack.params.values()))
    with runs.network.frozen_models():
        before = runs.network.ask(shard(runs, 9), "probe").probabilities
        weight.mul_(-1.0)
        assert torch.equal(runs.network.ask(shard(runs, 9), "probe").probabilities, before)
    assert not torch.equal(runs.network.ask(shard(runs, 9), "probe").probabilities, before)
    weight.mul_(-1.0)
    torch.testing.assert_close(runs.network.ask(shard(runs, 9), "probe").probabilities, before)


def test_what_is_not_in_the_pool_is_no_question_about_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "WIDE", 0.0)
    own = np.stack([ids[:2] for ids in runs.world.partition.train])
    with pytest.raises(LNTrustError, match="'shard' is about examples of another"):
        runs.network.ask(Questions.of(torch.from_numpy(own), "shard"), "probe")


class InPlace(torch.nn.Module):
    """Scales its inputs where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x.flatten(1).sub_(0.5).mul_(2.0))  # type: ignore[no-any-return]


def in_place(_shape: tuple[int, ...], _classes: int) -> torch.nn.Module:
    return InPlace()


def test_a_module_that_works_in_place_is_asked_about_the_same_inputs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "WIDE", 0.0)
    views = Views(load_dataset("digits"), torch.device("cpu"), torch.float64)
    kind = f'population.learners=[{{name="own",kind="{__name__}:in_place",view="pixels"}}]'
    small = ["graph.nodes=4", "partition.labelled=200", "training.precision=float64", kind]
    run = Runs(load_study("digits", small), "independent", [0], views)
    assert run.population.torch_stacks[0].looped_because is None
    first, again = (run.network.ask(shard(run, 20), "probe").probabilities for _ in range(2))
    assert torch.equal(first, again)


def test_a_route_knows_whose_rows_are_whose(runs: Runs) -> None:
    asked = Questions.ragged(runs.world.partition.validation, "validation", torch.device("cpu"))
    some = torch.tensor([5, 0, 3])
    route = Route(asked, runs.network.edges, some)
    sizes = asked.counts[runs.network.edges[some, 0].numpy()].tolist()
    assert route.offsets.diff().tolist() == route.counts.tolist() == sizes
    rows = torch.ones(route.rows, dtype=torch.bool)
    rows[int(route.offsets[1])] = False  # one wrong row spoils its edge, and no other
    assert route.all_of(rows).tolist() == [True, False, True]
