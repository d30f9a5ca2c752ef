"""Uniform: the plain mean of the closed neighbourhood."""

import networkx as nx
import numpy as np
import pytest
from small_runs import MIXED, all_tested, shared_end

from lntrust.learners.views import Views


def test_deployed_is_the_mean_of_the_closed_neighbourhood(views: Views) -> None:
    """Which is all that costs."""
    one, summary = shared_end(views, MIXED, method="uniform")
    assert summary["bytes"]["total"] == 0
    asked = one.network.deployment_bytes(1) * len(one.world.edges) / 6
    assert summary["bytes"]["per_deployed_query"] == pytest.approx(asked)
    closed = nx.to_numpy_array(one.world.graph, nodelist=range(6)) + np.eye(6)
    deployment = one.method.deploy(one.site, one.state)
    weights = np.zeros((6, 6))
    weights[tuple(deployment.members.T.numpy())] = deployment.weights
    np.testing.assert_allclose(weights, closed / closed.sum(1, keepdims=True), rtol=1e-6)
    p = one.population.predict_all(all_tested(one)).double().numpy()
    mean = np.stack([p[closed[i] > 0].mean(0) for i in range(6)])
    top = np.sort(mean, -1)
    clear = top[..., -1] - top[..., -2] > 1e-5  # float32 may order others otherwise
    assert clear.mean() > 0.99
    assert (one.course.evaluations[0][one.rounds]["deployed"] == mean.argmax(-1))[clear].all()
