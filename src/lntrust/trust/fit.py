"""The trust model g_ψ: one small network per node, all of them fitted at once."""

from functools import cached_property
from itertools import pairwise
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lntrust.core.cuda_graphs import CudaGraph
from lntrust.core.randomness import Seeds
from lntrust.core.segments import segment_mean, spread
from lntrust.core.threads import threads_for
from lntrust.trust.blend import CLIP
from lntrust.trust.evidence import Evidence
from lntrust.trust.features import FEATURES
from lntrust.trust.weights import Alpha, Members, Memory, Weighting, renormalised, trust_weights

HIDDEN = 32
PRIORS = ("none", "self", "accuracy", "uniform")
_AT_ONCE = 10  # steps that a GPU replays in one go
_LAYERS = tuple(pairwise((len(FEATURES), HIDDEN, HIDDEN, 1)))
TrustModel = dict[str, Tensor]  # ψ: weight and bias of three layers, each with a leading node axis
_SHAPES: dict[str, tuple[int, ...]] = {
    name: shape
    for index, (a, b) in enumerate(_LAYERS)
    for name, shape in ((f"weight {index}", (b, a)), (f"bias {index}", (b,)))
}


def fresh_model(seed: int | Seeds, nodes: range, dtype: torch.dtype, device: torch.device) -> TrustModel:
    """6 → 32 → 32 → 1 with PyTorch's default initialisation, from each node's own key."""
    seeds = Seeds.of(seed, nodes.stop)
    made: list[list[Tensor]] = []
    for node in nodes:
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed: that also tells every kind of accelerator, a millisecond each time.
            torch.default_generator.manual_seed(seeds.small_seed("initial weights", node, 1))
            layers = [nn.Linear(a, b) for a, b in _LAYERS]
        made.append([tensor.detach() for layer in layers for tensor in (layer.weight, layer.bias)])
    each = (torch.stack(tensors).to(device, dtype) for tensors in zip(*made, strict=True))
    return dict(zip(_SHAPES, each, strict=True))


def scores(psi: TrustModel, phi: Float[Tensor, "n D 6"]) -> Float[Tensor, "n D"]:
    """g_ψi(φ_ij), with ReLU between the layers."""
    x = phi
    for index in range(3):
        x = torch.baddbmm(psi[f"bias {index}"][:, None], x, psi[f"weight {index}"].transpose(1, 2))
        x = x.relu() if index < 2 else x
    return x.squeeze(-1)


def trust_loss(
    p_true: Float[Tensor, "T D"], alpha: Float[Tensor, "n D"], offsets: Int[Tensor, "n+1"]
) -> Float[Tensor, "n"]:
    """What trust is fitted to: R̂_i = mean over V_i of −log max(Σ_j α_ij p_j^y(x), 1e-8)."""
    q = (p_true * spread(alpha, offsets, len(p_true))).sum(-1)
    return segment_mean(-q.clamp(min=CLIP).log(), offsets)


class Fit:
    """min_ψ ℓ(Σ_{j∈N̄(i)} α_ij p_j(V_i), y_i) for all nodes at once: Adam, fresh at every call.

    Each node keeps its lowest-loss state. An object keeps its working memory between calls, so that a GPU can
    replay the steps; what a call returns is the caller's.
    """

    def __init__(self) -> None:
        self._steps = CudaGraph(self._some_steps)
        self._memory: dict[tuple[torch.Size, torch.dtype, torch.device], dict[str, Tensor]] = {}
        self._current: dict[str, Tensor] = {}  # of the call under way

    def __call__(
        self, psi: TrustModel, evidence: Evidence, steps: int, lr: float = 0.01, prior: Alpha | None = None
    ) -> tuple[TrustModel, Float[Tensor, "n"]]:
        """The lowest-loss ψ on the way of so many steps from this one, and its loss.

        With a prior π, −Σ_j π_ij log α_ij is added to the loss: π sums to how much it counts beside the mean
        over V_i.
        """
        flat = torch.cat([psi[name].flatten(1) for name in _SHAPES], 1)
        nothing = torch.zeros_like(flat)
        start = {
            "now": flat, "best": flat, "mean": nothing, "square": nothing,
            "lowest": torch.full_like(flat[:, 0], torch.inf),
            "taken": torch.zeros((), dtype=torch.float64, device=flat.device),
        }  # fmt: skip
        fresh = {name: torch.empty_like(tensor) for name, tensor in start.items()}
        self._current = self._memory.setdefault((flat.shape, flat.dtype, flat.device), fresh)
        for name, tensor in start.items():
            self._current[name].copy_(tensor)
        shown = (evidence.phi, evidence.mask, evidence.p_true, evidence.offsets, prior)
        with threads_for(shown[2].numel()):
            for done in range(0, steps, _AT_ONCE):
                self._steps(*shown, count=min(_AT_ONCE, steps - done), lr=lr)
            self._steps(*shown, count=0, lr=lr)
        return _unflat(self._current["best"].clone()), self._current["lowest"].clone()

    def _some_steps(
        self, phi: Tensor, mask: Tensor, p_true: Tensor, offsets: Tensor, prior: Tensor | None, count: int,
        lr: float,
    ) -> Float[Tensor, "n"]:  # fmt: skip
        """Steps of Adam, the state before each of them compared; 0: only compare the last state."""
        memory = self._current
        for step in range(max(1, count)):
            now = memory["now"].detach().requires_grad_(count > 0)
            alpha = trust_weights(scores(_unflat(now), phi), mask)
            losses = trust_loss(p_true, alpha, offsets)
            if prior is not None:
                losses = losses - (prior * alpha.clamp(min=CLIP).log()).sum(-1)
            better = losses.detach() < memory["lowest"]
            torch.where(better, losses.detach(), memory["lowest"], out=memory["lowest"])
            torch.where(better[:, None], now.detach(), memory["best"], out=memory["best"])
            if step < count:
                (gradient,) = torch.autograd.grad(losses.sum(), now)
                _adam(memory, gradient, lr)
        return losses.detach()


def _adam(memory: dict[str, Tensor], gradient: Float[Tensor, "n P"], lr: float) -> None:
    """One step of Adam (Kingma & Ba 2015) with its usual constants."""
    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-8
    taken, mean, square = memory["taken"].add_(1.0), memory["mean"], memory["square"]
    mean.lerp_(gradient, 1.0 - beta_1)
    square.mul_(beta_2).addcmul_(gradient, gradient, value=1.0 - beta_2)
    step = (lr / (1.0 - beta_1**taken)).to(gradient.dtype)
    width = (1.0 - beta_2**taken).sqrt().to(gradient.dtype)
    memory["now"].sub_(mean / (square.sqrt() / width + epsilon) * step)


def _unflat(flat: Float[Tensor, "n P"]) -> TrustModel:
    """ψ by name again."""
    parts = torch.split(flat, [prod(shape) for shape in _SHAPES.values()], 1)
    named = zip(_SHAPES.items(), parts, strict=True)
    return {name: part.reshape(-1, *shape) for (name, shape), part in named}


class TrustNetwork(Weighting):
    """With a prior, few validation examples move α little: it is drawn to the node itself, to its members in
    proportion to ρ̃_ij, or to all alike, as if so many examples more had spoken for that."""

    about = "learned trust: a network over six relational features, fitted on validation labels"
    first_steps, later_steps, lr = 200, 50, 0.01

    def start(self, evidence: Evidence, nodes: range) -> Memory:
        return fresh_model(self.seed, nodes, evidence.phi.dtype, evidence.phi.device)

    @cached_property
    def _fit(self) -> Fit:
        return Fit()

    def refresh(self, memory: Memory, evidence: Evidence, first: bool) -> Memory:
        """200 steps after Stage 1, 50 from the last state at each refresh."""
        steps = self.first_steps if first else self.later_steps
        return self._fit(memory, evidence, steps, self.lr, self.drawn_to(evidence))[0]

    def drawn_to(self, evidence: Evidence) -> Alpha | None:
        """π_ij, its rows summing to κ/|V_i|."""
        if self.prior == "none":
            return None
        pull = evidence.mask.to(evidence.phi.dtype)
        if self.prior == "self":
            pull[:, 1:] = 0.0
        elif self.prior == "accuracy":
            pull = evidence.accuracy + 1e-3  # nobody is excluded for having failed on a few examples
        count = evidence.offsets.diff().clamp(min=1).to(pull.dtype)
        return renormalised(pull, evidence.mask) * (self.prior_examples / count)[:, None]

    def weights(self, memory: Memory, evidence: Evidence, options: Members) -> Alpha:
        return trust_weights(scores(memory, evidence.phi), options)


def permutation_importance(
    psi: TrustModel, evidence: Evidence, orders: Int[Tensor, "R n D"]
) -> Float[Tensor, "R n 6"]:
    """Increase of the validation loss when one feature is shuffled across the members, R times.

    orders[r, i] says whose feature each member of node i gets; padding stays in its place.
    """
    phi, p_true = evidence.phi, evidence.p_true

    def loss(features: Float[Tensor, "n D 6"]) -> Float[Tensor, "n"]:
        return trust_loss(p_true, trust_weights(scores(psi, features), evidence.mask), evidence.offsets)

    base = loss(phi)
    out = torch.empty(*orders.shape[:2], phi.shape[-1], dtype=phi.dtype, device=phi.device)
    for r, order in enumerate(orders):
        for f in range(phi.shape[-1]):
            shuffled = phi.clone()
            shuffled[..., f] = phi[..., f].gather(1, order)
            out[r, :, f] = loss(shuffled) - base
    return out
