"""What is written down of a world is what the world was, and nothing a node may not know."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lntrust import load_study
from lntrust.experiment import Run
from lntrust.experiment.driver import Runs
from lntrust.experiment.store.worlds import describe_world, keep_world, world_file
from lntrust.learners.views import Views
from lntrust.world import World, build_world, load_dataset
from lntrust.world.data.datasets import data_directory, missing_files


@pytest.fixture(params=["reading=honest", "reading=paper", "partition.validation=fresh"])
def world(request: pytest.FixtureRequest, tiny: Any) -> World:
    return build_world(tiny(request.param), load_dataset("digits"), 3)


def test_it_tells_of_the_world_that_was(world: World) -> None:
    found, p = describe_world(world, load_dataset("digits")), world.partition
    assert found["classes"] == list(world.classes)
    assert found["learners"] == [learner.name for learner in world.study.population.learners]
    assert found["kinds"] == world.kinds.tolist()
    assert {tuple(edge) for edge in found["edges"]} == {(a, b) for a, b in world.edges.tolist() if a < b}
    assert len(found["edges"]) == world.graph.number_of_edges()
    for name, lists in (("train", p.train), ("validation", p.validation)):
        table = np.array(found[name])
        assert table.shape == (world.n, len(world.classes))
        assert (table.sum(1) == lists.lengths).all()
        labels = load_dataset("digits").labels
        for node, ids in enumerate(lists):
            assert (table[node] == np.bincount(labels[ids], minlength=len(world.classes))).all()
    assert found["test"] == p.test.lengths.tolist()
    assert found["unlabelled"] == p.shard.lengths.tolist()
    assert found["centres"] is None
    assert found["tiles"] is None


def test_test_labels_are_not_in_it(world: World) -> None:
    """The same description, whatever the labels of test sets and of unlabelled examples are."""
    dataset = load_dataset("digits")
    before = describe_world(world, dataset)
    known = np.concatenate([world.partition.train.values, world.partition.validation.values])
    hidden = np.setdiff1d(np.arange(len(dataset.labels)), known)
    world.labels[hidden] = (dataset.labels[hidden] + 1) % 10
    assert describe_world(world, dataset) == before
    assert all(isinstance(count, int) for count in before["test"]), "how many, and not of what"
    world.sealed.open(np.array([0]))  # the seal was not broken


def test_one_file_for_all_methods_of_a_seed_written_once(quick: Any, views: Views, tmp_path: Path) -> None:
    short = ("training.stage1_rounds=1", "training.stage2_rounds=1")
    study, dataset = quick(*short), views.dataset
    for method in ("independent", "uniform"):
        Run(study, method, 0, views, folder=tmp_path)()
    Run(quick(*short, "training.refresh=1"), "uniform", 0, views, folder=tmp_path)()
    (file,) = (tmp_path / "quick" / "worlds").iterdir()
    assert json.loads(file.read_text()) == describe_world(build_world(study, dataset, 0), dataset)
    assert tmp_path / world_file(Run(study, "uniform", 0, views).identity) == file
    file.write_text("kept")
    keep_world(tmp_path, Run(study, "uniform", 0, views).identity, build_world(study, dataset, 0), dataset)
    assert file.read_text() == "kept"
    Runs(study, "independent", [1, 5], views, folder=tmp_path)()  # stacked seeds have their own
    Run(quick(*short, "graph.nodes=4"), "independent", 0, views, folder=tmp_path)()
    assert len(list((tmp_path / "quick" / "worlds").iterdir())) == 4
    for seed in (1, 5):
        found = json.loads((tmp_path / world_file(Run(study, "uniform", seed, views).identity)).read_text())
        assert found == describe_world(build_world(study, dataset, seed), dataset)


@pytest.mark.skipif(bool(missing_files("eurosat", data_directory(None))), reason="eurosat is not here")
def test_a_map_has_places_of_known_labels_only() -> None:
    dataset = load_dataset("eurosat")
    few = ["graph.nodes=8", "partition.per_region=60", "partition.pool=200", "partition.shard=50"]
    study = load_study("geo-eurosat", few)
    world = build_world(study, dataset, 0)
    found = describe_world(world, dataset)
    tiles, p = found["tiles"], world.partition
    assert p.centres is not None
    assert np.allclose(found["centres"], p.centres, atol=1e-4)
    known = sorted(np.concatenate([p.train.values, p.validation.values]).tolist())
    assert len(tiles["node"]) == len(known)
    counts = np.zeros((world.n, len(world.classes)), dtype=int)
    np.add.at(counts, (tiles["node"], tiles["class"]), 1)
    assert (counts == np.array(found["train"]) + np.array(found["validation"])).all()
    assert dataset.latitude is not None
    places = np.sort(np.array(tiles["latitude"]) / tiles["per_degree"])
    assert np.allclose(places, np.sort(dataset.latitude[known]), atol=0.0051)
