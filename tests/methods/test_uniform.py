"""Uniform: the plain mean of the closed neighbourhood."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from lntrust.core.files import read_tensors
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.world import load_dataset


@pytest.fixture
def finished(tiny: Any, views: Views, tmp_path: Path) -> tuple[Run, dict[str, Any]]:
    one = Run(tiny(), "uniform", 0, views, folder=tmp_path)
    return one, one()


def test_weights_sum_to_one_at_every_node(finished: tuple[Run, dict[str, Any]]) -> None:
    one, _ = finished
    deployment = one.method.deploy(one.site, one.state)
    node, member = deployment.members.unbind(1)
    sums = torch.zeros(5).index_add_(0, node, deployment.weights)
    torch.testing.assert_close(sums, torch.ones(5))
    for i in range(5):
        assert sorted(member[node == i].tolist()) == sorted([i, *one.world.graph.neighbors(i)])
        assert deployment.weights[node == i].unique().tolist() == pytest.approx([1 / int((node == i).sum())])


def test_deployed_is_the_mean_of_the_closed_neighbourhood(finished: tuple[Run, dict[str, Any]]) -> None:
    one, summary = finished
    examples = np.unique(one.world.partition.test.values)
    p = one.population.predict_all(torch.from_numpy(examples)).double().numpy()
    closed = nx.to_numpy_array(one.world.graph, nodelist=range(5)) + np.eye(5)
    mean = np.stack([p[closed[i] > 0].mean(0) for i in range(5)])
    top = np.sort(mean, -1)
    clear = top[..., -1] - top[..., -2] > 1e-5  # float32 may order others otherwise
    assert clear.mean() > 0.99
    predicted, _ = read_tensors(max((one.folder / "evaluations").iterdir()))
    deployed = predicted["deployed"].numpy()
    assert (deployed == mean.argmax(-1))[clear].all()
    place = {example: k for k, example in enumerate(examples.tolist())}
    for i, own in enumerate(one.world.partition.test):
        columns = [place[e] for e in own.tolist()]
        truth = load_dataset("digits").labels[own]
        assert summary["per_node"]["test"][i] == pytest.approx((deployed[i, columns] == truth).mean())


def test_only_deployment_costs(finished: tuple[Run, dict[str, Any]]) -> None:
    one, summary = finished
    assert summary["bytes"]["total"] == 0
    mean_degree = 2 * one.world.graph.number_of_edges() / 5
    expected = one.network.deployment_bytes(1) * mean_degree
    assert summary["bytes"]["per_deployed_query"] == pytest.approx(expected)
    assert expected > mean_degree * (64 + 4 * 10)  # the input and ten floats, and framing


def test_an_isolated_node_answers_alone(tiny: Any, views: Views) -> None:
    one = Run(tiny("graph.nodes=1", "partition.labelled=50"), "uniform", 0, views)
    one()
    deployment = one.method.deploy(one.site, one.state)
    assert deployment.members.tolist() == [[0, 0]]
    assert deployment.weights.tolist() == [1.0]
