"""What a world looked like, beside its runs: for tables, pictures and pages that are made without the data.

Written once for all runs of a study that share it. Of labels it tells what the nodes themselves know: those
they train and validate on. Test labels are not among them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from lntrust.core.files import write_bytes
from lntrust.experiment.store.identity import fingerprint
from lntrust.experiment.store.schemas import Identity, shared_content
from lntrust.world import Dataset, World
from lntrust.world.partition.splits import class_table

_DECIDING = ("data", "graph", "partition", "population")
_PER_DEGREE = 100  # places on a map are kept to a hundredth of a degree, about a kilometre


def world_file(identity: Identity) -> Path:
    """Where the world of a run is described, below the folder of all runs."""
    parts = {name: identity["study"][name] for name in _DECIDING} | {"seed": identity["seed"]}
    if "content" in identity:  # which the first runs said nothing of
        parts["content"] = {k: v for k, v in shared_content(identity).items() if k != "sources"}
    return Path(identity["study"]["name"], "worlds", f"world-{identity['seed']}-{fingerprint(parts)}.json")


def describe_world(world: World, dataset: Dataset) -> dict[str, Any]:
    """Who is there, who knows whom, and who holds how much of what."""
    p, classes = world.partition, len(world.classes)
    return {
        "classes": list(world.classes),
        "learners": [learner.name for learner in world.study.population.learners],
        "kinds": world.kinds.tolist(),
        "edges": sorted([min(a, b), max(a, b)] for a, b in world.graph.edges),
        "train": class_table(p.train, world.labels, classes).tolist(),
        "validation": class_table(p.validation, world.labels, classes).tolist(),
        "test": p.test.lengths.tolist(),
        "unlabelled": p.shard.lengths.tolist(),
        "centres": None if p.centres is None else p.centres.round(4).tolist(),
        "tiles": _tiles(world, dataset),
    }


def _tiles(world: World, dataset: Dataset) -> dict[str, Any] | None:
    """Where the examples lie whose labels nodes know, in hundredths of a degree."""
    if world.partition.centres is None or dataset.latitude is None or dataset.longitude is None:
        return None
    known = world.partition.train.joined(world.partition.validation)
    places = {"latitude": dataset.latitude, "longitude": dataset.longitude}
    return {
        **{k: np.rint(v[known.values] * _PER_DEGREE).astype(int).tolist() for k, v in places.items()},
        "class": world.labels[known.values].tolist(),
        "node": known.owner.tolist(),
        "per_degree": _PER_DEGREE,
    }


def keep_world(folder: Path, identity: Identity, world: World, dataset: Dataset) -> None:
    """Write the description, unless another run has."""
    path = folder / world_file(identity)
    if not path.is_file():
        write_bytes(path, json.dumps(describe_world(world, dataset), allow_nan=False).encode())
