"""What is written down of a world is what the world was, and nothing a node may not know."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lntrust import Study, load_study
from lntrust.experiment import Run
from lntrust.experiment.driver import Runs
from lntrust.experiment.store.worlds import describe_world, keep_world, world_file
from lntrust.learners.views import Views
from lntrust.world import World, build_world, load_dataset
from lntrust.world.data.datasets import data_directory, missing_files

CASES = [[], ["partition.validation=fresh", "partition.labelled=600"], ["reading=paper"]]


def identity(study: Study, seed: int) -> dict[str, Any]:
    return {"study": study.model_dump(mode="json"), "seed": seed}


@pytest.fixture(params=CASES, ids=["withheld", "fresh", "paper"])
def world(request: pytest.FixtureRequest, tiny: Any) -> World:
    return build_world(tiny(*request.param), load_dataset("digits"), 3)


def test_it_tells_of_the_world_that_was(world: World) -> None:
    told, p = describe_world(world, load_dataset("digits")), world.partition
    assert told["classes"] == list(world.classes)
    assert [told["learners"][kind] for kind in told["kinds"]] == [
        world.study.population.learners[kind].name for kind in world.kinds
    ]
    assert {tuple(edge) for edge in told["edges"]} == {(a, b) for a, b in world.edges.tolist() if a < b}
    assert len(told["edges"]) == world.graph.number_of_edges()
    for name, lists in (("train", p.train), ("validation", p.validation)):
        table = np.array(told[name])
        assert table.shape == (world.n, len(world.classes))
        assert (table.sum(1) == lists.lengths).all()
        labels = load_dataset("digits").labels
        for node, ids in enumerate(lists):
            assert (table[node] == np.bincount(labels[ids], minlength=len(world.classes))).all()
    assert told["test"] == p.test.lengths.tolist()
    assert told["unlabelled"] == p.shard.lengths.tolist()
    assert told["centres"] is None
    assert told["tiles"] is None


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


def test_one_file_for_all_methods_of_a_seed(tiny: Any, views: Views, tmp_path: Path) -> None:
    quick = tiny("training.stage1_rounds=1", "training.stage2_rounds=1")
    for method in ("independent", "uniform", "lntrust"):
        Run(quick, method, 0, views, folder=tmp_path)()
    Run(tiny("training.refresh=1", "training.stage2_rounds=2"), "uniform", 0, views, folder=tmp_path)()
    (file,) = (tmp_path / "tiny" / "worlds").iterdir()
    assert json.loads(file.read_text()) == describe_world(build_world(quick, views.dataset, 0), views.dataset)
    assert tmp_path / world_file(Run(quick, "uniform", 0, views).identity) == file
    Run(quick, "independent", 1, views, folder=tmp_path)()
    Run(quick.model_copy(update={"graph": quick.graph.model_copy(update={"nodes": 4})}), "independent", 0,
        views, folder=tmp_path)()  # fmt: skip
    assert len(list((tmp_path / "tiny" / "worlds").iterdir())) == 3


def test_stacked_seeds_have_their_own(tiny: Any, views: Views, tmp_path: Path) -> None:
    quick = tiny("training.stage1_rounds=1", "training.stage2_rounds=1")
    Runs(quick, "independent", [0, 5], views, folder=tmp_path)()
    for seed in (0, 5):
        told = json.loads((tmp_path / world_file(Run(quick, "uniform", seed, views).identity)).read_text())
        assert told == describe_world(build_world(quick, views.dataset, seed), views.dataset)


def test_it_is_written_once(tiny: Any, tmp_path: Path) -> None:
    study, dataset = tiny(), load_dataset("digits")
    world, of = build_world(study, dataset, 0), identity(study, 0)
    keep_world(tmp_path, of, world, dataset)
    path = tmp_path / world_file(of)
    path.write_text("kept")
    keep_world(tmp_path, of, world, dataset)
    assert path.read_text() == "kept"


@pytest.mark.skipif(bool(missing_files("eurosat", data_directory(None))), reason="eurosat is not here")
def test_a_map_has_places_of_known_labels_only() -> None:
    dataset = load_dataset("eurosat")
    study = load_study(
        "geo-eurosat",
        ["graph.nodes=8", "partition.per_region=60", "partition.pool=200", "partition.shard=50"],
    )
    world = build_world(study, dataset, 0)
    told = describe_world(world, dataset)
    tiles, p = told["tiles"], world.partition
    assert p.centres is not None
    assert np.allclose(told["centres"], p.centres, atol=1e-4)
    known = sorted(np.concatenate([p.train.values, p.validation.values]).tolist())
    assert len(tiles["node"]) == len(known)
    counts = np.zeros((world.n, len(world.classes)), dtype=int)
    np.add.at(counts, (tiles["node"], tiles["class"]), 1)
    assert (counts == np.array(told["train"]) + np.array(told["validation"])).all()
    assert dataset.latitude is not None
    places = np.sort(np.array(tiles["latitude"]) / tiles["per_degree"])
    assert np.allclose(places, np.sort(dataset.latitude[known]), atol=0.0051)
