"""The paper's theory as code: what each proposition says in numbers.

Everything here is measured or computed, nothing assumed: a bound comes with its terms, and a term that cannot
be had for a model (the smoothness of a deep network) is None.
"""

import math

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
