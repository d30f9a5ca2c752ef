"""A node's first settings: a NODE.toml with every choice explained, and data to try it with."""

import io
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_bytes
from lntrust.core.randomness import generator
from lntrust.fleet.operations.certificates import NAME, NODE_FILES
from lntrust.fleet.settings import REFUSED, NodeSettings, fields_of, parse_node
from lntrust.methods.lntrust.presets import PRESETS

EXAMPLE_CLASSES = tuple("0123456789")
_LABELLED, _SHARD = 120, 300  # examples of one part of the digits
_EXAMPLE_FILES = ("data.npz", "shard.npz", "test.npz")
_DATA = {"labelled": "data.npz", "probe_with": "validation", "shard": "none", "deployed": True}
_PLAIN: dict[str, dict[str, Any]] = {
    "input": {"name": "input", "shape": [64], "dtype": "float32", "classes": ["no", "yes"]},
    "model": {"kind": "mlp"},
    "data": _DATA,
}
_DIGITS: dict[str, dict[str, Any]] = {
    "input": {"name": "input", "shape": [8, 8], "dtype": "uint8", "classes": EXAMPLE_CLASSES},
    "model": {"kind": "mlp", "options": {"hidden": 64, "dropout": 0.2}, "scale": 0.0625},
    "data": {**_DATA, "shard": "shard.npz"},
}
_NOTES = {
    "": "A live node. Every field, with its default: lntrust node settings",
    "data": "Labels never leave this device. Inputs do, if you say so here: neighbours see what they are "
    "asked about.",
    "neighbours": '[[neighbours]]\nname = "camera-2"\naddress = "192.168.1.12:7447"',
    "http.listen": 'a file with a token that clients must show:\ntoken = "token.txt"\nhost:port, or off',
    "trust": "The preset lntrust+best, but for two settings that a live node refuses: `query`, since it "
    "always sends its\ninputs, and `final_rounds`, since it goes on probing with its validation labels. "
    'What each line does, and\nwhat it costs: "Fewer bytes, and safer" in docs/fleet.md. Without them it is '
    "the method as published.",
}


# -- the writer of all NODE.tomls -----------------------------------------------------------------


def write_node(
    folder: Path, settings: Mapping[str, Any], notes: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """Write these settings as the folder's NODE.toml, if a node can be made of them.

    Mappings are tables, lists of mappings [[tables]]. `notes` are comments by field: `input` for a table,
    `input.shape`.
    """
    path = folder / "NODE.toml"
    text = "\n".join(_toml(settings, notes)) + "\n"
    parse_node(text, str(path))
    write_bytes(path, text.encode())
    return path


def _toml(settings: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    tables = {name: each for name, each in settings.items() if isinstance(each, Mapping | list)}
    yield from _comment(notes.get(""))
    yield from _fields({name: each for name, each in settings.items() if name not in tables}, "", notes)
    for name, table in tables.items():
        if isinstance(table, Mapping):
            yield from ("", *_comment(notes.get(name)), f"[{name}]", *_fields(table, f"{name}.", notes))
            continue
        yield from () if table else ("", *_comment(notes.get(name)))
        for each in table:
            yield from ("", f"[[{name}]]", *_fields(each, f"{name}.", notes))


def _comment(text: str | None) -> list[str]:
    lines = (text or "").splitlines()
    return [f"# {line}" for each in lines for line in textwrap.wrap(each, 108, break_on_hyphens=False)]


def _fields(table: Mapping[str, Any], prefix: str, notes: Mapping[str, str]) -> Iterator[str]:
    for name, value in table.items():
        yield from _comment(notes.get(prefix + name))
        yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    """What is no table in JSON is the same in TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_value(each)}' for name, each in value.items())} }}"
    return json.dumps(value, default=str, ensure_ascii=False)


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """A .npz file."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    write_bytes(path, file.getvalue())


# -- a new node -----------------------------------------------------------------------------------


def init_node(
    folder: Path,
    name: str,
    certificates: Path | None,
    neighbours: Sequence[str],
    listen: str,
    http: str,
    example: int | None,
) -> list[Path]:
    """Write the files; returns which. Nothing that is there already is touched."""
    if not NAME.fullmatch(name):
        raise LNTrustError(f"--name {name}: a name has letters, digits, dots, dashes and underscores")
    settings = {
        "name": name,
        **(_PLAIN if example is None else _DIGITS),
        "network": {"listen": listen, "certificates": ".", "choose": "listed"},
        "neighbours": [_neighbour(text) for text in neighbours],
        "http": {"listen": http},
        "life": {"state": "state", "log": "json"},
        "training": {
            "stage1_rounds": 20, "stage2_rounds": 60, "lr": 0.01 if example is None else 0.05, "batch": 32,
        },
        "trust": {name: each for name, each in PRESETS["best"].settings.items() if name not in REFUSED},
    }  # fmt: skip
    copied = {name: certificates / name for name in NODE_FILES} if certificates else {}
    for file in copied.values():
        if not file.is_file():
            raise LNTrustError(f"--certificates {certificates}: has no {file.name}")
    if certificates and certificates.resolve() == folder.resolve():
        copied = {}
    parts = {} if example is None else dict(zip(_EXAMPLE_FILES, example_part(example), strict=True))
    for target in (folder / name for name in ("NODE.toml", *copied, *parts)):
        if target.exists():
            raise LNTrustError(f"{target}: is there already; choose another folder, or take it away first")
    meanings = {path: meaning for path, _, meaning in fields_of(NodeSettings)}
    made = [write_node(folder, settings, meanings | _NOTES)]
    for file_name, source in copied.items():
        write_bytes(folder / file_name, source.read_bytes(), 0o600 if source.suffix == ".key" else 0o644)
    for file_name, arrays in parts.items():
        write_arrays(folder / file_name, **arrays)
    return [*made, *(folder / file_name for file_name in (*copied, *parts))]


def _neighbour(text: str) -> dict[str, str]:
    name, sign, address = text.partition("=")
    if not sign or not NAME.fullmatch(name) or ":" not in address:
        raise LNTrustError(f"--neighbour {text}: must look like NAME=HOST:PORT")
    return {"name": name, "address": address}


def example_part(number: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Part N of scikit-learn's digits: labelled with a taste for two classes, a shard, and a test set.

    Parts are drawn from one shuffle and do not overlap as long as N < 3; beyond, they begin again.
    """
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8).astype(np.uint8)
    order = generator(0, "partition").permutation(len(y))
    size = len(order) // 3
    mine = order[(number % 3) * size : (number % 3 + 1) * size]
    favoured = np.isin(y[mine], [number % 10, (number + 1) % 10])
    first = mine[favoured][: _LABELLED // 2]
    labelled = np.concatenate([first, mine[~favoured][: _LABELLED - len(first)]])
    left = np.setdiff1d(mine, labelled)
    left = left[generator(0, "partition", number).permutation(len(left))]
    shard, test = left[:_SHARD], left[_SHARD:]
    return {"x": images[labelled], "y": y[labelled]}, {"x": images[shard]}, {"x": images[test], "y": y[test]}
