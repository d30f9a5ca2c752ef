"""Datasets: what examples there are, and how each kind of learner sees them.

An example has an id, its row. A view is what one architecture sees of it: its backbone's features,
raw windows, pixels. Files are looked for in the data directory: `--data`, else `LNTRUST_DATA`, else
`~/.local/share/lntrust`.
"""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tokenize import TokenError

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import generator


@dataclass(frozen=True)
class Coded:
    """A view stored as bytes: feature = codes·step + offset. Decoded where it is used, once."""

    codes: Int[ndarray, "N d"]
    step: Float[ndarray, "d"]
    offset: Float[ndarray, "d"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape


View = Coded | Float[ndarray, "N *s"]


def check_finite(where: str, array: ndarray, axis: str = "row") -> None:
    """Refuse NaN and infinity, and say where the first is. `axis` is what the first axis counts."""
    parts = np.array_split(array, 1 + (array.size >> 22))  # a view may fill half of the memory
    if array.dtype.kind != "f" or all(np.isfinite(part).all() for part in parts):
        return
    for row, *place in np.argwhere(~np.isfinite(array)).tolist():
        column = f", column {', '.join(map(str, place))}" if place else ""
        raise LNTrustError(f"{where}: {axis} {row}{column} is {array[row, *place]}; all must be finite")


@dataclass(frozen=True)
class Dataset:
    """All examples of one dataset. `views` loads a view on first use."""

    name: str
    labels: Int[ndarray, "N"]
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]  # one raw input as it would travel in a query
    input_dtype: str  # its numpy dtype
    views: Mapping[str, Callable[[], View]]
    latitude: Float[ndarray, "N"] | None = None
    longitude: Float[ndarray, "N"] | None = None
    subject: Int[ndarray, "N"] | None = None
    segment: Int[ndarray, "N"] | None = None
    official_training: Bool[ndarray, "N"] | None = None  # in the training set of those who published it
    files: tuple[Path, ...] = field(default=())
    _checked: set[str] = field(default_factory=set, init=False, repr=False, compare=False)  # views
    _digests: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)  # by view

    def __post_init__(self) -> None:
        for name, array in (("latitude", self.latitude), ("longitude", self.longitude)):
            if array is not None:
                check_finite(f"{self._file('labels')}dataset {self.name}, {name}", array)

    def view(self, name: str) -> View:
        """What learners with this view see of every example: finite numbers."""
        if name not in self.views:
            there = ", ".join(self.views)
            raise LNTrustError(f"view = {name!r}: {self.name} has no such view; it has {there}")
        view = self.views[name]()
        if name not in self._checked:
            where = f"{self._file(name)}dataset {self.name}, view {name}"
            _check_decoded(where, view) if isinstance(view, Coded) else check_finite(where, view)
            self._checked.add(name)
        return view

    def digest(self, views: Iterable[str]) -> str:
        """A name for what the dataset holds, as far as those see it who have these views."""
        names = sorted(set(views))
        for name in names:
            if name not in self._digests:
                view = self.view(name)
                parts = (view.codes, view.step, view.offset) if isinstance(view, Coded) else (view,)
                self._digests[name] = _digest(*parts)
        where = (self.latitude, self.longitude, self.subject, self.segment)
        named = [self.name, *self.classes, str(self.input_shape), self.input_dtype]
        named += [_digest(self.labels, *where), *(f"{name} {self._digests[name]}" for name in names)]
        return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]

    def _file(self, stem: str) -> str:
        """Which file it is in, for messages; nothing where there is none of this name."""
        return next((f"{path}: " for path in self.files if path.stem == stem), "")


def _check_decoded(where: str, view: Coded) -> None:
    """Its features, without decoding them all: only columns whose largest code would be too much."""
    check_finite(f"{where}, step", view.step, "column")
    check_finite(f"{where}, offset", view.offset, "column")
    with np.errstate(over="ignore"):
        ends = np.float32(np.iinfo(view.codes.dtype).max) * view.step.astype(np.float32) + view.offset
        for column in np.flatnonzero(~np.isfinite(ends)).tolist():
            decoded = view.codes[:, column] * view.step[column].astype(np.float32) + view.offset[column]
            check_finite(f"{where}, column {column}", decoded)


def _digest(*arrays: ndarray | None) -> str:
    made = hashlib.sha256()
    for array in arrays:
        made.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode())
        if array is not None:
            made.update(np.ascontiguousarray(array).data)
    return made.hexdigest()


BACKBONES = ("mobilenet_v2", "efficientnet_b0")

# Files of each dataset under the data directory; digits is embedded in scikit-learn.
_CODED = ("labels.npz", *(f"{backbone}.npz" for backbone in BACKBONES))
FILES: dict[str, tuple[str, ...]] = {
    "digits": (), "cifar10": _CODED, "cifar100": _CODED, "eurosat": _CODED, "uci_har": ("windows.npz",),
}  # fmt: skip


def data_directory(given: str | Path | None = None) -> Path:
    """Where data is looked for: the given folder, `LNTRUST_DATA`, or the user's data folder."""
    return Path(given or os.environ.get("LNTRUST_DATA") or Path.home() / ".local" / "share" / "lntrust")


def missing_files(name: str, directory: Path) -> list[Path]:
    """The files of a dataset that are not there."""
    paths = [directory / name / file for file in FILES[name]]
    return [path for path in paths if not path.is_file()]


def load_dataset(name: str, directory: str | Path | None = None) -> Dataset:
    """A dataset by name. A missing file is an error that says how to get it."""
    if name == "digits":
        return _digits()
    folder = data_directory(directory)
    missing = missing_files(name, folder)
    if missing:
        raise LNTrustError(
            f"dataset {name}: {missing[0]} is not there.\n{how_to_get(name, folder)}\n"
            "If you have the files elsewhere, name their folder with --data or LNTRUST_DATA."
        )
    return _windows(folder / name) if name == "uci_har" else _features(name, folder / name)


def how_to_get(name: str, folder: Path) -> str:
    """The commands that bring a dataset."""
    images = f"{name}-raw"
    # EuroSAT's images do not carry their positions: a table of file,latitude,longitude does.
    positions = " --coordinates eurosat-positions.csv" if name == "eurosat" else ""
    hows = [""] if name == "uci_har" else [f" --backbone {backbone}{positions}" for backbone in BACKBONES]
    extracts = [f"lntrust data extract {name} --images {images}{how} --data {folder}" for how in hows]
    return "\n  ".join(["To get it, run:", f"lntrust data download {name} --to {images}", *extracts])


# What numpy and zipfile raise for damaged archives, and for files of other kinds.
_UNREADABLE = (
    OSError, ValueError, EOFError, TypeError, SyntaxError, NotImplementedError, RuntimeError,
    zipfile.BadZipFile, zlib.error, TokenError,
)  # fmt: skip


def read_archive(path: Path, *names: str) -> dict[str, ndarray]:
    """The arrays of an npz file, in which these must be."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            absent = [name for name in names if name not in archive.files]
            if absent:
                raise LNTrustError(f"{path}: holds {archive.files}, not {absent[0]!r}")
            return {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        raise LNTrustError(f"{path}: not a readable npz archive: {error}") from None


def _integers(path: Path, table: dict[str, ndarray], name: str, rows: int) -> Int[ndarray, "N"]:
    """A column as whole numbers; NaN would become one that nobody wrote."""
    column = table[name]
    if column.shape != (rows,):
        raise LNTrustError(
            f"{path}: {name} has shape {column.shape}; must be one number for each of {rows} rows"
        )
    check_finite(f"{path}: dataset {path.parent.name}, {name}", column)
    return column.astype(np.int64)


def _labels(path: Path, table: dict[str, ndarray], classes: int, rows: int) -> Int[ndarray, "N"]:
    labels = _integers(path, table, "y", rows)
    if rows and not 0 <= labels.min() <= labels.max() < classes:
        ends = f"{labels.min()} to {labels.max()}"
        raise LNTrustError(f"{path}: y runs from {ends}; labels must be 0…{classes - 1}")
    return labels


def _features(name: str, folder: Path) -> Dataset:
    """CIFAR or EuroSAT: labels and quantised backbone features."""
    path, on_earth = folder / "labels.npz", name == "eurosat"
    table = read_archive(path, "y", *(("latitude", "longitude") if on_earth else ()))
    names = table.get("classes", [f"class {c}" for c in range(100 if name == "cifar100" else 10)])
    side, rows = 64 if on_earth else 32, len(table["y"])
    labels = _labels(path, table, len(names), rows)
    return Dataset(
        name=name,
        labels=labels,
        classes=tuple(map(str, names)),
        input_shape=(side, side, 3),
        input_dtype="uint8",
        views={b: cache(partial(_codes, folder / f"{b}.npz", rows)) for b in BACKBONES},
        latitude=table["latitude"].astype(np.float64) if on_earth else None,
        longitude=table["longitude"].astype(np.float64) if on_earth else None,
        official_training=None if on_earth else _official_training(path, table, labels),
        files=tuple(folder / file for file in FILES[name]),
    )


def _official_training(
    path: Path, table: dict[str, ndarray], labels: Int[ndarray, "N"]
) -> Bool[ndarray, "N"]:
    """CIFAR's training set. Where nobody knows it any more, five in six of each class, always the same."""
    if "official_test" in table:
        return np.asarray(_integers(path, table, "official_test", len(labels)) == 0)
    training, rng = np.zeros(len(labels), dtype=bool), generator(0, "partition")
    for c in np.unique(labels):
        of_class = rng.permutation(np.flatnonzero(labels == c))
        training[of_class[: len(of_class) * 5 // 6]] = True
    return training


def _codes(path: Path, rows: int) -> Coded:
    table = read_archive(path, "codes", "step", "offset")
    codes, step, offset = table["codes"], table["step"], table["offset"]
    if codes.dtype != np.uint8 or codes.ndim != 2 or len(codes) != rows:
        raise LNTrustError(f"{path}: codes is {codes.dtype}{list(codes.shape)}; must be uint8[{rows}, d]")
    if not step.shape == offset.shape == codes.shape[1:]:
        what = f"must have one value for each of {codes.shape[1]} features"
        raise LNTrustError(f"{path}: step and offset {what}")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused
        return Coded(codes, step.astype(np.float32), offset.astype(np.float32))


def _windows(folder: Path) -> Dataset:
    """UCI HAR: windows of motion, each channel brought to about unit scale."""
    path = folder / "windows.npz"
    table = read_archive(path, "x", "y", "subject", "segment", "classes")
    if table["x"].ndim != 3 or table["x"].shape[1] != 9:
        raise LNTrustError(f"{path}: x has shape {table['x'].shape}; must be [N, 9, samples]")
    x = table["x"].astype(np.float32)
    check_finite(f"{path}: dataset uci_har, view windows", x)
    classes = tuple(map(str, table["classes"]))
    # Accelerations are in g and rotations in rad/s: fixed scales, known before any data is seen.
    scale = np.array([0.2] * 3 + [0.5] * 6, dtype=np.float32)[None, :, None]
    return Dataset(
        name="uci_har",
        labels=_labels(path, table, len(classes), len(x)),
        classes=classes,
        input_shape=tuple(x.shape[1:]),
        input_dtype="float16",
        views={"windows": lambda: x / scale},
        subject=_integers(path, table, "subject", len(x)),
        segment=_integers(path, table, "segment", len(x)),
        files=(path,),
    )


def _digits() -> Dataset:
    """Scikit-learn's digits: 1,797 images of 8×8 pixels with 17 grey levels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    pixels = (x / 16.0).astype(np.float32)
    return Dataset(
        name="digits",
        labels=y.astype(np.int64),
        classes=tuple(str(c) for c in range(10)),
        input_shape=(8, 8),
        input_dtype="uint8",
        views={"pixels": lambda: pixels, "image": lambda: pixels.reshape(-1, 1, 8, 8)},
    )
