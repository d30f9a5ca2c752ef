"""A live node's own data: inputs as they travel, labels that stay, and what each example is for."""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Bool, Int, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import load_object
from lntrust.core.randomness import generator
from lntrust.fleet.logs import event, why
from lntrust.fleet.settings import InputSettings, NodeSettings
from lntrust.world.data.datasets import check_finite, read_archive


@dataclass(frozen=True)
class Seen:
    """What the node used which inputs for, as digests: it validates on none that it has learned from."""

    learned: Int[ndarray, "_"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    withheld: Int[ndarray, "_"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class NodeData:
    """All examples of one node, by row: training, then validation, then the unlabelled shard."""

    inputs: Shaped[ndarray, "N *s"]
    labels: Int[ndarray, "N"]  # −1 for the shard
    train: Int[ndarray, "_"]
    validation: Int[ndarray, "_"]
    shard: Int[ndarray, "_"]
    before: Seen = field(default_factory=Seen)

    @cached_property
    def seen(self) -> Seen:
        """Before this start, and from now on."""
        digests = _digests(self.inputs)
        learned = np.union1d(self.before.learned, digests[self.train])
        return Seen(learned, np.unique(digests[self.validation]))

    @cached_property
    def fingerprint(self) -> str:
        """Changes when an example does."""
        text = sha256(self.inputs.tobytes())
        for ids in (self.labels, self.train, self.validation, self.shard):
            text.update(ids.astype(np.int64).tobytes())
        return text.hexdigest()[:16]


def load_data(settings: NodeSettings, before: Seen | None = None) -> NodeData:
    """What NODE.toml names under [data], checked against [input]."""
    s, wanted, before = settings.data, settings.input, before or Seen()
    x, y = _labelled(s.labelled, "data.labelled", wanted)
    held = np.zeros(len(x), dtype=bool)
    if s.probe_with == "validation":
        held = _withheld(_digests(x), settings, before)
    probe_x, probe_y, shard_x = x[held], y[held], x[:0]
    if s.probe_with not in ("validation", "none"):
        probe_x, probe_y = _labelled(s.probe_with, "data.probe_with", wanted)
    if s.shard != "none":
        shard_x = _inputs(read_table(s.shard, "data.shard")["x"], "data.shard", wanted)
    if held.all():
        raise LNTrustError(f"data.labelled = {s.labelled!r}: has no example to train on")
    inputs = np.concatenate([x[~held], probe_x, shard_x])
    labels = np.concatenate([y[~held], probe_y, np.full(len(shard_x), -1)])
    ends = np.cumsum([np.sum(~held), len(probe_x)])
    train, validation, shard = np.split(np.arange(len(inputs)), ends)
    return NodeData(inputs, labels, train, validation, shard, before)


def _digests(inputs: Shaped[ndarray, "N *s"]) -> Int[ndarray, "N"]:
    """A number for each input, the same wherever it stands."""
    return np.frombuffer(b"".join(sha256(row.tobytes()).digest()[:8] for row in inputs), dtype="<i8")


def _withheld(digests: Int[ndarray, "N"], settings: NodeSettings, before: Seen) -> Bool[ndarray, "N"]:
    """Which labelled examples are for validation: the same ones at every start, and with more of them, too.

    Those that the model has learned from would flatter it. Only if there are no others they have to do.
    """
    size, fraction = len(digests), settings.data.val_fraction
    count = round(fraction * size)
    if not 0 < count < size:
        withheld = f"{count} of {size} labelled examples would be withheld; must leave some on both sides"
        raise LNTrustError(f"data.val_fraction = {fraction}: {withheld}")
    order = generator(settings.seed, "partition").permutation(size)
    again = np.isin(digests[order], before.withheld)
    fair = order[again | ~np.isin(digests[order], before.learned)]
    if len(fair):
        order = fair[np.argsort(~np.isin(digests[fair], before.withheld), kind="stable")]  # they come first
    else:
        event("validation flatters", level=logging.WARNING, note="the model has learned from all labels")
    return np.isin(np.arange(size), order[:count])


def _labelled(source: str, field: str, wanted: InputSettings) -> tuple[ndarray, ndarray]:
    table = read_table(source, field)
    if "y" not in table:
        raise LNTrustError(f"{field} = {source!r}: has no labels, y")
    x, y = _inputs(table["x"], field, wanted), np.asarray(table["y"])
    if y.shape != (len(x),):
        raise LNTrustError(f"{field}: y has shape {list(y.shape)}, for {len(x)} inputs")
    return x, as_labels(y, field, wanted.classes)


def as_labels(y: ndarray, field: str, classes: tuple[str, ...]) -> Int[ndarray, "m"]:
    """Numbers as they are, names by their place in the list of classes."""
    if y.dtype.kind in "iu":
        bad = y[(y < 0) | (y >= len(classes))]
        if len(bad):
            raise LNTrustError(f"{field}: label {bad[0]} is none of 0…{len(classes) - 1}")
        return y.astype(np.int64)
    place = {name: number for number, name in enumerate(classes)}
    try:
        return np.array([place[str(name)] for name in y], dtype=np.int64)
    except KeyError as error:
        raise LNTrustError(f"{field}: label {error} is none of {', '.join(classes)}") from None


def _inputs(x: Any, field: str, wanted: InputSettings) -> Shaped[ndarray, "m *s"]:
    """Inputs of the fleet's shape and dtype, also from flat rows. Numbers are never changed in silence."""
    x = np.asarray(x)
    if x.ndim == 2 and x.shape[1] == prod(wanted.shape):
        x = x.reshape(len(x), *wanted.shape)
    inputs = as_inputs(x, wanted, f"{field}: inputs")
    check_finite(f"{field}: x", inputs)
    return inputs


def as_inputs(
    x: Shaped[ndarray, "m *s"], wanted: InputSettings, blamed: str = "inputs"
) -> Shaped[ndarray, "m *s"]:
    """These inputs in the dtype that travels; an error if the shape differs, or if numbers would."""
    if x.shape[1:] != wanted.shape or not x.ndim:
        shape = ", ".join(map(str, wanted.shape))
        raise LNTrustError(f"{blamed} have shape {list(x.shape)}; must be [m, {shape}]")
    if x.dtype == wanted.dtype:
        return x
    if x.dtype.kind not in "biuf":
        raise LNTrustError(f"{blamed} are {x.dtype}; must be {wanted.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        cast = x.astype(wanted.dtype)
    if not _same_numbers(x, cast):
        raise LNTrustError(f"{blamed} are {x.dtype}, and as {wanted.dtype} their numbers would change")
    return cast


def _same_numbers(x: ndarray, cast: ndarray) -> bool:
    """Whether a cast has kept every number. Between floats rounding is no surprise; infinity would be."""
    kinds = {x.dtype.kind, cast.dtype.kind}
    if kinds == {"f"}:
        return np.array_equal(np.isfinite(x), np.isfinite(cast))
    if "f" not in kinds or "b" in kinds:
        return np.array_equal(x, cast)
    # What lies outside an integer's range comes out of a cast as anything: that is looked at first.
    floats, whole = (x, cast) if x.dtype.kind == "f" else (cast, x)
    value, limits = floats.astype(np.float64), np.iinfo(whole.dtype)
    fits = (value >= limits.min) & (value < float(limits.max) + 1)
    return bool(fits.all()) and np.array_equal(cast.astype(x.dtype), x)


def read_table(source: str, field: str) -> dict[str, Any]:
    """The columns x and, where there are labels, y."""
    path = Path(source)
    if path.suffix not in (".npz", ".parquet"):
        return _loaded(source, field)
    try:
        path.stat()
        if path.suffix == ".npz":
            table = read_archive(path)
        else:  # x holds a list of numbers a row (of any depth), y a number or a name
            columns = pq.read_table(path).to_pydict()
            table = {name: np.asarray(values) for name, values in columns.items()}
    except Exception as error:  # broken files fail in many ways
        reason = str(error).removeprefix(f"{path}: ")
        raise LNTrustError(f"{field} = {source!r}: cannot be read: {reason}") from None
    if "x" not in table:
        found = ", ".join(list(table)[:8]) or "nothing"
        wanted = "has no inputs, x (a list of numbers a row)"
        raise LNTrustError(f"{field} = {source!r}: {wanted}; it has {found}")
    return table


def _loaded(source: str, field: str) -> dict[str, Any]:
    """What the user's own function returns: x, or (x, y)."""
    if ":" not in source:
        raise LNTrustError(f"{field} = {source!r}: must be a .npz or .parquet file, or package.module:loader")
    load = load_object(source, field)
    try:
        made = load()
    except Exception as error:  # the function is the user's, and may fail in any way
        raise LNTrustError(f"{field} = {source!r}: failed: {why(error)}") from error
    return dict(zip("xy", made, strict=True)) if isinstance(made, tuple) and len(made) == 2 else {"x": made}
