"""FedPAE: train alone, then choose an ensemble of the neighbours' models."""

import sys
from itertools import pairwise
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy import ndarray
from small_runs import ALONE, MIXED, TORCH, TRAIN_ONLY, assert_same, begun, ended, made, shared, shared_end
from torch import Tensor

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.fedpae import Judge, all_subsets, best_vote, evolve, pareto_front

METHOD = "fedpae"
INPUT = 64  # bytes: 8 × 8 pixels of one byte


def dominates(a: ndarray, b: ndarray, margin: float = 0.0) -> bool:
    """As good in both, better in one."""
    return bool((a >= b - margin).all() and (a > b + margin).any())


def undominated(scores: ndarray) -> list[bool]:
    """The front by its definition."""
    return [not any(dominates(other, row) for other in scores) for row in scores]


def opinions(seed: int, T: int, d: int, C: int) -> tuple[Tensor, Tensor]:
    """What d candidates say about T examples of C classes, better than chance; and the truth."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (T,), generator=draw)
    z = torch.randn(T, d, C, generator=draw, dtype=torch.float64)
    z += 1.5 * torch.nn.functional.one_hot(labels, C)[:, None]
    return z.softmax(-1), labels


def subset(d: int, *members: int) -> ndarray:
    out = np.zeros((1, d), dtype=bool)
    out[0, list(members)] = True
    return out


def chosen_by(run: Run, i: int) -> list[int]:
    members = run.state["members"]
    return sorted(members[members[:, 0] == i, 1].tolist())


Sizes = tuple[int, int, int, int]
SIZES = st.tuples(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 5), st.integers(3, 6))


class TestFront:
    @given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
    def test_against_its_definition(self, rows: list[tuple[int, int]]) -> None:
        """Few different values, so that there are ties in one score and in both."""
        scores = np.array(rows, dtype=np.float64)
        assert pareto_front(scores).tolist() == undominated(scores)
        broken = np.append(scores, [[5.0, np.nan], [5.0, 5.0]], 0)  # of a member that diverged
        assert pareto_front(broken).tolist() == [*[False] * len(scores), False, True]

    @given(st.integers(1, 8), st.integers(1, 9))
    def test_all_subsets_once_and_small_ones_first(self, d: int, largest: int) -> None:
        subsets = all_subsets(d, largest)
        members = [tuple(np.flatnonzero(row).tolist()) for row in subsets]
        assert len(members) == len(set(members)) == sum(comb(d, m) for m in range(1, min(d, largest) + 1))
        assert all(1 <= len(m) <= largest for m in members)
        assert all((len(a), a) < (len(b), b) for a, b in pairwise(members))


class TestJudge:
    @given(SIZES, st.booleans())
    def test_against_its_definition(self, sizes: Sizes, geometric: bool) -> None:
        p, labels = opinions(*sizes)
        T, d, _ = p.shape
        subsets = all_subsets(d, d)
        accuracy = (p.argmax(-1) == labels[:, None]).double().mean(0).numpy()
        scores = Judge(p, labels, 256, geometric)(subsets)
        for row, (strength, diversity) in zip(subsets, scores, strict=True):
            assert strength == pytest.approx(accuracy[row].mean())
            wrong = [np.delete(p[x].numpy()[row], int(labels[x]), axis=1) for x in range(T)]
            unit = np.stack(wrong) / np.linalg.norm(wrong, axis=2, keepdims=True)
            determinants = np.linalg.det(unit @ unit.transpose(0, 2, 1)).clip(min=0.0)
            each = np.power(determinants, 1 / row.sum() if geometric else 1)
            # A root of what is 0 but for rounding is not small.
            slack = 1e-12 ** (1 / row.sum()) if geometric else 1e-12
            assert diversity == pytest.approx(0.0 if row.sum() < 2 else each.mean(), abs=slack)
            assert 0 <= diversity <= 1 + 1e-12

    def test_who_is_certain_of_the_truth_has_no_direction(self) -> None:
        sure = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]], dtype=torch.float64)
        scores = Judge(sure, torch.tensor([0]), 256)(subset(2, 0, 1))
        assert np.isfinite(scores).all()

    def test_diversity_looks_at_the_first_examples_and_strength_at_all(self) -> None:
        p, labels = opinions(0, 30, 3, 4)
        everything, few = all_subsets(3, 3), Judge(p, labels, 8)
        assert few(everything)[:, 0] == pytest.approx(Judge(p, labels, 256)(everything)[:, 0])
        assert few(everything)[:, 1] == pytest.approx(Judge(p[:8], labels[:8], 256)(everything)[:, 1])
        assert few(everything)[:, 1] != pytest.approx(Judge(p, labels, 256)(everything)[:, 1])


class TestEvolution:
    @pytest.mark.parametrize(("seed", "d", "C"), [(0, 5, 10), (3, 8, 3)])
    def test_it_finds_the_front_and_nothing_beyond(self, seed: int, d: int, C: int) -> None:
        p, labels = opinions(seed, 20, d, C)
        judge = Judge(p, labels, 256)
        scores = judge(all_subsets(d, C - 1))
        front = scores[pareto_front(scores)]
        subsets = evolve(judge, d, C - 1, 40, 20, seed)
        assert subsets.dtype == bool
        assert ((subsets.sum(1) >= 1) & (subsets.sum(1) <= C - 1)).all()
        assert len({tuple(row) for row in subsets.tolist()}) == len(subsets)
        found = judge(subsets)
        assert not any(dominates(a, b, 1e-9) for a in found for b in front)
        assert any(np.allclose(a, b, rtol=0, atol=1e-12) for a in found for b in front)

    @pytest.mark.parametrize(("largest", "population", "generations"), [(3, 40, 10), (1, 2, 1)])
    def test_no_ensemble_is_too_large(self, largest: int, population: int, generations: int) -> None:
        """Candidates that each err on a class of their own: but for the limit, all sizes are as good.

        Where chance has found none that is small enough, each alone is all there is.
        """
        p = 0.4 * torch.eye(6, dtype=torch.float64)[None, 1:]
        p[..., 0] = 0.6
        sizes = evolve(Judge(p, torch.tensor([0]), 256), 5, largest, population, generations, 0).sum(1)
        assert set(sizes.tolist()) == set(range(min(2, largest), largest + 1))

    def test_it_is_a_function_of_its_seed(self) -> None:
        judge = Judge(*opinions(0, 20, 14, 10), 256)
        first = evolve(judge, 14, 9, 12, 5, 3)
        np.random.random()  # noqa: NPY002
        assert np.array_equal(first, evolve(judge, 14, 9, 12, 5, 3))

    def test_without_pymoo_it_says_what_to_install(
        self, views: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ["pymoo", *(each for each in sys.modules if each.startswith("pymoo."))]:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(LNTrustError, match=r"pymoo.*not installed; pip install 'lntrust\[fedpae\]'"):
            made(views, TORCH, "methods.fedpae.enumerate=0", method=METHOD)
        made(views, TORCH, method=METHOD)  # few candidates do not need it


@given(SIZES)
def test_the_vote_is_for_the_most_often_right_then_the_smaller_then_the_earlier(sizes: Sizes) -> None:
    p, labels = opinions(*sizes)
    subsets = all_subsets(p.shape[1], p.shape[1])[::-1].copy()  # large ones first
    right = [int((p[:, row].mean(1).argmax(1) == labels).sum()) for row in torch.from_numpy(subsets)]
    keys = [(-right[k], int(row.sum()), k) for k, row in enumerate(subsets)]
    assert np.array_equal(best_vote(p, labels, subsets), subsets[min(keys)[2]])


def closed_answers(run: Run, i: int) -> tuple[list[int], Tensor, Tensor]:
    """The closed neighbourhood, what it says about V_i, and the truth."""
    validation = torch.from_numpy(run.world.partition.validation[i].copy())
    closed = [i, *sorted(run.world.graph.neighbors(i))]
    p = run.population.predict_all(validation)[closed].transpose(0, 1)
    return closed, p, run.population.labels[validation]


class TestSelection:
    @pytest.mark.parametrize("learners", [MIXED, TORCH], ids=["mixed", "torch"])
    def test_every_node_has_the_best_of_its_front(self, views64: Views, learners: str) -> None:
        """Found again by trying everything: no ensemble of the front votes better, or as well and smaller."""
        one = shared(views64, learners, method=METHOD)
        for i in range(6):
            closed, p, labels = closed_answers(one, i)
            rows = all_subsets(len(closed), 9)
            rows = rows[undominated(Judge(p, labels, 256)(rows))]
            rank = [(-int((p[:, row].mean(1).argmax(-1) == labels).sum()), int(row.sum())) for row in rows]
            chosen = [j in chosen_by(one, i) for j in closed]
            assert rank[rows.tolist().index(chosen)] == min(rank)
            weights = one.state["weights"][one.state["members"][:, 0] == i].tolist()
            assert weights == pytest.approx([1 / sum(chosen)] * sum(chosen))

    def test_neighbours_that_are_never_right_or_unsound_are_left_out(self, views64: Views) -> None:
        """No ensemble with them votes better than the node itself."""
        one = begun(views64, TORCH, method=METHOD)

        def worst(p: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(p.argmin(-1), p.shape[-1]).to(p.dtype)

        one.network.misbehaviour.update(dict.fromkeys(range(1, 6), worst))
        one.network.misbehaviour[2] = lambda _: None
        one()
        assert chosen_by(one, 0) == [0]
        assert all(2 not in chosen_by(one, i) for i in range(6) if i != 2)

    def test_a_node_looks_at_its_own_validation_labels_only(self, views64: Views) -> None:
        one = made(views64, MIXED, method=METHOD)
        before = [chosen_by(one, i) for i in range(6)]
        labels = one.population.labels.clone()
        for j in range(6):
            of_j = torch.from_numpy(one.world.partition.validation[j].copy())
            one.population.labels = labels.clone()
            one.population.labels[of_j] = (labels[of_j] + 1) % 10
            one.course.state = one.method.finish(one.site, {})
            after = [chosen_by(one, i) for i in range(6)]
            assert after[:j] + after[j + 1 :] == before[:j] + before[j + 1 :]
            one.population.labels = labels
        one.population.labels = (labels + 1) % 10  # if all change, somebody chooses others
        one.course.state = one.method.finish(one.site, {})
        assert [chosen_by(one, i) for i in range(6)] != before

    def test_by_evolution(self, views: Views) -> None:
        few = ("methods.fedpae.enumerate=0", "methods.fedpae.generations=2")
        one = made(views, MIXED, *few, method=METHOD)
        for i in range(6):
            assert 1 <= len(chosen_by(one, i)) <= 9
            assert set(chosen_by(one, i)) <= {i, *one.world.graph.neighbors(i)}


def test_one_node_alone_is_training_on_train_only(views: Views) -> None:
    (one, got), (plain, trained) = (ended(views, *ALONE, MIXED, method=m) for m in (METHOD, TRAIN_ONLY))
    assert got["bytes"]["total"] == got["bytes"]["per_deployed_query"] == 0
    assert got["per_node"] == trained["per_node"]
    assert one.state["members"].tolist() == [[0, 0]]
    assert_same(one, plain)


@pytest.mark.parametrize("learners", [MIXED, TORCH], ids=["mixed", "torch"])
def test_every_model_travels_once_and_only_forests_are_asked(views: Views, learners: str) -> None:
    one, summary = shared_end(views, learners, method=METHOD)
    forest, ledger = ~one.population.takes_steps.numpy(), one.network.ledger
    P = {stack.learner.name: stack.flat().shape[1] for stack in one.population.torch_stacks}
    assert P["linear"] == 65 * 10
    size = [4 * P.get(one.study.population.learners[k].name, 0) for k in one.world.kinds]
    assert ledger.payload("parameters", "models").tolist() == [size[i] for i in one.world.edges[:, 0]]
    validation, (asker, answerer) = one.world.partition.validation.lengths, one.world.edges.T
    assert (ledger.payload("query", "select") == validation[asker] * INPUT * forest[answerer]).all()
    assert (ledger.payload("reply", "select") == validation[answerer] * 40 * forest[asker]).all()
    asked = [forest[j] for i, j in one.state["members"].tolist() if i != j]
    expected = one.network.deployment_bytes(1) * sum(asked) / 6
    assert asked
    assert summary["bytes"]["per_deployed_query"] == pytest.approx(expected)
    assert (expected > 0) == forest.any() == (learners == MIXED)
    report = summary["method_report"]
    assert report["members"] == one.state["members"].tolist()
    assert report["mean_size"] == pytest.approx(len(report["members"]) / 6)
