"""FedFomo: towards models that lower one's own validation loss, over their distance."""

from dataclasses import replace

import torch
from small_runs import TORCH, UNEQUAL, begun, made, record, scatter
from torch import Tensor

from lntrust import Study
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.fedfomo import first_order, own_loss
from lntrust.methods.sharing import Subgraph, subgraphs
from lntrust.world import Dataset, Ragged, World, build_world

METHOD = "fedfomo"


def losses(one: Run) -> Tensor:
    """L_i(θ_n) in row i and column n, list by list."""
    out = []
    for ids in one.world.partition.validation:
        p = one.population.predict_all(torch.from_numpy(ids))
        out.append(-p[:, torch.arange(len(ids)), one.population.labels[ids]].clamp(min=1e-8).log().mean(1))
    return torch.stack(out)


def move(one: Run, subgraph: Subgraph, old: Tensor, new: Tensor) -> Tensor:
    """Where nodes that were at `old` and have trained to `new` end."""
    population = one.population
    population.set_parameters(subgraph.stack, old)
    before = own_loss(one.site)
    population.set_parameters(subgraph.stack, new)
    one.method.move(one.site, subgraph, old, before, before - own_loss(one.site))
    return population.parameters(subgraph.stack)


def linear(one: Run) -> tuple[Subgraph, list[int]]:
    """The subgraph of linear heads, and who has neighbours there."""
    subgraph = subgraphs(one.site)[0]
    return subgraph, torch.nonzero(subgraph.degree > 0).flatten().tolist()


def test_against_loops(views64: Views) -> None:
    """Some are drawn to a neighbour, some to themselves, and somebody to nobody."""
    one = begun(views64, TORCH, *UNEQUAL, "graph.nodes=12", "partition.labelled=600", method=METHOD)
    trained = made(views64, TORCH, *UNEQUAL, "graph.nodes=12", "partition.labelled=600", method=METHOD)
    one.population.load(trained.population.state())
    subgraph, _ = linear(one)
    end = one.population.parameters(subgraph.stack)
    old = end + scatter(one, subgraph.stack)
    new = end + (torch.arange(12) % 3)[:, None] * scatter(one, subgraph.stack).flip(1)
    got = move(one, subgraph, old, new)
    one.population.set_parameters(subgraph.stack, old)
    before = losses(one).diagonal()
    one.population.set_parameters(subgraph.stack, new)
    after = losses(one)
    kinds = set()
    for i in subgraph.stack.nodes.tolist():
        near = subgraph.sender[subgraph.receiver == i].tolist()
        candidates = [i, *near] if near else []
        w = {n: max(0.0, float((before[i] - after[i, n]) / (new[n] - old[i]).norm())) for n in candidates}
        total, expected = sum(w.values()), old[i].clone()
        for n in candidates:
            expected += (w[n] / total if total else 0.0) * (new[n] - old[i])
        torch.testing.assert_close(got[i], expected if near else new[i], rtol=0, atol=1e-10)
        kinds |= {(n == i, weight > 0) for n, weight in w.items()}
    assert kinds == {(own, used) for own in (True, False) for used in (True, False)}


def test_weights_sum_to_one(views64: Views) -> None:
    """If all candidates are one model, and it is better, that is where a node goes."""
    one = made(views64, TORCH, method=METHOD)
    subgraph, heard = linear(one)
    better = one.population.parameters(subgraph.stack)
    better = better[heard[0]].expand_as(better)
    got = move(one, subgraph, scatter(one, subgraph.stack, 5.0), better)
    torch.testing.assert_close(got[heard], better[heard], rtol=0, atol=1e-12)


def test_identical_models_do_not_move(views64: Views) -> None:
    one = begun(views64, TORCH, method=METHOD)
    subgraph, heard = linear(one)
    theta = scatter(one, subgraph.stack)[:1].expand(6, -1).clone()
    assert torch.equal(move(one, subgraph, theta, theta)[heard], theta[heard])


def test_where_nothing_is_better_local_steps_are_undone(views64: Views) -> None:
    one = made(views64, TORCH, method=METHOD)
    subgraph, heard = linear(one)
    old = one.population.parameters(subgraph.stack)
    got = move(one, subgraph, old, scatter(one, subgraph.stack, 5.0))
    assert torch.equal(got[heard], old[heard])


def test_a_worse_neighbour_is_not_heard(views64: Views) -> None:
    one = made(views64, TORCH, "graph.kind=complete", method=METHOD)
    subgraph, heard = linear(one)
    end = one.population.parameters(subgraph.stack)
    old, (*others, worse) = scatter(one, subgraph.stack), heard
    ends = []
    for scale in (5.0, 50.0):
        new = end.clone()
        new[worse] = scale * old[worse]
        ends.append(move(one, subgraph, old, new)[others])
    assert torch.equal(*ends)
    better = move(one, subgraph, old, end)[others]
    assert not torch.allclose(better, ends[0])  # then it is heard


def test_the_weight_is_the_slope_of_the_loss_towards_a_model() -> None:
    way = torch.tensor([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    got = first_order(torch.tensor([10.0, -1.0, 1.0, 0.0]), way)
    assert got.tolist() == [2.0, 0.0, 0.0, 0.0]


def test_who_has_nothing_to_validate_on_trains_alone(views: Views) -> None:
    """An empty V_i judges nobody; it must not undo every step."""

    def make_world(study: Study, dataset: Dataset, seed: int, _: bool) -> World:
        world = build_world(study, dataset, seed)
        return replace(world, partition=replace(world.partition, validation=Ragged.empty(world.n)))

    one = begun(views, TORCH, method=METHOD, make_world=make_world)
    moved = record(
        one.population, "set_parameters", lambda stack, rows: (rows, one.population.parameters(stack))
    )
    one()
    assert moved
    assert all(torch.equal(rows, stood) for rows, stood in moved)


def test_copies_are_paid_for_and_questions_are_not(views: Views) -> None:
    one = made(views, TORCH, method=METHOD)
    assert {(phase, kind) for phase, kind, _ in one.network.ledger} == {("mix", "parameters")}
