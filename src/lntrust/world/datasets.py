"""Datasets: what examples there are, and how each kind of learner sees them.

An example has an id, its row. A view is what one architecture sees of it: its backbone's features,
raw windows, pixels. Files are looked for in the data directory: `--data`, else `LNTRUST_DATA`, else
`~/.local/share/lntrust`.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lntrust.errors import LNTrustError


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
    files: tuple[Path, ...] = field(default=())

    def view(self, name: str) -> View:
        if name not in self.views:
            raise LNTrustError(
                f"view = {name!r}: {self.name} has no such view; it has {', '.join(self.views)}"
            )
        return self.views[name]()


BACKBONES = ("mobilenet_v2", "efficientnet_b0")

# Files of each dataset under the data directory; digits is embedded in scikit-learn.
FILES: dict[str, tuple[str, ...]] = {
    "digits": (),
    "cifar10": ("labels.npz", *(f"{b}.npz" for b in BACKBONES)),
    "cifar100": ("labels.npz", *(f"{b}.npz" for b in BACKBONES)),
    "eurosat": ("labels.npz", *(f"{b}.npz" for b in BACKBONES)),
    "uci_har": ("windows.npz",),
}


def data_directory(given: str | Path | None = None) -> Path:
    """Where data is looked for: the given folder, `LNTRUST_DATA`, or the user's data folder."""
    if given:
        return Path(given)
    if os.environ.get("LNTRUST_DATA"):
        return Path(os.environ["LNTRUST_DATA"])
    return Path.home() / ".local" / "share" / "lntrust"


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
    lines = [f"lntrust data download {name} --to {images}"]
    if name == "uci_har":
        lines.append(f"lntrust data extract {name} --images {images} --data {folder}")
    else:
        # EuroSAT's images do not carry their positions: a table of file,latitude,longitude does.
        options = " --coordinates eurosat-positions.csv" if name == "eurosat" else ""
        lines += [
            f"lntrust data extract {name} --images {images} --backbone {b}{options} --data {folder}"
            for b in BACKBONES
        ]
    return "To get it, run:\n  " + "\n  ".join(lines)


# What numpy and zipfile raise for damaged archives, and for files of other kinds.
_UNREADABLE = (
    OSError, ValueError, EOFError, TypeError, SyntaxError, NotImplementedError, RuntimeError,
    zipfile.BadZipFile, zlib.error, TokenError,
)  # fmt: skip


def _read(path: Path, *names: str) -> dict[str, ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            absent = [name for name in names if name not in archive.files]
            if absent:
                raise LNTrustError(f"{path}: holds {archive.files}, not {absent[0]!r}")
            return {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        raise LNTrustError(f"{path}: not a readable npz archive: {error}") from None


def _check_finite(path: Path, **arrays: ndarray) -> None:
    for name, array in arrays.items():
        # float16 sums overflow to inf, so the whole array is looked at; it is read once per run.
        bad = int((~np.isfinite(array)).sum())
        if bad:
            raise LNTrustError(
                f"{path}: {name} has {bad} values that are NaN or infinite; all must be finite"
            )


def _check_labels(path: Path, labels: ndarray, classes: int, rows: int | None = None) -> None:
    if labels.ndim != 1 or (rows is not None and len(labels) != rows):
        raise LNTrustError(f"{path}: y has shape {labels.shape}; must be one label for each of {rows} rows")
    if len(labels) and (int(labels.max()) >= classes or int(labels.min()) < 0):
        raise LNTrustError(
            f"{path}: y runs from {int(labels.min())} to {int(labels.max())}; labels must be 0…{classes - 1}"
        )


def _features(name: str, folder: Path) -> Dataset:
    """CIFAR or EuroSAT: labels and quantised backbone features."""
    path = folder / "labels.npz"
    table = _read(path, "y")
    labels = table["y"].astype(np.int64)
    count = 100 if name == "cifar100" else 10
    names = table.get("classes")
    classes = tuple(map(str, names)) if names is not None else tuple(f"class {c}" for c in range(count))
    _check_labels(path, labels, len(classes), rows=len(labels))
    side = 64 if name == "eurosat" else 32
    where = {}
    if name == "eurosat":
        _read(path, "latitude", "longitude")
        where = {axis: table[axis].astype(np.float64) for axis in ("latitude", "longitude")}
        _check_finite(path, **where)

    def loader(backbone: str) -> Callable[[], View]:
        return lru_cache(maxsize=1)(lambda: _codes(folder / f"{backbone}.npz", len(labels)))

    return Dataset(
        name=name,
        labels=labels,
        classes=classes,
        input_shape=(side, side, 3),
        input_dtype="uint8",
        views={backbone: loader(backbone) for backbone in BACKBONES},
        latitude=where.get("latitude"),
        longitude=where.get("longitude"),
        files=(path, *(folder / f"{b}.npz" for b in BACKBONES)),
    )


def _codes(path: Path, rows: int) -> Coded:
    table = _read(path, "codes", "step", "offset")
    codes, step, offset = table["codes"], table["step"], table["offset"]
    if codes.dtype != np.uint8 or codes.ndim != 2 or len(codes) != rows:
        raise LNTrustError(f"{path}: codes is {codes.dtype}{list(codes.shape)}; must be uint8[{rows}, d]")
    if step.shape != codes.shape[1:] or offset.shape != codes.shape[1:]:
        raise LNTrustError(
            f"{path}: step and offset must have one value for each of {codes.shape[1]} features"
        )
    _check_finite(path, step=step, offset=offset)
    return Coded(codes, step.astype(np.float32), offset.astype(np.float32))


def _windows(folder: Path) -> Dataset:
    """UCI HAR: windows of motion, each channel brought to about unit scale."""
    path = folder / "windows.npz"
    table = _read(path, "x", "y", "subject", "segment", "classes")
    if table["x"].ndim != 3 or table["x"].shape[1] != 9:
        raise LNTrustError(f"{path}: x has shape {table['x'].shape}; must be [N, 9, samples]")
    for name in ("subject", "segment"):
        if table[name].shape != table["x"].shape[:1]:
            raise LNTrustError(f"{path}: {name} has shape {table[name].shape}; x has {len(table['x'])} rows")
    x = table["x"].astype(np.float32)
    _check_finite(path, x=x)
    classes = tuple(map(str, table["classes"]))
    labels = table["y"].astype(np.int64)
    _check_labels(path, labels, len(classes), rows=len(x))
    # Accelerations are in g and rotations in rad/s: fixed scales, known before any data is seen.
    scale = np.array([0.2] * 3 + [0.5] * 3 + [0.5] * 3, dtype=np.float32)[None, :, None]
    return Dataset(
        name="uci_har",
        labels=labels,
        classes=classes,
        input_shape=tuple(x.shape[1:]),
        input_dtype="float16",
        views={"windows": lambda: x / scale},
        subject=table["subject"].astype(np.int64),
        segment=table["segment"].astype(np.int64),
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
