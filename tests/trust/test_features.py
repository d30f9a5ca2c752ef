"""ρ, ŵ and φ against loops over nodes, members and classes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence, generator, simplex

from lntrust.trust.features import FEATURES, class_distribution, probe_response, relational_features

WITHOUT_POOL = (False, True, True, False, False, True)  # probe accuracies and degree remain


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_probe_response_equals_a_loop(seed: int) -> None:
    e = evidence(seed)
    rho = probe_response(e.probabilities, e.labels, e.offsets)
    n, D, C = rho.shape
    for i in range(n):
        rows = range(int(e.offsets[i]), int(e.offsets[i + 1]))
        for j in range(D):
            for c in range(C):
                of_class = [t for t in rows if e.labels[t] == c]
                hits = sum(int(e.probabilities[t, j].argmax()) == c for t in of_class)
                expected = hits / len(of_class) if of_class else 0.0  # absent from V_i: 0
                assert float(rho[i, j, c]) == pytest.approx(expected)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_class_distribution_counts_predictions(seed: int) -> None:
    p = simplex(3, 2, 7, 4, g=generator(seed))
    w_hat = class_distribution(p)
    for i in range(3):
        for j in range(2):
            said = [int(p[i, j, s].argmax()) for s in range(7)]
            assert w_hat[i, j].tolist() == pytest.approx([said.count(c) / 7 for c in range(4)])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.booleans())
def test_features_equal_a_loop(seed: int, pool: bool) -> None:
    n, D, C, g = 4, 3, 5, generator(seed)
    rho = torch.rand(n, D, C, generator=g, dtype=torch.float64)
    w = simplex(n, C, g=g)
    w[0] = torch.tensor([0.5, 0.5, 0, 0, 0])  # classes that the node does not have
    w_hat = class_distribution(simplex(n, D, 6, C, g=g))  # with zeros, as counts have them
    degree = torch.randint(1, n, (n, D), generator=g).double() / n
    mask = torch.rand(n, D, generator=g) < 0.7
    phi = relational_features(rho, w_hat if pool else None, w, degree, mask)
    assert phi.shape == (n, D, len(FEATURES))
    for i in range(n):
        for j in range(D):
            if not mask[i, j]:
                assert phi[i, j].tolist() == [0.0] * 6
                continue
            own, theirs, r = w[i].tolist(), w_hat[i, j].tolist(), rho[i, j].tolist()
            smooth = [(q + 1e-8) / (1 + C * 1e-8) for q in theirs]
            expected = [
                sum(min(a, b) for a, b in zip(own, theirs, strict=True)),
                sum(r) / C,
                sum(a * b for a, b in zip(own, r, strict=True)),
                sum(a * math.log(a / b) for a, b in zip(own, smooth, strict=True) if a > 0),
                -sum(b * math.log(b) for b in smooth) / math.log(C),
                float(degree[i, j]),
            ]
            if not pool:
                expected = [v if keep else 0.0 for v, keep in zip(expected, WITHOUT_POOL, strict=True)]
            assert phi[i, j].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)
