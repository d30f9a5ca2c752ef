"""The trust model: one network per node, fitted at once, each with its lowest state."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator

from lntrust.trust.blend import validation_loss
from lntrust.trust.evidence import Evidence
from lntrust.trust.fit import Fit, TrustModel, fresh_model, permutation_importance, scores
from lntrust.trust.weights import trust_weights

CPU = torch.device("cpu")


def fresh(n: int, seed: int = 0) -> TrustModel:
    return fresh_model(seed, range(n), torch.float64, CPU)


def loss_of(psi: TrustModel, e: Evidence) -> torch.Tensor:
    return validation_loss(e.p_true, trust_weights(scores(psi, e.phi), e.mask), e.offsets)


def fitted(psi: TrustModel, e: Evidence, steps: int, lr: float = 0.01) -> tuple[TrustModel, torch.Tensor]:
    return Fit()(psi, e.phi, e.mask, e.p_true, e.offsets, steps, lr)


class TestFresh:
    def test_shapes(self) -> None:
        shapes = {name: tuple(p.shape) for name, p in fresh(3).items()}
        assert shapes == {
            "weight 0": (3, 32, 6), "bias 0": (3, 32), "weight 1": (3, 32, 32), "bias 1": (3, 32),
            "weight 2": (3, 1, 32), "bias 2": (3, 1),
        }  # fmt: skip

    def test_a_node_s_start_depends_on_seed_and_node_only(self) -> None:
        torch.manual_seed(5)
        together = fresh(4)
        torch.manual_seed(6)
        alone = fresh_model(0, range(2, 3), torch.float64, CPU)
        for name, p in together.items():
            assert torch.equal(p[2:3], alone[name])
            assert not torch.equal(p[2], p[1])
            assert not torch.equal(p, fresh(4, seed=1)[name])

    def test_it_leaves_torchs_generator_alone(self) -> None:
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        fresh(2)
        assert torch.equal(torch.rand(1), expected)

    def test_scores_equal_a_plain_network(self) -> None:
        psi, phi = fresh(3), torch.randn(3, 4, 6, generator=generator(0), dtype=torch.float64)
        out = scores(psi, phi)
        for i in range(3):
            for j in range(4):
                x = phi[i, j]
                for k in range(3):
                    x = psi[f"weight {k}"][i] @ x + psi[f"bias {k}"][i]
                    x = x.relu() if k < 2 else x
                torch.testing.assert_close(out[i, j], x[0])


class TestFit:
    @settings(deadline=None, max_examples=10)
    @given(st.integers(0, 10_000), st.integers(0, 12), st.sampled_from([0.01, 3.0]))
    def test_the_loss_never_ends_above_its_start(self, seed: int, steps: int, lr: float) -> None:
        e = evidence(seed)
        psi = fresh(5, seed)
        best, lowest = fitted(psi, e, steps, lr)
        assert (lowest <= loss_of(psi, e)).all()
        torch.testing.assert_close(loss_of(best, e), lowest)  # and the state returned has that loss
        assert not any(p.requires_grad for p in best.values())

    def test_it_learns(self) -> None:
        e = evidence(1, least=3)
        psi = fresh(5)
        assert (fitted(psi, e, 100)[1] < loss_of(psi, e))[e.mask.sum(-1) > 1].all()

    def test_each_node_keeps_its_own_lowest_state(self) -> None:
        e, psi = evidence(2, least=2), fresh(5)
        # A rate that jumps about: the lowest loss is passed at different steps.
        path = [fitted(psi, e, steps, lr=0.5) for steps in range(15)]
        lowest = torch.stack([loss for _, loss in path])
        assert (lowest.diff(dim=0) <= 0).all()
        when = [int((lowest[:, i] == lowest[-1, i]).nonzero()[0]) for i in range(5)]
        assert len(set(when)) > 1
        for i, step in enumerate(when):
            for name, p in path[-1][0].items():
                assert torch.equal(p[i], path[step][0][name][i])

    def test_the_input_is_not_changed_and_no_steps_return_it(self) -> None:
        e, psi = evidence(3), fresh(5)
        before = {name: p.clone() for name, p in psi.items()}
        fitted(psi, e, 5)
        assert all(torch.equal(p, before[name]) for name, p in psi.items())
        same, loss = fitted(psi, e, 0)
        assert all(torch.equal(p, before[name]) for name, p in same.items())
        assert torch.equal(loss, loss_of(psi, e))

    @pytest.mark.parametrize("seed", [0, 1])
    def test_all_at_once_equals_one_at_a_time(self, seed: int) -> None:
        e, psi = evidence(seed), fresh(5)
        together, lowest = fitted(psi, e, 60)
        for i in range(5):
            alone, loss = fitted({name: p[i : i + 1] for name, p in psi.items()}, e.at(slice(i, i + 1)), 60)
            torch.testing.assert_close(loss[0], lowest[i], rtol=0, atol=1e-8)
            for name, p in alone.items():
                torch.testing.assert_close(p[0], together[name][i], rtol=0, atol=1e-8)

    def test_a_warm_start_goes_on_from_the_last_state(self) -> None:
        e, psi = evidence(4, least=3), fresh(5)
        first, low = fitted(psi, e, 40)
        _, lower = fitted(first, e, 40)
        _, cold = fitted(psi, e, 0)
        assert (lower <= low).all()
        assert (lower < low).any()
        assert (lower <= cold).all()

    def test_density_it_can_put_all_trust_in_the_best(self) -> None:
        """Distinct features, one member always right and the others always wrong."""
        n, D, C = 4, 4, 3
        g = generator(0)
        phi = torch.rand(n, D, 6, generator=g, dtype=torch.float64)
        best = torch.tensor([0, 1, 2, 3])
        labels = torch.randint(0, C, (n * 6,), generator=g)
        p_true = torch.full((n * 6, D), 1e-3, dtype=torch.float64)
        p_true[torch.arange(n * 6), best.repeat_interleave(6)] = 1.0
        assert len(labels) == len(p_true)
        mask = torch.ones(n, D, dtype=torch.bool)
        psi, loss = Fit()(fresh(n), phi, mask, p_true, torch.arange(n + 1) * 6, 400, 0.01)
        alpha = trust_weights(scores(psi, phi), mask)
        assert (alpha[torch.arange(n), best] > 0.99).all()
        assert (loss < 0.01).all()

    def test_equal_features_cannot_be_told_apart(self) -> None:
        e = evidence(0, least=3)
        phi = torch.ones_like(e.phi)
        psi, _ = Fit()(fresh(5), phi, e.mask, e.p_true, e.offsets, 20)
        uniform = e.mask.double() / e.mask.sum(-1, keepdim=True)
        torch.testing.assert_close(trust_weights(scores(psi, phi), e.mask), uniform)

    def test_a_node_without_validation_examples_stays_as_it_is(self) -> None:
        e = evidence(0, least=0, most=0)
        psi = fresh(5)
        best, loss = fitted(psi, e, 5)
        assert loss.tolist() == [0.0] * 5
        assert all(torch.equal(p, psi[name]) for name, p in best.items())


class TestImportance:
    def orders(self, n: int, D: int, R: int = 4) -> torch.Tensor:
        return torch.stack([torch.stack([torch.randperm(D, generator=generator(r)) for _ in range(n)])
                            for r in range(R)])  # fmt: skip

    def test_a_feature_that_is_not_used_has_none(self) -> None:
        e = evidence(0, least=3)
        e = Evidence(torch.ones_like(e.mask), e.probabilities, e.labels, e.offsets, e.rho, e.phi, e.w)
        psi, _ = fitted(fresh(5), e, 30)
        psi["weight 0"][..., 2] = 0.0
        out = permutation_importance(psi, e.phi, e.mask, e.p_true, e.offsets, self.orders(5, 4))
        assert out.shape == (4, 5, 6)
        assert (out[..., 2] == 0).all()
        assert (out[..., 1].abs() > 0).any()

    def test_one_member_alone_has_nothing_to_shuffle(self) -> None:
        e = evidence(0, D=1, least=2)
        psi = fresh(5)
        out = permutation_importance(psi, e.phi, e.mask, e.p_true, e.offsets, self.orders(5, 1))
        assert (out == 0).all()

    def test_staying_in_place_changes_nothing(self) -> None:
        e = evidence(1)
        order = torch.arange(4).expand(2, 5, 4)
        out = permutation_importance(fresh(5), e.phi, e.mask, e.p_true, e.offsets, order)
        assert (out == 0).all()

    def test_equals_a_loop(self) -> None:
        e, psi = evidence(2, least=2), fresh(5)
        orders = self.orders(5, 4, R=2)
        out = permutation_importance(psi, e.phi, e.mask, e.p_true, e.offsets, orders)
        base = loss_of(psi, e)
        for r in range(2):
            for f in range(6):
                phi = e.phi.clone()
                for i in range(5):
                    for j in range(4):
                        phi[i, j, f] = e.phi[i, int(orders[r, i, j]), f]
                alpha = trust_weights(scores(psi, phi), e.mask)
                torch.testing.assert_close(out[r, :, f], validation_loss(e.p_true, alpha, e.offsets) - base)
