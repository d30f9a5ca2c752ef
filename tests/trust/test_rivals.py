"""Every weighting by name: rows on the simplex, all nodes at once as one alone; and each rival's rule."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import alpha_of, evidence, learned
from torch import Tensor

from lntrust.trust import fit, rivals
from lntrust.trust.evidence import Evidence

seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("name", rivals.WEIGHTINGS)
def test_rows_on_the_simplex(name: str) -> None:
    """They sum to one over the options, and are 0 elsewhere and where there are no options.

    Also without an unlabelled pool, and for one node with one neighbour at most.
    """
    for refreshes in ([evidence(0), evidence(10)], [evidence(0, pool=False)], [evidence(0, D=2, n=1)]):
        weighting = rivals.make_weighting(name, 0)
        memory, last = learned(weighting, *refreshes), refreshes[-1]
        some = last.mask.clone()
        some[0] = False
        some[:, 1] = False
        for options in (last.mask, last.open, some, torch.zeros_like(some)):
            alpha, votes = weighting.weights(memory, last, options), weighting.votes(memory, last, options)
            torch.testing.assert_close(alpha.sum(-1), options.any(-1).to(alpha.dtype))
            for weights in (alpha, votes):
                assert weights.isfinite().all()
                assert (weights >= 0).all()
                assert (weights[~options] == 0).all()


@pytest.mark.parametrize(
    ("name", "prior"), [*((name, "none") for name in rivals.WEIGHTINGS), ("trust", "accuracy")]
)
def test_all_at_once_equals_one_at_a_time(name: str, prior: str) -> None:
    weighting, refreshes = rivals.make_weighting(name, 1, prior), [evidence(1), evidence(21)]
    memory, last = learned(weighting, *refreshes), refreshes[-1]
    alpha, votes = weighting.weights(memory, last, last.mask), weighting.votes(memory, last, last.open)
    for i in range(len(alpha)):
        one, parts = slice(i, i + 1), [e.at(slice(i, i + 1)) for e in refreshes]
        alone, part = learned(weighting, *parts, nodes=range(i, i + 1)), parts[-1]
        found = {
            **alone, "α": weighting.weights(alone, part, part.mask),
            "votes": weighting.votes(alone, part, part.open),
        }  # fmt: skip
        expected = {name: t[one] for name, t in {**memory, "α": alpha, "votes": votes}.items()}
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


def test_uniform_spreads_evenly() -> None:
    e = evidence(0)
    torch.testing.assert_close(alpha_of(rivals.Uniform(), e), e.mask.double() / e.mask.sum(-1, keepdim=True))


@settings(max_examples=30)
@given(seeds)
def test_best_single_picks_the_best_and_itself_in_a_tie(seed: int) -> None:
    e = evidence(seed)
    for options in (e.mask, e.open):
        alpha = rivals.BestSingle().weights({}, e, options)
        for i in range(len(alpha)):
            members = [j for j in range(alpha.shape[1]) if options[i, j]]
            best = max(members, key=lambda j: (float(e.accuracy[i, j]), -j), default=None)
            assert alpha[i].tolist() == [float(j == best) for j in range(alpha.shape[1])]


@settings(max_examples=30)
@given(seeds)
def test_fedfomo_equals_a_loop(seed: int) -> None:
    e = evidence(seed)
    alpha = alpha_of(rivals.FedFomo(), e)
    for i in range(len(alpha)):
        p_true = e.p_true[e.offsets[i] : e.offsets[i + 1]].clamp(min=1e-8)
        loss = (-p_true.log().sum(0) / max(1, len(p_true))).tolist()
        saved = [max(0.0, loss[0] - each) if e.open[i, j] else 0.0 for j, each in enumerate(loss)]
        useful = [s for s in saved if s > 0]
        saved[0] = sum(useful) / len(useful) if useful else 1.0
        assert alpha[i].tolist() == pytest.approx([s / sum(saved) for s in saved])


@pytest.mark.parametrize(
    ("given_to_the_truth", "closed", "opened"),
    [([0.9, 0.5, 0.1], [1, 0, 0], [0, 0.5, 0.5]), ([0.25, 0.5, 0.1], [0.5, 0.5, 0], [0, 1, 0])],
)
def test_fedfomo_where_nobody_or_one_helps(
    given_to_the_truth: list[float], closed: list[float], opened: list[float]
) -> None:
    """One node, one validation example of class 0."""
    p = torch.tensor([[[a, 1 - a] for a in given_to_the_truth]], dtype=torch.float64)
    e = evidence(0, n=1, D=3, C=2, most=1, least=1)
    e = replace(e, mask=torch.ones_like(e.mask), probabilities=p, labels=torch.zeros_like(e.labels))
    assert rivals.FedFomo().weights({}, e, e.mask)[0].tolist() == pytest.approx(closed)
    assert rivals.FedFomo().weights({}, e, e.open)[0].tolist() == pytest.approx(opened)


def linucb(rounds: list[Evidence], i: int) -> tuple[np.ndarray, list[int | None]]:
    """Node i's bounds after these refreshes, in a loop, and which neighbour each refresh chose."""
    A, b, arm, context, chosen = np.eye(6), np.zeros(6), None, np.zeros(6), []
    for e in rounds:
        if arm is not None and e.open[i, arm]:
            A += np.outer(context, context)
            b += context * float(e.accuracy[i, arm] - e.accuracy[i, 0])
        phi, inverse = e.phi[i].numpy(), np.linalg.inv(A)
        bounds = phi @ inverse @ b + np.sqrt(np.einsum("df,fg,dg->d", phi, inverse, phi))
        there = torch.nonzero(e.open[i]).flatten().tolist()
        arm = max(there, key=lambda j: (bounds[j], -j), default=None)
        context = np.zeros(6) if arm is None else phi[arm]
        chosen.append(arm)
    return bounds, chosen


@pytest.mark.parametrize("seed", range(4))
def test_linucb_learns_from_the_arm_it_played_and_puts_all_weight_on_the_highest_bound(seed: int) -> None:
    rounds = [evidence(seed + k) for k in range(4)]
    one, last = rivals.LinUCB(), rounds[-1]
    for count in (1, 4):
        memory = learned(one, *rounds[:count])
        e = rounds[count - 1]
        for i in range(len(e.mask)):
            bounds, chosen = linucb(rounds[:count], i)
            for options in (e.mask, e.open):
                best = np.where(options[i].numpy(), bounds, -np.inf).argmax()
                expected = [float(j == best and bool(options[i, j])) for j in range(len(bounds))]
                assert one.weights(memory, e, options)[i].tolist() == expected
            assert memory["played"][i].tolist() == [j == chosen[-1] for j in range(len(bounds))]
    soft = rivals.LinUCB(temperature=0.1)
    alpha = alpha_of(soft, *rounds)
    for i in range(len(alpha)):
        share = np.where(last.mask[i].numpy(), np.exp(linucb(rounds, i)[0] / 0.1), 0.0)
        assert alpha[i].tolist() == pytest.approx(share / share.sum())


@settings(max_examples=20)
@given(seeds)
def test_what_linucb_did_not_play_teaches_it_nothing(seed: int) -> None:
    """Others may do as well or as badly as they like in the refresh after it chose."""
    first, second, one = evidence(seed, n=6), evidence(seed + 1, n=6), rivals.LinUCB()
    memory = learned(one, first)
    others = ~memory["played"] & second.open
    rho = torch.where(others[..., None], torch.rand_like(second.rho), second.rho)
    same, changed = (one.refresh(memory, e, first=False) for e in (second, replace(second, rho=rho)))
    for name in ("A", "b"):
        assert torch.equal(same[name], changed[name])
    assert torch.equal(learned(one, first)["A"], torch.eye(6).double().expand(6, 6, 6)), "nobody was played"


@settings(max_examples=10)
@given(seeds)
def test_hedge_boost_is_learned_trust_times_hedges_weights(seed: int) -> None:
    rounds = [evidence(seed), evidence(seed + 1)]
    kinds = (rivals.HedgeBoost, fit.TrustNetwork, rivals.Hedge)
    boosted, trust, hedge = (alpha_of(kind(3), *rounds) for kind in kinds)
    product = trust * hedge
    torch.testing.assert_close(boosted, product / product.sum(-1, keepdim=True))


@settings(max_examples=20)
@given(seeds)
def test_hedge_is_exponential_in_the_summed_loss(seed: int) -> None:
    first, second = evidence(seed), evidence(seed + 1)
    loss = sum((1 - e.rho.sum(-1) / e.rho.shape[-1] for e in (first, second)), torch.zeros(5, 4))
    w = torch.exp(-0.5 * loss) * second.mask
    torch.testing.assert_close(alpha_of(rivals.Hedge(), first, second), w / w.sum(-1, keepdim=True))


def seen(e: Evidence, i: int, c: int) -> bool:
    """Whether class c is in V_i: one that is not is left as it is."""
    return bool((e.labels[int(e.offsets[i]) : int(e.offsets[i + 1])] == c).any())


@settings(max_examples=20)
@given(seeds)
def test_weighted_majority_votes_by_class(seed: int) -> None:
    first, second = evidence(seed), evidence(seed + 1)
    one = rivals.WeightedMajority()
    memory = learned(one, first, second)
    votes, alpha = one.votes(memory, second, second.mask), one.weights(memory, second, second.mask)
    n, D, C = second.rho.shape
    for i in range(n):
        w = torch.zeros(D, C, dtype=torch.float64)
        for j in torch.nonzero(second.mask[i]).flatten().tolist():
            for c in range(C):
                w[j, c] = 0.5 ** sum(1 - float(e.rho[i, j, c]) for e in (first, second) if seen(e, i, c))
        shares = w / w.sum(0)
        torch.testing.assert_close(votes[i], shares)
        mean = shares @ second.w[i]
        torch.testing.assert_close(alpha[i], mean / mean.sum())


def test_a_class_that_everybody_knows_less_keeps_its_votes() -> None:
    """Members that are alike weigh alike on every class, however hard it is, after many refreshes."""
    e = evidence(0, n=1, D=3, C=3, least=9)
    easy_hard_absent = torch.tensor([1.0, 0.2, 0.0]).double().expand(1, 3, 3)
    labels = torch.arange(9) % 2  # of class 2 there is none to validate on
    e = replace(e, mask=torch.ones(1, 3, dtype=torch.bool), rho=easy_hard_absent, labels=labels)
    votes = rivals.WeightedMajority().votes(learned(rivals.WeightedMajority(), *[e] * 21), e, e.mask)
    torch.testing.assert_close(votes, torch.full_like(votes, 1 / 3))


@pytest.mark.parametrize("kind", [rivals.Hedge, rivals.WeightedMajority])
def test_a_long_run_does_not_underflow(kind: type[rivals.Hedge] | type[rivals.WeightedMajority]) -> None:
    e, one = evidence(0), kind()
    memory = {name: t - 1e5 for name, t in learned(one, e).items()}
    torch.testing.assert_close(one.weights(memory, e, e.mask).sum(-1), torch.ones(5).double())


def objective(e: Evidence, alpha: Tensor) -> Tensor:
    return fit.trust_loss(e.p_true, alpha, e.offsets) + 0.01 * alpha.square().sum(-1)


def test_simplex_erm_is_nearly_the_optimum_of_two_members_and_starts_afresh_at_each_refresh() -> None:
    before, e = evidence(1, n=4, D=2, least=4), evidence(3, n=4, D=2, least=4)
    alpha = alpha_of(rivals.SimplexERM(), before, e)
    assert torch.equal(alpha, alpha_of(rivals.SimplexERM(), e))
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    for i in range(4):
        part = e.at(slice(i, i + 1))
        share = grid if e.mask[i, 1] else grid[:1]
        best = min(float(objective(part, torch.stack([1 - a, a])[None])) for a in share)
        assert float(objective(part, alpha[i : i + 1])) <= best + 2e-3


@settings(max_examples=8)
@given(seeds)
def test_simplex_erm_is_at_least_as_good_as_uniform(seed: int) -> None:
    e = evidence(seed)
    reached, uniform = (objective(e, alpha_of(kind(), e)) for kind in (rivals.SimplexERM, rivals.Uniform))
    assert (reached <= uniform + 1e-12).all()
