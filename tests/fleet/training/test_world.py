"""A live node's draws are those of its number in a simulation, in every stream."""

from typing import get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_nodes import settings

from lntrust.core.randomness import Seeds, Stream
from lntrust.fleet.training.data import load_data
from lntrust.fleet.training.world import OneNode, node_number, node_world


@given(st.integers(0, 2**40), st.sampled_from(get_args(Stream)), st.integers(1, 30), st.data())
def test_draws_are_those_of_the_number(seed: int, stream: Stream, n: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, n - 1))
    counters = data.draw(st.lists(st.integers(0, 2**31), max_size=3))
    all_, one = Seeds((seed,), n), OneNode((seed,), n, number)
    assert one.keys(stream).tolist() == [all_.keys(stream)[number].item()]
    assert one.small_seed(stream, 0, *counters) == all_.small_seed(stream, number, *counters)
    assert one.roots(stream).tolist() == all_.roots(stream).tolist(), "what is common to all stays so"


def test_a_node_without_a_number_has_its_names() -> None:
    a, again, b = (node_number(settings(name=name)) for name in ("a", "a", "b"))
    assert a == again != b


def test_the_world_as_the_node_sees_it() -> None:
    neighbours = [{"name": name} for name in ("b", "c", "d")]
    made = settings(neighbours=neighbours, seed=4, network={"number": 2})
    data = load_data(made)
    world = node_world(made, data)
    assert world.edges.tolist() == [[0, 1], [0, 2], [0, 3]]
    assert world.degrees.tolist() == [3, 0, 0, 0], "of the others nothing is known before they meet"
    assert (world.seeds.seeds, world.seeds.number) == ((4,), 2)
    assert world.study.graph.nodes == 4
    larger = settings(network={"fleet_size": 50})
    assert node_world(larger, data).study.graph.nodes == 50
    for name in ("train", "validation", "shard"):
        np.testing.assert_array_equal(getattr(world.partition, name)[0], getattr(data, name))
    counts = np.bincount(data.labels[data.labels >= 0], minlength=3)
    np.testing.assert_allclose(world.class_distribution[0], counts / counts.sum())
