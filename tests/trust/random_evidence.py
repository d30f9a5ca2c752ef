"""Random evidence over ragged neighbourhoods and validation sets of different sizes."""

import torch
from torch import Tensor

from lntrust.trust.evidence import Evidence
from lntrust.trust.features import class_distribution, probe_response, relational_features
from lntrust.trust.weights import Memory, Weighting


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def simplex(*shape: int, g: torch.Generator) -> Tensor:
    """Rows that sum to one, in float64."""
    return (3 * torch.randn(*shape, generator=g, dtype=torch.float64)).softmax(-1)


def parts(*shape: int, g: torch.Generator, sharp: float = 2.0) -> Tensor:
    """Such rows of a few 64ths, many of them 0: sums of their products are exact, so that ties are ties."""
    chance = (sharp * torch.randn(*shape, generator=g)).softmax(-1).reshape(-1, shape[-1])
    drawn = torch.multinomial(chance, 64, replacement=True, generator=g)
    counts = torch.zeros_like(chance).scatter_add(1, drawn, torch.ones(drawn.shape))
    return (counts / 64).double().view(*shape)


def evidence(
    seed: int = 0, n: int = 5, D: int = 4, C: int = 3, most: int = 9, least: int = 0, pool: bool = True
) -> Evidence:
    """Column 0 always takes part; others fall away at random, holes in the middle included."""
    g = generator(seed)
    counts = torch.randint(least, most + 1, (n,), generator=g)
    offsets = torch.zeros(n + 1, dtype=torch.int64)
    offsets[1:] = counts.cumsum(0)
    T = int(offsets[-1])
    mask = torch.rand(n, D, generator=g) < 0.7
    mask[:, 0] = True
    owner = torch.repeat_interleave(torch.arange(n), counts)
    probabilities = simplex(T, D, C, g=g) * mask[owner][..., None]
    labels = torch.randint(0, C, (T,), generator=g)
    rho = probe_response(probabilities, labels, offsets) * mask[..., None]
    w = simplex(n, C, g=g)
    w_hat = class_distribution(simplex(n, D, 11, C, g=g)) if pool else None
    degree = torch.randint(1, n + 1, (n, D), generator=g).double() / n
    phi = relational_features(rho, w_hat, w, degree, mask)
    return Evidence(mask, probabilities, labels, offsets, rho, phi, w)


def learned(weighting: Weighting, *refreshes: Evidence, nodes: range | None = None) -> Memory:
    """Its memory after these refreshes."""
    memory = weighting.start(refreshes[0], nodes or range(len(refreshes[0].mask)))
    for k, evidence in enumerate(refreshes):
        memory = weighting.refresh(memory, evidence, first=k == 0)
    return memory


def alpha_of(weighting: Weighting, *refreshes: Evidence) -> Tensor:
    """α over the closed neighbourhood after these refreshes."""
    last = refreshes[-1]
    return weighting.weights(learned(weighting, *refreshes), last, last.mask)
