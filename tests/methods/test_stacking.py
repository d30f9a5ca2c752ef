"""Stacking: a logistic regression on the neighbourhood's answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from small_runs import (
    ALONE,
    FLOAT64,
    MIXED,
    TRAIN_ONLY,
    all_tested,
    assert_same,
    begun,
    ended,
    made,
    shared_end,
)  # fmt: skip
from torch import Tensor

from lntrust.experiment.evaluation import answers
from lntrust.learners.views import Views
from lntrust.methods.fedmd import centred_logits
from lntrust.methods.stacking import PENALTIES, ridge, stack

METHOD = "stacking"
SEEDS = st.integers(0, 1000)


def opinions(seed: int, T: int, k: int, C: int, skill: float = 1.5) -> tuple[Tensor, Tensor]:
    """Centred logits of k members on T examples of C classes, each of which is there; and the truth."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(T)[torch.randperm(T, generator=draw)] % C
    z = torch.randn(T, k, C, generator=draw, dtype=torch.float64)
    z += skill * torch.nn.functional.one_hot(labels, C)[:, None]
    return z - z.mean(-1, keepdim=True), labels


class TestRidge:
    @settings(max_examples=30)
    @given(SEEDS, st.integers(8, 40), st.integers(1, 4), st.integers(3, 5), st.sampled_from([0.1, 1.0, 10.0]))
    def test_against_scikit_learn(self, seed: int, T: int, k: int, C: int, mu: float) -> None:
        """Its C is 1/(μT) of a mean; our intercept is a column like all others."""
        z, labels = opinions(seed, T, k, C)
        x = torch.cat([z.flatten(1), z.new_ones(T, 1)], 1)
        start, used = x.new_zeros(x.shape[1], C), torch.ones(1, T, dtype=torch.bool)
        logits, W = ridge(x, start, labels, used, x.new_tensor([mu]), 200)
        model = LogisticRegression(C=1 / (mu * T), fit_intercept=False, tol=1e-10, max_iter=10_000)
        theirs = model.fit(x.numpy(), labels.numpy()).predict_log_proba(x.numpy())
        np.testing.assert_allclose(logits[0, 0].log_softmax(-1).numpy(), theirs, atol=0.02)
        torch.testing.assert_close(x @ W[0, 0], logits[0, 0])

    @given(SEEDS, st.integers(10, 30), st.integers(1, 3))
    def test_every_part_and_penalty_is_fitted_by_itself(self, seed: int, T: int, k: int) -> None:
        """A penalty without end leaves it where it starts; rows that are left out say nothing."""
        z, labels = opinions(seed, T, k, 3)
        x, mu = z.flatten(1), z.new_tensor([1e6, 0.1])
        start = torch.eye(3, dtype=z.dtype).repeat(k, 1) / k
        used = torch.stack([torch.arange(T) < T - 4, torch.ones(T, dtype=torch.bool)])
        _, W = ridge(x, start, labels, used, mu, 200)
        torch.testing.assert_close(W[:, 0], start.expand(2, -1, -1), atol=1e-5, rtol=0)
        _, alone = ridge(x[:-4], start, labels[:-4], used[:1, :-4], mu[1:], 200)
        torch.testing.assert_close(W[0, 1], alone[0, 0], atol=5e-3, rtol=0)
        assert not torch.allclose(W[0, 1], W[1, 1], atol=1e-2)


@pytest.mark.parametrize("towards", ["mean", "zero"])
class TestStack:
    @settings(max_examples=12)
    @given(seed=SEEDS, k=st.integers(2, 5))
    def test_the_order_of_members_changes_nothing(self, towards: str, seed: int, k: int) -> None:
        z, labels = opinions(seed, 20, k, 4)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(k))
        A, b, mu = stack(z, labels, towards, 5)
        B, c, nu = stack(z[:, order], labels, towards, 5)
        assert mu == nu
        torch.testing.assert_close(B, A[order], atol=1e-6, rtol=0)
        torch.testing.assert_close(c, b, atol=1e-6, rtol=0)

    @settings(max_examples=12)
    @given(seed=SEEDS, k=st.integers(2, 5))
    def test_of_members_that_are_all_alike_each_weighs_the_same(
        self, towards: str, seed: int, k: int
    ) -> None:
        """So that the answer is a function of the one thing that they all say."""
        z, labels = opinions(seed, 20, 1, 4)
        A, _, _ = stack(z.expand(-1, k, -1), labels, towards, 5)
        torch.testing.assert_close(A, A[:1].expand(k, -1, -1), atol=1e-8, rtol=0)

    def test_it_finds_the_one_that_knows(self, towards: str) -> None:
        """Among six, the others guess, and loudly."""

        def world(seed: int) -> tuple[Tensor, Tensor]:
            z, labels = opinions(seed, 60, 6, 3, skill=0.0)
            z = 3 * z
            z[:, 4] = opinions(seed, 60, 1, 3, skill=4.0)[0][:, 0]
            return z, labels

        A, b, _ = stack(*world(0), towards, 5)
        z, labels = world(1)
        q = torch.einsum("tkc,kcd->td", z, A) + b
        assert float((q.argmax(-1) == labels).double().mean()) > 0.85
        assert float((z.mean(1).argmax(-1) == labels).double().mean()) < 0.7
        assert int(A.diagonal(dim1=1, dim2=2).sum(1).argmax()) == 4

    def test_who_can_tell_nothing_is_held_back(self, towards: str) -> None:
        """And who can is not: the cross-validation chooses."""
        noise, labels = opinions(0, 40, 3, 4, skill=0.0)
        clear, truth = opinions(0, 400, 3, 4, skill=2.0)
        assert stack(noise, labels, towards, 5)[2] == max(PENALTIES)
        assert stack(clear, truth, towards, 5)[2] < 0.1


def test_a_run_deploys_what_it_has_fitted(views64: Views) -> None:
    """On V_i alone; a neighbour that falls silent then has no opinion, and is asked in vain."""
    one, _ = ended(views64, MIXED, method=METHOD)
    x, V = all_tested(one), one.world.partition.validation
    own = one.population.predict_all(x)
    q = {}
    for i in range(6):
        closed = [i, *sorted(one.world.graph.neighbors(i))]
        z = centred_logits(one.population.predict_all(torch.from_numpy(V[i].copy()))[closed]).transpose(0, 1)
        A, b, mu = stack(z, one.population.labels[V[i]], "mean", 5)
        assert float(one.state["penalty"][i]) == mu
        for silent in (None, 1):
            theirs = centred_logits(own[closed])
            theirs[[j == silent != i for j in closed]] = 0.0
            q[silent, i] = (torch.einsum("kuc,kcd->ud", theirs, A) + b).softmax(-1)
    stored = one.course.evaluations[0][one.rounds]["deployed"]
    for silent in (None, 1):
        if silent is not None:
            one.network.misbehaviour[silent] = lambda _: None
        deployment = one.method.deploy(one.site, one.state)
        got = answers(one.population, one.network, deployment, x)["deployed"].numpy()
        assert (got != stored).any() == (silent is not None)
        for i in range(6):
            assert (got[i] == q[silent, i].argmax(-1).numpy()).all()


def test_what_it_costs_and_reports(views: Views) -> None:
    """V_i once, and then as the plain mean: one question to every neighbour."""
    one, summary = shared_end(views, MIXED, method=METHOD)
    V, (asker, answerer) = one.world.partition.validation.lengths, one.world.edges.T
    ledger = one.network.ledger
    assert {phase for phase, _, _ in ledger} == {"select"}
    assert (ledger.payload("query") == V[asker] * 64).all()
    assert (ledger.payload("reply") == V[answerer] * 40).all()
    _, plain = shared_end(views, MIXED, method="uniform")
    assert summary["bytes"]["per_deployed_query"] == plain["bytes"]["per_deployed_query"] > 0
    report = summary["method_report"]
    assert report["alone"] == 0
    assert sum(report["penalties"].values()) == 6


def test_no_validation_label_is_trained_on(views: Views) -> None:
    one, summary = shared_end(views, MIXED, method=METHOD)
    plain, trained = shared_end(views, MIXED, method=TRAIN_ONLY)
    assert_same(one, plain)
    assert summary["per_node"]["self"] == trained["per_node"]["self"]
    assert summary["per_node"]["test"] != trained["per_node"]["test"]


class TestWhoAnswersAlone:
    def test_one_node_is_training_on_train_only(self, views: Views) -> None:
        """Not even its own answers are calibrated."""
        (one, got), (plain, trained) = (ended(views, *ALONE, MIXED, method=m) for m in (METHOD, TRAIN_ONLY))
        assert got["bytes"] == trained["bytes"]
        assert got["per_node"] == trained["per_node"]
        assert_same(one, plain)

    def test_where_there_is_too_little_to_judge_by(self, views: Views) -> None:
        """One validation example each."""
        one, summary = ended(views, MIXED, "partition.val_fraction=0.02", method=METHOD)
        assert one.world.partition.validation.lengths.tolist() == [1] * 6
        assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert summary["bytes"]["per_deployed_query"] == 0
        assert summary["method_report"]["alone"] == 6

    def test_where_nobody_has_answered_and_of_whom_it_is_not_heard(self, views64: Views) -> None:
        one = begun(views64, MIXED, FLOAT64, "graph.kind=ring", method=METHOD)
        one.network.misbehaviour.update(dict.fromkeys((1, 5), lambda _: None))  # both neighbours of node 0
        one()
        members = {(i, j) for i, j in one.state["members"].tolist()}
        assert members == {(i, j) for i in range(1, 6) for j in (i, (i - 1) % 6, (i + 1) % 6)
                           if j == i or j not in (1, 5)}  # fmt: skip


def test_the_penalty_towards_zero_is_another(views: Views) -> None:
    mine, theirs = (
        made(views, MIXED, f"methods.stacking.towards={towards}", method=METHOD)
        for towards in ("mean", "zero")
    )
    assert_same(mine, theirs)
    assert not torch.equal(mine.state["matrices"], theirs.state["matrices"])
