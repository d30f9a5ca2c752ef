"""The demonstration's folders: data, models, neighbours and certificates of every node."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Int, UInt8
from numpy import ndarray
from torch import Tensor

from lntrust.core.files import write_whole
from lntrust.core.randomness import generator
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.operations.supervisor import free_ports
from lntrust.fleet.settings import load_node

MOST = 8
LABELLED, SHARD, TEST = 80, 70, 50  # examples of a node; eight nodes, and the ONNX model's rows, use up all
ONNX_FILE = "digits.onnx"
STAGE1, STAGE2 = 15, 40
REST = 0.2  # seconds between two rounds: so that there is a middle of the training
_SKEW = 1.0  # the parameter of the Dirichlet distribution behind each node's classes
_SEED = 7


@dataclass(frozen=True)
class Model:
    """What stands under [model], and how tables call it."""

    about: str
    lines: str


def _model(about: str, kind: str, options: str = "", more: str = "") -> Model:
    given = f"options = {{ {options} }}\n" if options else ""
    return Model(about, f"kind = {json.dumps(kind)}\n{given}scale = 0.0625\n{more}")


MODELS = (
    _model("mlp (torch)", "mlp", "hidden = 64, dropout = 0.2"),
    _model("cnn2d (torch)", "cnn2d", "dropout = 0.2", f'view = "{__name__}:as_image"\n'),
    _model("random forest", "forest", "trees = 50"),
    _model("ONNX file, fixed", "onnx", f'file = "{ONNX_FILE}"', "trains = false\n"),
    _model("linear (torch)", "linear", "dropout = 0.2"),
    _model("LogisticRegression", "sklearn.linear_model:LogisticRegression", "max_iter = 500"),
    _model("mlp, small (torch)", "mlp", "hidden = 24, dropout = 0.1"),
    _model("ExtraTrees", "sklearn.ensemble:ExtraTreesClassifier", "n_estimators = 50"),
)

_TEMPLATE = """\
name = {name}
seed = {seed}

[input]
shape = [8, 8]
dtype = "uint8"
classes = {classes}

[model]
{model}
[data]
labelled = "data.npz"
probe_with = "validation"
shard = "shard.npz"

[network]
listen = "127.0.0.1:{port}"
certificates = {certificates}
{neighbours}
[http]
listen = "127.0.0.1:{http}"

[life]
save_every = 2.0
refresh_every = 10.0
rest = {rest}

[training]
stage1_rounds = {stage1}
stage2_rounds = {stage2}
lr = 0.05
batch = 16

[trust]
budget = 70
sample = 70
"""


def as_image(x: Tensor) -> Tensor:
    """One channel, as convolutions want it."""
    return x[:, None]


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


@dataclass(frozen=True)
class Made:
    """One node's place, and what only the supervisor reads: its test set."""

    name: str
    folder: Path
    model: str
    neighbours: tuple[str, ...]
    test_x: UInt8[ndarray, "m 8 8"]
    test_y: Int[ndarray, "m"]


def make(folder: Path, count: int) -> list[Made]:
    """All nodes' folders. Each knows its two neighbours on a ring, and one or two across it."""
    names = [f"node-{i + 1}" for i in range(count)]
    authority = Authority.open(folder / "authority")
    ports = free_ports(2 * count)
    graph = nx.circulant_graph(count, [1, count // 2])
    x, y = digits()
    parts, _ = rows()
    made = []
    for i, name in enumerate(names):
        authority.issue(name, ["127.0.0.1"], days=1)
        around = sorted(graph.neighbors(i))
        place = folder / name
        text = _text(name, i, [(names[j], ports[j]) for j in around], ports[i], ports[count + i])
        write_whole(place / "NODE.toml", lambda temporary, text=text: temporary.write_text(text, "utf-8"))  # type: ignore[misc]
        train, shard, test = np.split(parts[i], [LABELLED, LABELLED + SHARD])
        _save(place / "data.npz", x=x[train], y=y[train])
        _save(place / "shard.npz", x=x[shard])
        if ONNX_FILE in MODELS[i].lines:
            _copy_onnx(place / ONNX_FILE)
        load_node(place)
        made.append(Made(name, place, MODELS[i].about, tuple(names[j] for j in around), x[test], y[test]))
    return made


def _text(name: str, number: int, neighbours: Sequence[tuple[str, int]], port: int, http: int) -> str:
    tables = "".join(f'\n[[neighbours]]\nname = "{n}"\naddress = "127.0.0.1:{p}"\n' for n, p in neighbours)
    return _TEMPLATE.format(
        name=json.dumps(name), seed=number, classes=json.dumps([str(c) for c in range(10)]),
        model=MODELS[number].lines, certificates=json.dumps(f"../authority/{name}"), port=port,
        neighbours=tables, http=http, rest=REST, stage1=STAGE1, stage2=STAGE2,
    )  # fmt: skip


def _copy_onnx(path: Path) -> None:
    data = files("lntrust.fleet.operations").joinpath("assets", ONNX_FILE).read_bytes()
    write_whole(path, lambda temporary: temporary.write_bytes(data))


def _save(path: Path, **arrays: Any) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)
