"""The trust model g_ψ: one small network per node, all of them fitted at once."""

from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lntrust.randomness import Seeds
from lntrust.trust.ensemble import validation_loss
from lntrust.trust.features import FEATURES
from lntrust.trust.weights import trust_weights

HIDDEN = 32
TrustModel = dict[str, Tensor]  # ψ: weight and bias of three layers, each with a leading node axis


def fresh_model(seed: int | Seeds, nodes: range, dtype: torch.dtype, device: torch.device) -> TrustModel:
    """6 → 32 → 32 → 1 with PyTorch's default initialisation, from each node's own key."""
    seeds = Seeds.of(seed, nodes.stop)
    out: dict[str, list[Tensor]] = {}
    for node in nodes:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeds.small_seed("initial weights", node, 1))
            sizes = (len(FEATURES), HIDDEN, HIDDEN, 1)
            layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        for index, layer in enumerate(layers):
            out.setdefault(f"weight {index}", []).append(layer.weight.detach())
            out.setdefault(f"bias {index}", []).append(layer.bias.detach())
    return {name: torch.stack(tensors).to(device, dtype) for name, tensors in out.items()}


def scores(psi: TrustModel, phi: Float[Tensor, "n D 6"]) -> Float[Tensor, "n D"]:
    """g_ψi(φ_ij), with ReLU between the layers."""
    x = phi
    for index in range(3):
        x = torch.baddbmm(psi[f"bias {index}"][:, None], x, psi[f"weight {index}"].transpose(1, 2))
        x = x.relu() if index < 2 else x
    return x.squeeze(-1)


def fit(
    psi: TrustModel,
    phi: Float[Tensor, "n D 6"],
    mask: Bool[Tensor, "n D"],
    p_true: Float[Tensor, "T D"],
    offsets: Int[Tensor, "n+1"],
    steps: int,
    lr: float = 0.01,
) -> tuple[TrustModel, Float[Tensor, "n"]]:
    """min_ψ ℓ(Σ_{j∈N̄(i)} α_ij p_j(V_i), y_i): Adam, fresh; each node keeps its lowest-loss state.

    Returns that state and its loss. The input is not changed, so a warm start is just the last ψ.
    """
    now = {name: p.detach().clone().requires_grad_() for name, p in psi.items()}
    optimiser = torch.optim.Adam(now.values(), lr=lr)
    best = {name: p.detach().clone() for name, p in psi.items()}
    lowest = torch.full((len(phi),), torch.inf, dtype=phi.dtype, device=phi.device)
    for step in range(steps + 1):
        losses = validation_loss(p_true, trust_weights(scores(now, phi), mask), offsets)
        with torch.no_grad():
            better = losses < lowest
            lowest = torch.where(better, losses, lowest)
            for name, p in now.items():
                best[name] = torch.where(better.view(-1, *[1] * (p.ndim - 1)), p, best[name])
        if step < steps:
            optimiser.zero_grad(set_to_none=True)
            losses.sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return best, lowest.detach()


def permutation_importance(
    psi: TrustModel,
    phi: Float[Tensor, "n D 6"],
    mask: Bool[Tensor, "n D"],
    p_true: Float[Tensor, "T D"],
    offsets: Int[Tensor, "n+1"],
    orders: Int[Tensor, "R n D"],
) -> Float[Tensor, "R n 6"]:
    """Increase of the validation loss when one feature is shuffled across the members, R times.

    orders[r, i] says whose feature each member of node i gets; padding stays in its place.
    """
    base = validation_loss(p_true, trust_weights(scores(psi, phi), mask), offsets)
    out = torch.empty(*orders.shape[:2], phi.shape[-1], dtype=phi.dtype, device=phi.device)
    for r, order in enumerate(orders):
        for f in range(phi.shape[-1]):
            shuffled = phi.clone()
            shuffled[..., f] = phi[..., f].gather(1, order)
            out[r, :, f] = validation_loss(p_true, trust_weights(scores(psi, shuffled), mask), offsets) - base
    return out
