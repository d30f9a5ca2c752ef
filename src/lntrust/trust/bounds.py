"""The paper's theory as code: what each proposition says in numbers.

Everything here is measured or computed, nothing assumed: a bound comes with its terms, and a term that cannot
be had for a model (the smoothness of a deep network) is None.
"""

import heapq
import math
from itertools import count
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def deployment_bound(members: int, examples: int, epsilon: float, delta: float) -> tuple[float, float]:
    """R(α̂) ≤ inf_α R(α) + ξ + complexity + confidence, w.p. ≥ 1 − δ over V_i: these two terms.

    Proposition "Deployment bound" for clipped log-loss −log max(u, ε), d = |N̄(i)| members and m validation
    examples: complexity = (4/ε)·√(2 ln d / m), confidence = 2 ln(1/ε)·√(ln(2/δ) / 2m). Their sum is what
    validation-fit weights pay at most over the best weights, beside ξ.
    """
    half = uniform_deviation(members, examples, epsilon, delta)
    complexity = 4.0 / epsilon * math.sqrt(2.0 * math.log(members) / examples)
    return complexity, 2.0 * half - complexity


def uniform_deviation(members: int, examples: int, epsilon: float, delta: float) -> float:
    """Δ_i(δ) = (2/ε)·√(2 ln d / m) + ln(1/ε)·√(ln(2/δ) / 2m): sup over α of |R − R̂|, w.p. ≥ 1 − δ."""
    spread = 2.0 / epsilon * math.sqrt(2.0 * math.log(members) / examples)
    return spread + math.log(1.0 / epsilon) * math.sqrt(math.log(2.0 / delta) / (2.0 * examples))


def clipped_risk(
    p_true: Float[Tensor, "m d"], alpha: Float[Tensor, "*s d"], epsilon: float
) -> Float[Tensor, "*s"]:
    """R̂(α) = mean over examples of −log max(Σ_j α_j p_j^y(x), ε)."""
    return -(alpha @ p_true.T).clamp(min=epsilon).log().mean(-1)


# -- ξ ----------------------------------------------------------------------------------------------


class LowestRisk(NamedTuple):
    """inf over the simplex of R̂ lies between these two."""

    floor: float
    reached: float


def lowest_risk(
    p_true: Float[Tensor, "m d"], epsilon: float, tolerance: float = 1e-3, pieces: int = 50
) -> LowestRisk:
    """How low R̂(α) can be: R̂(α̂) − floor is never less than ξ, however short the search.

    Where the clip acts R̂ is not convex, and no descent proves that it has found the lowest. But the loss of
    each example lies above a convex minorant (`_Minorant`), and the minimum of their mean above a number that
    duality gives. Where that floor is more than `tolerance` below the lowest risk seen, one example is taken
    apart: where R̂ is lowest it is clipped and costs log 1/ε, or it is not and costs −log u. Neither u ≤ ε nor
    u ≥ ε has to be enforced, since leaving that out can only lower a minimum. After so many `pieces` the
    floor is the lowest of theirs.
    """
    d, tick = p_true.shape[1], count()
    reached = float(clipped_risk(p_true, torch.eye(d).to(p_true), epsilon).min())

    def solved(loss: "_Minorant", near: Tensor) -> tuple[float, int, "_Minorant", Tensor]:
        nonlocal reached
        alpha, floor = _minimum(p_true, loss, near, enough=reached - tolerance)
        reached = min(reached, float(clipped_risk(p_true, alpha, epsilon)))
        return floor, next(tick), loss, alpha

    left = [solved(_Minorant.of(p_true, epsilon), torch.full_like(p_true[0], 1.0 / d))]
    while len(left) < pieces and left[0][0] < reached - tolerance:
        _, _, loss, alpha = left[0]
        u = alpha @ p_true.T
        k = int((-u.clamp(min=epsilon).log() - loss.of_u(u)).argmax())
        near = 0.99 * alpha + 0.01 / d  # a weight of 0 would stay 0
        heapq.heapreplace(left, solved(loss.unclipped(k), near))
        heapq.heappush(left, solved(loss.clipped(k), near))
    return LowestRisk(min(left[0][0], reached), reached)


class _Minorant(NamedTuple):
    """A convex function of u below each example's −log max(u, ε): a line up to t, −log u from there.

    In the range of its u = Σ_j α_j p_j^y(x), from the members' lowest `a` to their highest b. The line begins
    at log 1/ε in a. If a < ε it touches −log u in t, where log(t/ε) = 1 − a/t, so that nothing convex is
    larger; or it is the chord to b, if b < t. Without a line t = 0; a line for ever is t = ∞.
    """

    a: Float[Tensor, "m"]
    top: Float[Tensor, "m"]
    slope: Float[Tensor, "m"]
    t: Float[Tensor, "m"]

    @classmethod
    def of(cls, p_true: Float[Tensor, "m d"], epsilon: float) -> "_Minorant":
        a, b = p_true.amin(-1), p_true.amax(-1)
        low, high = torch.full_like(a, epsilon), torch.full_like(a, math.e * epsilon)
        for _ in range(60):  # bisection: log(t/ε) − 1 + a/t grows with t
            t = (low + high) / 2
            below = (t / epsilon).log() < 1.0 - a / t
            low, high = torch.where(below, t, low), torch.where(below, high, t)
        top = -torch.full_like(a, epsilon).log()
        chord = (top + b.clamp(min=epsilon).log()) / (b - a).clamp(min=1e-300)
        short = b < high
        slope = torch.where(short, chord, 1.0 / high)
        t = torch.where(a >= epsilon, 0.0, torch.where(short, torch.inf, high))
        return cls(a, top, slope, t)

    def clipped(self, k: int) -> "_Minorant":
        """With example k at log 1/ε."""
        slope, t = self.slope.clone(), self.t.clone()
        slope[k], t[k] = 0.0, torch.inf
        return self._replace(slope=slope, t=t)

    def unclipped(self, k: int) -> "_Minorant":
        """With example k at −log u."""
        t = self.t.clone()
        t[k] = 0.0
        return self._replace(t=t)

    def of_u(self, u: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
        return torch.where(u < self.t, self.top - self.slope * (u - self.a), -u.log())

    def fall(self, u: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
        """Minus its derivative; never negative."""
        return torch.where(u < self.t, self.slope, 1.0 / u)


def _minimum(
    p_true: Float[Tensor, "m d"], loss: _Minorant, near: Float[Tensor, "d"], enough: float,
    tolerance: float = 1e-4, steps: int = 500,
) -> tuple[Float[Tensor, "d"], float]:  # fmt: skip
    """Weights near the minimum of G(α) = mean of loss(Σ_j α_j p_j) over the simplex, and what it is at least.

    It starts from weights `near` it, and ends where the minimum is known to be as high as is `enough`.

        α_j ← α_j g_j / Σ_k α_k g_k,    g = −∇G(α) ≥ 0

    never raises G: −loss(e^v) is convex in v = log u, so that its tangents make the step that of an EM
    algorithm. As G is convex, G(α) − (max_j g_j − Σ_j α_j g_j) lies below its minimum for every α.
    """
    alpha, floor, m = near, -math.inf, len(p_true)
    for _ in range(steps):
        u = alpha @ p_true.T
        g = loss.fall(u) @ p_true / m
        gained = alpha @ g
        gap = float(g.max() - gained)
        floor = max(floor, float(loss.of_u(u).mean()) - gap)
        if gap <= tolerance or floor >= enough:
            break
        alpha = alpha * g / gained
    return alpha, floor


# -- drift ------------------------------------------------------------------------------------------


def drift_bound_log10(
    eta_beta: Float[Tensor, "*s"], perturbation: Float[Tensor, "*s"]
) -> Float[Tensor, "*s"]:
    """log₁₀ of exp(Σ_s η_s β_s)·Σ_t η_t λ_t G_t, given the two sums; −∞ where nothing was distilled.

    Proposition "Bounded drift": ‖θ_T − ϑ_T‖ stays below it. As a logarithm, since the exponent is large.
    """
    return eta_beta / math.log(10.0) + perturbation.log10()


def softmax_smoothness(x: Float[Tensor, "k B D"], l2: float) -> Float[Tensor, "k"]:
    """β of the mean cross-entropy of a linear head: ½·λ_max([x,1]ᵀ[x,1])/B + l2.

    The Hessian of log-sum-exp has norm at most ½. x is the batch as the head sees it, dropout applied.
    """
    with_bias = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    gram = with_bias @ with_bias.transpose(1, 2)  # B × B has the same largest eigenvalue as D × D
    largest: Tensor = torch.linalg.eigvalsh(gram)[:, -1]
    return 0.5 * largest / x.shape[1] + l2


def distillation_gradient_bound(
    largest_omega: Float[Tensor, "*s"] | float, jacobian_norm: Float[Tensor, "*s"]
) -> Float[Tensor, "*s"]:
    """‖∇L^distil‖ ≤ ω_max·√2·M, where M bounds ‖∇_θ h_θ(x)‖ on the kept examples.

    The paper's C·√2·M, since its ω = C·w ≤ C; weights scaled to mean one may be larger than C.
    """
    return largest_omega * math.sqrt(2.0) * jacobian_norm


def linear_jacobian_norm(x: Float[Tensor, "*s B D"]) -> Float[Tensor, "*s"]:
    """M of a linear head: max over the batch of √(‖x‖² + 1), the norm of ∂(Wx + b)/∂(W, b)."""
    return (x.square().sum(-1) + 1.0).amax(-1).sqrt()
