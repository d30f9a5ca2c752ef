"""Each proposition in the form in which it is stated: its rates, and cases by hand that come near to it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator, simplex
from small_runs import LINEAR, ended
from torch import Tensor

from lntrust.learners.views import Views
from lntrust.trust import blend, bounds, features
from lntrust.trust import distil as distillation
from lntrust.trust import gates as gate

unit = st.floats(0.0, 1.0)


def exact(*values: Any) -> Tensor:
    """In float64 from the start."""
    return torch.tensor(values, dtype=torch.float64)


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


class TestDeploymentBound:
    @given(st.integers(1, 50), st.integers(1, 10_000), st.floats(0.05, 1.0), st.floats(0.001, 0.5))
    def test_its_terms(self, d: int, m: int, epsilon: float, delta: float) -> None:
        complexity, confidence = bounds.deployment_bound(d, m, epsilon, delta)
        assert complexity == pytest.approx(4 / epsilon * math.sqrt(2 * math.log(d) / m))
        spread = math.sqrt(2 * math.log(1 / epsilon) ** 2 * math.log(2 / delta) / m)
        assert confidence == pytest.approx(spread, abs=1e-9)
        assert complexity + confidence == pytest.approx(2 * bounds.uniform_deviation(d, m, epsilon, delta))

    @staticmethod
    def deviation(d: int, m: int, epsilon: float = 0.3, draws: int = 60) -> float:
        """sup over α of |R − R̂|, its mean over validation sets of a known population; d members alike."""
        g = generator(d)
        right = torch.rand(20_000, d, generator=g, dtype=torch.float64) < 0.6
        sharp = torch.rand(20_000, d, generator=g, dtype=torch.float64) / 2
        p_true = torch.where(right, 0.5 + sharp, sharp)
        some = torch.from_numpy(np.random.default_rng(0).dirichlet(np.full(d, 0.3), 50))
        alpha = torch.cat([torch.eye(d, dtype=torch.float64), some])
        truth, found = bounds.clipped_risk(p_true, alpha, epsilon), 0.0
        for _ in range(draws):
            sample = p_true[torch.randint(len(p_true), (m,), generator=g)]
            found += float((bounds.clipped_risk(sample, alpha, epsilon) - truth).abs().max()) / draws
        assert found < bounds.uniform_deviation(d, m, epsilon, 0.05)
        return found

    def test_it_falls_with_the_root_of_m_as_the_deviation_does(self) -> None:
        sizes = [50.0, 200.0, 800.0, 3200.0]
        assert slope(sizes, [sum(bounds.deployment_bound(8, int(m), 0.3, 0.05)) for m in sizes]) == (
            pytest.approx(-0.5)
        )
        assert -0.58 < slope(sizes, [self.deviation(8, int(m)) for m in sizes]) < -0.42

    def test_it_grows_with_the_root_of_the_log_of_the_members_as_the_deviation_does(self) -> None:
        """Up to the 33 of the densest graphs."""
        members = [2, 8, 33]
        logs = [math.log(d) for d in members]
        assert slope(logs, [bounds.deployment_bound(d, 500, 0.3, 0.05)[0] for d in members]) == (
            pytest.approx(0.5)
        )
        assert 0.3 < slope(logs, [self.deviation(d, 500) for d in members]) < 0.55

    def test_a_node_alone_that_is_right_by_chance_comes_near_its_deviation(self) -> None:
        """Its loss is 0 or log 1/ε, at even odds: three quarters of Δ would be too little."""
        m, epsilon, delta = 100, 0.1, 0.01
        right = torch.rand(4000, m, 1, generator=generator(0), dtype=torch.float64) < 0.5
        alone = torch.ones(1, dtype=torch.float64)
        risk = torch.stack([bounds.clipped_risk(p, alone, epsilon) for p in right.double()])
        deviation = (risk - 0.5 * math.log(1 / epsilon)).abs()
        limit = bounds.uniform_deviation(1, m, epsilon, delta)
        assert float((deviation > limit).double().mean()) <= delta
        assert float((deviation > 0.75 * limit).double().mean()) > delta

    @pytest.mark.parametrize("d", [2, 33])
    def test_members_that_are_right_by_chance_come_near_its_complexity(self, d: int) -> None:
        """E max_j Σ_k σ_k p_j(x_k) / m, which √(2 ln d / m) bounds: the term without the loss's slope."""
        m, epsilon, g = 400, 0.5, generator(d)
        right = (torch.rand(m, d, generator=g) < 0.5).double()
        if d == 2:
            right[:, 1] = 1.0 - right[:, 0]
        signs = 2.0 * (torch.rand(2000, m, generator=g) < 0.5).double() - 1.0
        complexity = float((signs @ right / m).amax(-1).mean())
        limit = epsilon / 4.0 * bounds.deployment_bound(d, m, epsilon, 0.05)[0]
        assert 0.3 * limit < complexity <= limit


class TestLowestRisk:
    """ξ is measured from its floor."""

    @staticmethod
    def grid(d: int, steps: int) -> Tensor:
        """Points all over the simplex."""
        axes = torch.cartesian_prod(*[torch.arange(steps + 1)] * (d - 1)).view(-1, d - 1)
        inside = axes[axes.sum(-1) <= steps].double() / steps
        return torch.cat([inside, 1.0 - inside.sum(-1, keepdim=True)], -1).clamp(min=0.0)

    @settings(deadline=None, max_examples=30)
    @given(
        st.integers(0, 2**31), st.integers(2, 3), st.integers(1, 12), st.sampled_from([0.01, 0.1, 0.4, 1.0])
    )
    def test_nothing_on_the_simplex_lies_below_the_floor_and_something_just_above(
        self, seed: int, d: int, m: int, epsilon: float
    ) -> None:
        g = generator(seed)
        p_true = torch.rand(m, d, generator=g, dtype=torch.float64) ** 4  # many of them below ε
        low = bounds.lowest_risk(p_true, epsilon)
        everywhere = bounds.clipped_risk(p_true, self.grid(d, 1000 if d == 2 else 80), epsilon)
        assert low.floor <= float(everywhere.min()) + 1e-9
        assert low.floor <= low.reached <= low.floor + 1e-3 + 1e-9
        assert low.reached <= float(everywhere.min()) + 1e-3

    def test_what_is_scored_is_what_is_minimised(self) -> None:
        """The first member is right but once, and then it is very wrong; clipped, that once costs no more."""
        p_true = exact([0.9, 0.5], [1e-7, 0.1])
        expected = (-math.log(0.9) + math.log(10)) / 2
        assert bounds.lowest_risk(p_true, 0.1) == pytest.approx((expected, expected), abs=1e-3)
        other = bounds.lowest_risk(p_true, 1e-8).reached
        assert other < (-math.log(0.9) - math.log(1e-7)) / 2

    def test_two_valleys(self) -> None:
        """Half of the examples are known to one member, the rest to the other: a mixture is the worst."""
        p_true = exact([0.3, 0.0], [0.0, 0.3])
        lost = -(math.log(0.3) + math.log(0.2)) / 2
        low = bounds.lowest_risk(p_true, 0.2)
        assert low.reached == pytest.approx(lost)
        assert bounds.clipped_risk(p_true, exact(0.5, 0.5), 0.2) > lost + 0.1
        assert lost - 1e-3 <= low.floor <= lost

    def test_a_search_that_is_cut_short_claims_less(self) -> None:
        p_true = torch.rand(20, 33, generator=generator(1), dtype=torch.float64) ** 6
        floors = [bounds.lowest_risk(p_true, 0.3, pieces=pieces).floor for pieces in (1, 5, 20)]
        assert floors == sorted(floors)
        assert floors[0] < floors[-1] <= bounds.lowest_risk(p_true, 0.3).reached

    @pytest.mark.parametrize("d", [1, 33])
    def test_all_alike_or_all_clipped(self, d: int) -> None:
        alike, clipped = torch.full((5, d), 0.7, dtype=torch.float64), torch.zeros(5, d).double()
        for p_true, risk in ((alike, -math.log(0.7)), (clipped, math.log(10))):
            assert bounds.lowest_risk(p_true, 0.1) == pytest.approx((risk, risk), abs=1e-9)


def gate_lipschitz(strength: float, epsilon: float) -> float:
    """L_ε = λ(1/ε + 1/ε²), as stated."""
    return strength * (1.0 / epsilon + 1.0 / epsilon**2)


class TestGate:
    """λ·min(1, A^peer/(A^self + ε)) of the ensemble's accuracy A^peer, at the method's own ε. There
    L_ε = 10^16·λ says nothing, but the gate's slope is at most λ/(A + ε), A the larger A^self."""

    def test_selectivity_the_larger_the_peers_excess_error_the_more_it_closes(self) -> None:
        """Of ensembles on one validation set, whose accuracy is theirs, not their members'."""
        e, g, accuracy = evidence(3, n=1, D=5, most=40, least=40), generator(0), []
        for _ in range(40):
            alpha = simplex(1, 5, g=g) * e.open
            q = blend.mixed(e.probabilities, alpha, e.offsets)[:, None]
            rho = features.probe_response(q, e.labels, e.offsets)
            accuracy.append(features.weighted_accuracy(rho, e.w)[0, 0])
        peer = torch.stack(accuracy)
        for own in (0.0, 0.2, float(peer.median()), 0.9):
            excess = own - peer
            opened = gate.training_gate(0.5, peer, torch.full_like(peer, own))
            order = excess.argsort()
            assert (opened[order].diff() <= 0).all()
            worse = excess[order] > 0
            assert bool((opened[order][worse] < 0.5).all())
            assert bool((opened[~(excess > 0)] > 0.5 - 1e-6).all())
        assert len(set(peer.tolist())) > 3, "or nothing is shown"

    def test_the_method_s_gate_is_of_its_members(self) -> None:
        """Two that know one half each are right together: the ensemble's accuracy is 1, their mean ½."""
        p = exact([[0.5, 0.5], [0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.6, 0.4], [0.1, 0.9]])
        labels, offsets = torch.tensor([0, 1]), torch.tensor([0, 2])
        alpha = exact([0.0, 0.5, 0.5])
        each = p.transpose(0, 1).reshape(-1, 2), labels.repeat(3), torch.arange(4) * 2
        accuracy = blend.validation_accuracy(*each)
        assert float(blend.validation_accuracy(blend.mixed(p, alpha, offsets), labels, offsets)) == 1.0
        assert float(gate.ensemble_accuracy(alpha, accuracy[None])) == 0.5

    @given(unit, unit, unit, unit, st.sampled_from([1e-8, 0.1, 1.0]), st.floats(0.1, 1.0))
    def test_lipschitz(
        self, u: float, v: float, u2: float, v2: float, epsilon: float, strength: float
    ) -> None:
        peer, own = exact(u, u2), exact(v, v2)
        a, b = gate.training_gate(strength, peer, own, epsilon).tolist()
        apart = abs(u - u2) + abs(v - v2)
        assert abs(a - b) <= strength / (max(v, v2) + epsilon) * apart + 1e-9
        if max(v, v2) > epsilon:  # then this is no more than what is stated
            assert strength / (max(v, v2) + epsilon) <= gate_lipschitz(strength, epsilon)

    def test_the_empirical_gate_tracks_the_oracle(self) -> None:
        """As m^−½, and as closely as the accuracies are known; where only the peer's is not, exactly so."""
        strength, own, peer, errors = 0.5, 0.8, 0.6, []
        sizes = [20.0, 80.0, 320.0, 1280.0]
        for m in map(int, sizes):
            rng = np.random.default_rng(m)
            own_hat, peer_hat = (torch.from_numpy(rng.binomial(m, a, 4000) / m) for a in (own, peer))
            true = exact(own)
            oracle = gate.training_gate(strength, exact(peer), true)
            noise = (own_hat - own).abs().mean() + (peer_hat - peer).abs().mean()
            errors.append(float((gate.training_gate(strength, peer_hat, own_hat) - oracle).abs().mean()))
            assert errors[-1] <= strength / own * float(noise)
            seen = gate.training_gate(strength, peer_hat, true.expand(4000))
            below = peer_hat <= own
            steep = strength / own * (peer_hat - peer).abs()
            torch.testing.assert_close((seen - oracle).abs()[below], steep[below], rtol=1e-6, atol=1e-8)
        assert -0.58 < slope(sizes, errors) < -0.42


class TestGradient:
    @settings(deadline=None, max_examples=40)
    @given(st.integers(0, 2**31), st.integers(2, 12), st.integers(1, 8), st.booleans())
    def test_its_norm_is_below_its_bound(self, seed: int, C: int, B: int, printed: bool) -> None:
        kind: distillation.Importance = "paper" if printed else "mean_one"
        g = generator(seed)
        x = torch.randn(1, B, 7, generator=g, dtype=torch.float64)
        p_bar, w = simplex(1, B, C, g=g), simplex(1, C, g=g)
        omega = distillation.importance_weights(kind, w, p_bar.argmax(-1), torch.ones(1, B, dtype=torch.bool))
        norm = self.norm(x, torch.randn(1, C, 8, generator=g, dtype=torch.float64), p_bar, omega)
        M = bounds.linear_jacobian_norm(x)
        assert norm <= float(bounds.distillation_gradient_bound(omega.amax(), M)) + 1e-12
        if printed:
            assert norm <= C * math.sqrt(2) * float(M) + 1e-12

    @staticmethod
    def norm(x: Tensor, theta: Tensor, p_bar: Tensor, omega: Tensor) -> float:
        """‖∇L^distil‖ of a linear head [W, b] = θ."""
        theta = theta.clone().requires_grad_()
        logits = x @ theta[..., :-1].transpose(1, 2) + theta[..., -1][:, None]
        scale = torch.full((1,), 1 / x.shape[1], dtype=torch.float64)
        distillation.soft_loss(logits, p_bar, omega, scale).sum().backward()  # type: ignore[no-untyped-call]
        assert theta.grad is not None
        return float(theta.grad.norm())

    @pytest.mark.parametrize("C", [2, 10])
    def test_who_is_sure_of_another_class_than_its_teachers_attains_it(self, C: int) -> None:
        """And where all weight is on that class, ω = C: the paper's C·√2·M."""
        x = torch.randn(1, 1, 7, generator=generator(0), dtype=torch.float64)
        taught = torch.nn.functional.one_hot(torch.tensor([[1]]), C).double()
        theta = torch.zeros(1, C, 8, dtype=torch.float64)
        theta[0, 0, -1] = 50.0  # sure of the first
        kept = torch.ones(1, 1, dtype=torch.bool)
        omega = distillation.importance_weights("paper", taught[0], taught.argmax(-1), kept)
        bound = C * math.sqrt(2) * float(bounds.linear_jacobian_norm(x))
        assert self.norm(x, theta, taught, omega) == pytest.approx(bound)
        assert float(bounds.distillation_gradient_bound(omega.amax(), bounds.linear_jacobian_norm(x))) == (
            pytest.approx(bound)
        )


class TestDrift:
    @pytest.mark.parametrize("C", [2, 4])
    def test_smoothness_bounds_the_hessian_which_two_classes_attain(self, C: int) -> None:
        x = torch.randn(1, 20, 5, generator=generator(3), dtype=torch.float64)
        y = torch.randint(C, (20,), generator=generator(4))

        def loss(flat: Tensor) -> Tensor:
            logits = x[0] @ flat[: 5 * C].view(C, 5).T + flat[5 * C :]
            return torch.nn.functional.cross_entropy(logits, y) + 0.5 * 1e-2 * flat.square().sum()

        beta = float(bounds.softmax_smoothness(x, 1e-2))
        for scale in (0.0, 1.0):
            theta = scale * torch.randn(6 * C, generator=generator(5), dtype=torch.float64)
            largest = float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, theta))[-1])
            assert largest <= beta * (1 + 1e-9)
            if C == 2 and scale == 0:
                assert largest == pytest.approx(beta)

    @pytest.mark.parametrize(("eta", "near"), [(0.1, 0.8), (0.01, 0.97)])
    def test_a_hilltop_attains_it_as_steps_shrink(self, eta: float, near: float) -> None:
        """On −β/2·‖θ‖² both trajectories flee from each other as fast as a β-smooth loss lets them."""
        beta, G, rounds = 2.0, exact(0.6, 0.8), 10
        theta = vartheta = exact(1.0, -1.0)
        for t in range(rounds):
            theta, vartheta = theta + eta * beta * theta, vartheta + eta * beta * vartheta
            theta = theta - (eta * G if t == 0 else 0.0)
        drift = math.log10(float((theta - vartheta).norm()))
        sums = exact(rounds * eta * beta, eta * float(G.norm()))
        bound = float(bounds.drift_bound_log10(*sums))
        assert bound + math.log10(near * math.exp(-eta * beta)) <= drift <= bound

    def test_a_run_of_small_steps_stays_within_it_and_comes_near(self, views64: Views) -> None:
        """They go one way, since what is taught stays the same, and training hardly bends it."""
        plainly = ("training.momentum=0.0", "training.lr=0.0005", "training.stage2_rounds=6")
        linear = f"population.learners=[{LINEAR.replace('dropout=0.2', 'dropout=0.0')}]"
        sets = (linear, *plainly, "training.refresh=6", "methods.lntrust.budget=100", "partition.skew=100")
        sets = (*sets, "methods.lntrust.split_validation=true")
        summary = ended(views64, *sets, method="lntrust", certify=True)[1]
        certificate = summary["method_report"]["certificate"]
        assert certificate["assumptions_hold"]
        nodes = certificate["per_node"]
        moved = [k for k, drift in enumerate(nodes["drift"]) if drift > 0]
        assert len(moved) >= 3, "distillation happened"
        for k in moved:  # a closed gate, or a filter that keeps nothing, leaves a node where it was
            slack = nodes["drift_bound_log10"][k] - math.log10(nodes["drift"][k])
            assert 0 <= slack < math.log10(3)
            assert 0 < nodes["gradient_ratio"][k] <= 1
        plain = ended(views64, *sets, method="lntrust")[1]
        assert plain["per_node"] == summary["per_node"], "watching must not change what is watched"
