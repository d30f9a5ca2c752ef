"""The demonstration's nodes: data, models, neighbours and certificates of each, in a folder of its own."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Int, UInt8
from numpy import ndarray

from examples.fleet_demo.supervisor import free_ports
from lntrust.core.randomness import generator
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.operations.init import EXAMPLE_CLASSES, write_arrays, write_node

MOST = 8
LABELLED, SHARD, TEST = 80, 70, 50  # examples of a node; eight nodes, and the ONNX model's rows, use up all
ONNX_FILE = Path(__file__).with_name("digits.onnx")
STAGE1, STAGE2 = 15, 40
REST = 0.2  # seconds between two rounds: so that there is a middle of the training
_SKEW = 1.0  # the parameter of the Dirichlet distribution behind each node's classes
_SEED = 7

MODELS: dict[str, dict[str, Any]] = {
    "mlp (torch)": {"kind": "mlp", "options": {"hidden": 64, "dropout": 0.2}},
    "cnn2d (torch)": {
        "kind": "cnn2d", "options": {"dropout": 0.2}, "view": "lntrust.fleet.settings:one_channel",
    },
    "random forest": {"kind": "forest", "options": {"trees": 50}},
    "ONNX file, fixed": {"kind": "onnx", "options": {"file": ONNX_FILE.name}, "trains": False},
    "linear (torch)": {"kind": "linear", "options": {"dropout": 0.2}},
    "LogisticRegression": {
        "kind": "sklearn.linear_model:LogisticRegression", "options": {"max_iter": 500},
    },
    "mlp, small (torch)": {"kind": "mlp", "options": {"hidden": 24, "dropout": 0.1}},
    "ExtraTrees": {"kind": "sklearn.ensemble:ExtraTreesClassifier", "options": {"n_estimators": 50}},
}  # fmt: skip


@dataclass(frozen=True)
class DemoNode:
    """One node's folder, and what only the supervisor reads: its test set."""

    name: str
    folder: Path
    model: str
    test_x: UInt8[ndarray, "m 8 8"]
    test_y: Int[ndarray, "m"]


def make_nodes(folder: Path, count: int, rest: float = REST, stage2: int = STAGE2) -> list[DemoNode]:
    """All nodes' folders. Each knows its two neighbours on a ring, and one or two across it."""
    names = [f"node-{i + 1}" for i in range(count)]
    authority = Authority.open(folder / "authority")
    ports = free_ports(2 * count)
    graph = nx.circulant_graph(count, [1, count // 2])
    (x, y), (parts, _) = digits(), rows()
    made = []
    for i, (name, model) in enumerate(zip(names, MODELS, strict=False)):
        authority.issue(name, ["127.0.0.1"], days=1)
        settings = {
            "name": name,
            "seed": i,
            "input": {"shape": [8, 8], "dtype": "uint8", "classes": EXAMPLE_CLASSES},
            "model": {**MODELS[model], "scale": 0.0625},
            "data": {"labelled": "data.npz", "probe_with": "validation", "shard": "shard.npz"},
            "network": {"listen": f"127.0.0.1:{ports[i]}", "certificates": f"../authority/{name}"},
            "neighbours": [
                {"name": names[j], "address": f"127.0.0.1:{ports[j]}"} for j in sorted(graph.neighbors(i))
            ],
            "http": {"listen": f"127.0.0.1:{ports[count + i]}"},
            "life": {"save_every": 2.0, "refresh_every": 10.0, "rest": rest},
            "training": {"stage1_rounds": STAGE1, "stage2_rounds": stage2, "lr": 0.05, "batch": 16},
            "trust": {"budget": 70, "sample": 70},
        }
        place = write_node(folder / name, settings).parent
        train, shard, test = np.split(parts[i], [LABELLED, LABELLED + SHARD])
        write_arrays(place / "data.npz", x=x[train], y=y[train])
        write_arrays(place / "shard.npz", x=x[shard])
        if MODELS[model]["kind"] == "onnx":
            shutil.copy(ONNX_FILE, place)
        made.append(DemoNode(name, place, model, x[test], y[test]))
    return made


def digits() -> tuple[UInt8[ndarray, "N 8 8"], Int[ndarray, "N"]]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x.reshape(-1, 8, 8).astype(np.uint8), y.astype(np.int64)


def rows() -> tuple[list[Int[ndarray, "m"]], Int[ndarray, "r"]]:
    """The rows of each of the eight nodes, each with a taste for classes; and the ONNX model's, of all kinds.

    Nodes take turns. Each draws a class by its own taste, and takes the next row of that class.
    """
    _, y = digits()
    rng = generator(_SEED, "partition")
    size = LABELLED + SHARD + TEST
    dealt, apart = np.split(rng.permutation(len(y)), [MOST * size])
    left = [dealt[y[dealt] == c].tolist() for c in range(10)]
    tastes = rng.dirichlet(np.full(10, _SKEW), size=MOST)
    mine: list[list[int]] = [[] for _ in range(MOST)]
    for turn in range(MOST * size):
        there = np.array([len(of_class) > 0 for of_class in left])
        taste = (tastes[turn % MOST] + 1e-9) * there
        mine[turn % MOST].append(left[rng.choice(10, p=taste / taste.sum())].pop())
    return [rng.permutation(each) for each in mine], apart
