"""Each proposition where it can be proved, and bounds that say something where they are tested."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import ONLY_LINEAR, ended
from torch import Tensor

from lntrust.learners.views import Views
from lntrust.trust import bounds
from lntrust.trust import distil as distillation
from lntrust.trust import gates as gate

unit = st.floats(0.0, 1.0)


def gate_lipschitz(strength: float, epsilon: float) -> float:
    """L_ε = λ(1/ε + 1/ε²): how far the gate λ·min(1, u/(v+ε)) can move with its two accuracies."""
    return strength * (1.0 / epsilon + 1.0 / epsilon**2)


class TestDeploymentBound:
    @given(st.integers(1, 50), st.integers(1, 10_000), st.floats(0.05, 1.0), st.floats(0.001, 0.5))
    def test_its_terms(self, d: int, m: int, epsilon: float, delta: float) -> None:
        complexity, confidence = bounds.deployment_bound(d, m, epsilon, delta)
        assert complexity == pytest.approx(4 / epsilon * math.sqrt(2 * math.log(d) / m))
        spread = 2 * math.log(1 / epsilon) * math.sqrt(math.log(2 / delta) / (2 * m))
        assert confidence == pytest.approx(spread, abs=1e-9)
        assert complexity + confidence == pytest.approx(2 * bounds.uniform_deviation(d, m, epsilon, delta))

    @staticmethod
    def deviations(draws: int, m: int, epsilon: float) -> Tensor:
        """sup over many α of |R − R̂| for `draws` validation sets from a known population."""
        generator = torch.Generator().manual_seed(0)
        skill = torch.linspace(0.2, 0.9, 6, dtype=torch.float64)
        sharp = torch.rand(20_000, 6, generator=generator, dtype=torch.float64)
        p_true = torch.where(torch.rand(20_000, 6, generator=generator) < skill, 0.5 + sharp / 2, sharp / 2)
        alpha = torch.from_numpy(np.random.default_rng(0).dirichlet(np.full(6, 0.3), 200))
        alpha = torch.cat([torch.eye(6, dtype=torch.float64), alpha])
        truth = bounds.clipped_risk(p_true, alpha, epsilon)
        out = []
        for _ in range(draws):
            sample = p_true[torch.randint(len(p_true), (m,), generator=generator)]
            out.append((bounds.clipped_risk(sample, alpha, epsilon) - truth).abs().max())
        return torch.stack(out)

    def test_deviation_stays_within_it_and_not_within_a_shrunken_one(self) -> None:
        m, epsilon, delta = 2000, 0.5, 0.05
        deviation = self.deviations(draws=200, m=m, epsilon=epsilon)
        limit = bounds.uniform_deviation(6, m, epsilon, delta)
        assert limit < math.log(1 / epsilon), "vacuous: above the largest loss there is"
        assert float((deviation <= limit).double().mean()) >= 1 - delta
        assert float((deviation <= 0.02 * limit).double().mean()) < 1 - delta


class TestGate:
    @given(unit, unit, unit, unit, st.floats(0.05, 1.0), st.floats(0.1, 1.0))
    def test_lipschitz(
        self, u: float, v: float, u2: float, v2: float, epsilon: float, strength: float
    ) -> None:
        ens, own = torch.tensor([u, u2]).double(), torch.tensor([v, v2]).double()
        a, b = gate.training_gate(strength, ens, own, epsilon)
        limit = gate_lipschitz(strength, epsilon) * (abs(u - u2) + abs(v - v2))
        assert abs(float(a - b)) <= limit + 1e-9

    @pytest.mark.parametrize("m", [20, 200, 2000])
    def test_the_empirical_gate_tracks_the_oracle(self, m: int) -> None:
        epsilon, strength, own, peer = 0.1, 0.5, 0.8, 0.7
        rng = np.random.default_rng(m)
        own_hat = torch.from_numpy(rng.binomial(m, own, 4000) / m)
        peer_hat = torch.from_numpy(rng.binomial(m, peer, 4000) / m)
        oracle = gate.training_gate(strength, torch.tensor([peer]), torch.tensor([own]), epsilon)
        seen = gate.training_gate(strength, peer_hat, own_hat, epsilon)
        error = float((seen - oracle).abs().mean())
        noise = float((own_hat - own).abs().mean() + (peer_hat - peer).abs().mean())
        assert error <= gate_lipschitz(strength, epsilon) * noise
        assert error <= 1.5 / math.sqrt(m), "and it shrinks with the validation set"


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(2, 12), st.integers(1, 8), st.sampled_from(["paper", "mean_one"]))
def test_the_gradients_norm_is_below_its_bound(
    seed: int, C: int, B: int, kind: distillation.Importance
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, B, 7, generator=generator, dtype=torch.float64)
    weight = torch.randn(1, C, 7, generator=generator, dtype=torch.float64).requires_grad_()
    bias = torch.randn(1, C, generator=generator, dtype=torch.float64).requires_grad_()
    p_bar = torch.softmax(4 * torch.randn(1, B, C, generator=generator, dtype=torch.float64), -1)
    w = torch.softmax(3 * torch.randn(1, C, generator=generator, dtype=torch.float64), -1)
    kept = torch.ones(1, B, dtype=torch.bool)
    omega = distillation.importance_weights(kind, w, p_bar.argmax(-1), kept)
    logits = x @ weight.transpose(1, 2) + bias[:, None]
    loss = distillation.soft_loss(logits, p_bar, omega, torch.full((1,), 1 / B, dtype=torch.float64))
    parts = torch.autograd.grad(loss.sum(), [weight, bias])
    norm = float(torch.cat([g.flatten() for g in parts]).norm())
    M = bounds.linear_jacobian_norm(x)
    assert norm <= float(bounds.distillation_gradient_bound(omega.amax(), M)) + 1e-12
    if kind == "paper":
        assert norm <= C * math.sqrt(2) * float(M) + 1e-12


class TestDrift:
    def test_smoothness_bounds_the_hessian(self) -> None:
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(1, 20, 5, generator=generator, dtype=torch.float64)
        y = torch.randint(4, (20,), generator=generator)

        def loss(flat: Tensor) -> Tensor:
            logits = x[0] @ flat[:20].view(4, 5).T + flat[20:]
            return torch.nn.functional.cross_entropy(logits, y) + 0.5 * 1e-2 * flat.square().sum()

        theta = torch.randn(24, generator=generator, dtype=torch.float64)
        hessian = torch.autograd.functional.hessian(loss, theta)
        assert float(torch.linalg.eigvalsh(hessian)[-1]) <= float(bounds.softmax_smoothness(x, 1e-2))

    def test_a_run_without_momentum_stays_within_its_bound(self, views64: Views) -> None:
        plainly = ("training.momentum=0.0", "training.lr=0.01", "training.stage2_rounds=8")
        sets = (ONLY_LINEAR, *plainly, "training.refresh=4", "methods.lntrust.budget=100")
        summary = ended(views64, *sets, method="lntrust", certify=True)[1]
        certificate = summary["method_report"]["certificate"]
        assert certificate["assumptions_hold"]
        nodes = certificate["per_node"]
        moved = [k for k, drift in enumerate(nodes["drift"]) if drift > 0]
        assert len(moved) >= 3, "distillation happened"
        for k in moved:  # a closed gate, or a filter that keeps nothing, leaves a node where it was
            assert math.log10(nodes["drift"][k]) <= nodes["drift_bound_log10"][k]
            assert 0 < nodes["gradient_ratio"][k] <= 1
        plain = ended(views64, *sets, method="lntrust")[1]
        assert plain["per_node"] == summary["per_node"], "watching must not change what is watched"

    def test_momentum_is_named_as_a_broken_assumption(self, views: Views) -> None:
        summary = ended(views, "training.stage2_rounds=2", method="lntrust", certify=True)[1]
        certificate = summary["method_report"]["certificate"]
        assert not certificate["assumptions_hold"]
        assert None in certificate["per_node"]["drift_bound_log10"], "not known for other models"
