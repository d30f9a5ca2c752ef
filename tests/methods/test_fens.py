"""FENS without a server: a small network on the neighbourhood's answers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import ALONE, MIXED, TRAIN_ONLY, all_tested, assert_same, ended, made, shared_end
from torch import Tensor, nn

from lntrust.learners.views import Views
from lntrust.methods.fedmd import centred_logits
from lntrust.methods.fens import FENSSettings, aggregate, fit, fresh

METHOD = "fens"
SEEDS = st.integers(0, 1000)
BOTH = pytest.mark.parametrize("aggregator", ["mlp", "weights"])


def settings(aggregator: str, **more: object) -> FENSSettings:
    return FENSSettings.model_validate({"aggregator": aggregator, "steps": 10, "batch": 8, **more})


def opinions(seed: int, T: int, D: int, C: int) -> tuple[Tensor, Tensor]:
    """Centred logits of D members on T examples, and the truth."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (T,), generator=draw)
    z = torch.randn(T, D, C, generator=draw, dtype=torch.float64)
    return z - z.mean(-1, keepdim=True), labels


def fitted(s: FENSSettings, z: Tensor, labels: Tensor, number: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Nodes one after another in z, each with as many examples."""
    n = len(mask)
    key, size = torch.arange(n) + 7, torch.full((n,), len(z) // n)
    start = fresh(s, key, number, mask, z.shape[2])
    return fit(s, start, key, z, labels, size.cumsum(0) - size, size)


class TestFresh:
    def test_as_layers_of_torch_begin(self) -> None:
        """Evenly between ±1/√inputs; the inputs are those of its own members."""
        mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.float64)
        start = fresh(settings("mlp", hidden=50), torch.arange(2), torch.arange(8).view(2, 4), mask, 10)
        for i, k in enumerate((3, 4)):
            layers = nn.Linear(k * 10, k * 50), nn.Linear(k * 50, 10)
            sizes = [p.numel() for layer in layers for p in layer.parameters()]
            for name, size, inputs in zip(
                ("weights", "bias", "second", "second bias"),
                sizes,
                (k * 10, k * 10, k * 50, k * 50),
                strict=True,
            ):
                used = start[name][i].abs()[start[name][i] != 0] * inputs**0.5
                assert len(used) == size
                assert float(used.max()) < 1
                assert float(used.mean()) == pytest.approx(0.5, abs=0.2 if size < 20 else 0.05)

    def test_weights_begin_at_the_mean(self) -> None:
        mask = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.float64)
        start = fresh(settings("weights"), torch.arange(2), torch.zeros(2, 3, dtype=torch.int64), mask, 2)
        assert start["weights"][..., 1].tolist() == [[0.5, 0.5, 0], [1 / 3] * 3]


@BOTH
class TestFit:
    @given(seed=SEEDS)
    def test_the_order_of_members_and_padding_change_nothing(self, aggregator: str, seed: int) -> None:
        """Nor does who else is fitted."""
        s, order = settings(aggregator), torch.from_numpy(np.random.default_rng(seed).permutation(3))
        z, labels = opinions(seed, 40, 5, 4)
        z[:20, 3:] = 0.0  # node 0 has three members, node 1 has five
        number = torch.tensor([[2, 5, 9, 2, 2], [1, 2, 3, 4, 5]])
        mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.float64)
        both = fitted(s, z, labels, number, mask)
        mine = {name: value[:1] for name, value in both.items()}
        alone = fitted(s, z[:20, order], labels[:20], number[:1, order], mask[:1, :3])
        expected, got = aggregate(mine, z[None, :20]), aggregate(alone, z[None, :20, order])
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)

    @given(seed=SEEDS)
    def test_nothing_but_what_members_say_decides(self, aggregator: str, seed: int) -> None:
        """Members that are all alike; where they have weights, they have the same."""
        one, labels = opinions(seed, 20, 1, 4)
        z = one.repeat(1, 3, 1)
        got = fitted(settings(aggregator), z, labels, torch.tensor([[2, 5, 9]]), z.new_ones(1, 3))
        again = torch.tensor([0, 5, 0])
        said = aggregate(got, z[None, again])[0]
        assert torch.equal(said[0], said[2])
        if aggregator == "weights":
            assert (got["weights"] - got["weights"][:, :1]).abs().max() < 1e-12

    def test_it_learns_whom_to_believe(self, aggregator: str) -> None:
        z, labels = opinions(0, 120, 4, 3)
        z[:, 2] += 4.0 * (nn.functional.one_hot(labels, 3) - 1 / 3)
        half = settings(aggregator, steps=300, rate=0.03, batch=64)
        got = fitted(half, z[:60], labels[:60], torch.arange(4)[None], z.new_ones(1, 4))
        right = (aggregate(got, z[None, 60:])[0].argmax(-1) == labels[60:]).double().mean()
        plain = (z[60:].mean(1).argmax(-1) == labels[60:]).double().mean()
        assert float(right) > max(0.85, float(plain))


def test_the_network_is_two_layers(views64: Views) -> None:
    """As torch would have it, with what a run has learned."""
    one = made(views64, MIXED, "methods.fens.hidden=3", "methods.fens.steps=20", method=METHOD)
    x, stored = all_tested(one), one.course.evaluations[0][one.rounds]["deployed"]
    own = one.population.predict_all(x)
    for i in range(6):
        closed = [i, *sorted(one.world.graph.neighbors(i))]
        rows = one.state["members"][:, 0] == i
        assert one.state["members"][rows, 1].tolist() == closed
        z = centred_logits(own[closed]).transpose(0, 1).flatten(1)
        hidden = (z @ one.state["weights"][rows].flatten(0, 1) + one.state["bias"][i]).relu()
        q = hidden @ one.state["second"][i] + one.state["second bias"][i]
        assert (stored[i] == q.argmax(-1).numpy()).all()
        assert int((hidden > 0).any(0).sum()) <= 3 * len(closed)


def test_without_a_step_weights_are_the_geometric_mean(views64: Views) -> None:
    one = made(views64, MIXED, "methods.fens.aggregator=weights", "methods.fens.steps=0", method=METHOD)
    own = centred_logits(one.population.predict_all(all_tested(one)))
    stored = one.course.evaluations[0][one.rounds]["deployed"]
    for i in range(6):
        closed = [i, *one.world.graph.neighbors(i)]
        assert (stored[i] == own[closed].mean(0).argmax(-1).numpy()).all()


def test_what_it_costs_and_what_it_trains_on(views: Views) -> None:
    """V_i once, and then as the plain mean; and no validation label is trained on."""
    one, summary = shared_end(views, MIXED, method=METHOD)
    V, (asker, answerer) = one.world.partition.validation.lengths, one.world.edges.T
    assert (one.network.ledger.payload("query", "select") == V[asker] * 64).all()
    assert (one.network.ledger.payload("reply", "select") == V[answerer] * 40).all()
    assert {phase for phase, _, _ in one.network.ledger} == {"select"}
    _, plain = shared_end(views, MIXED, method="uniform")
    assert summary["bytes"]["per_deployed_query"] == plain["bytes"]["per_deployed_query"] > 0
    trained, alone = shared_end(views, MIXED, method=TRAIN_ONLY)
    assert_same(one, trained)
    assert summary["per_node"]["self"] == alone["per_node"]["self"]
    assert summary["method_report"] == {"alone": 0}


@BOTH
@pytest.mark.parametrize("how", [ALONE, ("partition.val_fraction=0.02",)], ids=["one node", "one example"])
def test_who_has_nobody_or_too_little_to_judge_by_answers_alone(
    views: Views, aggregator: str, how: tuple[str, ...]
) -> None:
    """As after training on train only."""
    how = (*how, MIXED, f"methods.fens.aggregator={aggregator}")
    (one, got), (plain, trained) = (ended(views, *how, method=m) for m in (METHOD, TRAIN_ONLY))
    assert got["bytes"]["per_deployed_query"] == 0
    assert got["per_node"] == trained["per_node"]
    assert_same(one, plain)
