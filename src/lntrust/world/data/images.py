"""Raw images and windows of motion, as their authors publish them.

Labels are read at once and pixels in batches: a run can then be checked against what is already
extracted before the slow part, and a dataset need not fit in memory.
"""

import csv
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, UInt8
from numpy import ndarray

from lntrust.core.errors import LNTrustError

Pixels = UInt8[ndarray, "b h w 3"]


@dataclass(frozen=True)
class RawImages:
    """All images of one dataset, in a fixed order. `batches(size)` starts over on each call."""

    table: dict[str, ndarray]  # y [N], classes [C] and what else labels.npz holds
    batches: Callable[[int], Iterator[Pixels]]

    def __len__(self) -> int:
        return len(self.table["y"])


def read_images(name: str, directory: Path, coordinates: Path | None = None) -> RawImages:
    """The raw images of a dataset, found anywhere under a folder."""
    if not directory.is_dir():
        raise LNTrustError(f"{directory}: is not a folder; name the one the images are in")
    if name == "eurosat":
        return _eurosat(directory, coordinates)
    if name not in _CIFAR:
        known = ", ".join([*_CIFAR, "eurosat"])
        raise LNTrustError(f"dataset {name!r}: has no raw images; must be one of {known}")
    if coordinates is not None:
        raise LNTrustError(f"coordinates = {coordinates}: {name} has none; only eurosat has")
    return _cifar(_CIFAR[name], directory)


# --- CIFAR -----------------------------------------------------------------------------------

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


class _Binary(NamedTuple):
    """One CIFAR's binary version: rows of label bytes, then red, green and blue planes."""

    train: tuple[str, ...]
    test: str
    names: str
    classes: int
    label_bytes: int  # the last of them is the label


_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_CIFAR = {
    "cifar10": _Binary(_BATCHES, "test_batch.bin", "batches.meta.txt", classes=10, label_bytes=1),
    "cifar100": _Binary(("train.bin",), "test.bin", "fine_label_names.txt", classes=100, label_bytes=2),
}


def _cifar(kind: _Binary, directory: Path) -> RawImages:
    """Training files first, the official test file last."""
    folder = _folder_of(kind.test, directory)
    for file in (kind.names, *kind.train):
        if not (folder / file).is_file():
            raise LNTrustError(f"{folder / file}: is not there; {kind.test} beside it is")
    classes = (folder / kind.names).read_text(encoding="utf-8", errors="replace").split()
    if len(classes) != kind.classes:
        raise LNTrustError(f"{folder / kind.names}: has {len(classes)} class names; must be {kind.classes}")
    files = [_rows(folder / file, kind) for file in (*kind.train, kind.test)]
    labels = np.concatenate([rows[:, kind.label_bytes - 1] for rows in files])

    def batches(size: int) -> Iterator[Pixels]:
        for rows in files:
            for start in range(0, len(rows), size):
                planes = rows[start : start + size, kind.label_bytes :].reshape(-1, 3, _SIDE, _SIDE)
                yield np.ascontiguousarray(planes.transpose(0, 2, 3, 1))

    official_test = np.arange(len(labels)) >= len(labels) - len(files[-1])
    return RawImages({"y": labels, "classes": np.array(classes), "official_test": official_test}, batches)


def _folder_of(file: str, directory: Path) -> Path:
    """The one folder, at or below this one, that holds the file."""
    folders = sorted(path.parent for path in directory.rglob(file))
    if len(folders) != 1:
        where = " and in ".join(map(str, folders[:2]))
        where = f"is in {where}; name one of them" if folders else "is in no folder of it"
        raise LNTrustError(f"{directory}: {file} {where}")
    return folders[0]


def _rows(path: Path, kind: _Binary) -> UInt8[ndarray, "n row"]:
    row, size = kind.label_bytes + _PIXELS, path.stat().st_size
    if size == 0 or size % row:
        what = "the file is cut short, or not the binary version"
        raise LNTrustError(f"{path}: has {size} bytes; must be whole rows of {row}: {what}")
    rows = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, row)
    most = rows[:, kind.label_bytes - 1].max()
    if most >= kind.classes:
        what = "this is not the binary version, or it is damaged"
        raise LNTrustError(f"{path}: label {most}; must be 0…{kind.classes - 1}: {what}")
    return rows


# --- EuroSAT ---------------------------------------------------------------------------------

_TILE = 64
_SUFFIXES = (".jpg", ".jpeg", ".png")


def _eurosat(directory: Path, coordinates: Path | None) -> RawImages:
    """One folder per class; files in the order of their names, as strings."""
    if coordinates is None:
        what = "name a CSV with columns file,latitude,longitude with --coordinates"
        raise LNTrustError(f"eurosat: the images do not carry their positions; {what}")
    root, paths = _class_folders(directory)
    classes, labels = np.unique([path.parent.name for path in paths], return_inverse=True)
    where = _positions(coordinates, paths)

    def batches(size: int) -> Iterator[Pixels]:
        for start in range(0, len(paths), size):
            yield np.stack([_tile(path) for path in paths[start : start + size]])

    files = np.array([path.relative_to(root).as_posix() for path in paths])
    table = {"y": labels.astype(np.uint8), "classes": classes, "files": files}
    return RawImages(table | {"latitude": where[:, 0].copy(), "longitude": where[:, 1].copy()}, batches)


def _class_folders(directory: Path) -> tuple[Path, list[Path]]:
    """The folder that holds the class folders, and every image in them, sorted."""
    every = (path for path in directory.rglob("*") if path.suffix.lower() in _SUFFIXES)
    # "._x.jpg" is what some archivers add for a file x.jpg; it is not an image.
    paths = [path for path in every if not path.name.startswith(".")]
    if not paths:
        raise LNTrustError(f"{directory}: holds no {', '.join(_SUFFIXES)} file in any folder")
    roots = sorted({path.parent.parent for path in paths})
    if len(roots) > 1:
        raise LNTrustError(f"{directory}: there are class folders in {roots[0]} and in {roots[1]}; name one")
    if len({path.parent for path in paths}) < 2:
        what = "name the folder above it, with one folder for each class"
        raise LNTrustError(f"{paths[0].parent}: is the only folder of images; {what}")
    return roots[0], sorted(paths, key=lambda path: path.relative_to(roots[0]).as_posix())


def _tile(path: Path) -> UInt8[ndarray, "64 64 3"]:
    try:
        from PIL import Image
    except ImportError:
        raise LNTrustError('reading images needs Pillow: pip install "lntrust[extract]"') from None
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise LNTrustError(f"{path}: not a readable image: {error}") from None
    if pixels.shape != (_TILE, _TILE, 3):
        raise LNTrustError(f"{path}: is {pixels.shape[1]}×{pixels.shape[0]}; must be {_TILE}×{_TILE} pixels")
    return pixels


def _positions(table: Path, paths: Sequence[Path]) -> Float32[ndarray, "N 2"]:
    """Latitude and longitude of each image: of "class/name", or of "name", as the table has it.

    Without the suffix: tables made from the georeferenced release name the same tiles as .tif.
    """
    known: dict[str, tuple[float, float]] = {}
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            absent = {"file", "latitude", "longitude"} - set(reader.fieldnames or ())
            if absent:
                raise LNTrustError(f"{table}: has no column {', '.join(sorted(absent))}")
            for row in reader:
                place = f"{table}, line {reader.line_num}"
                *parent, name = (row["file"] or "").strip().replace("\\", "/").split("/")[-2:]
                position = _degrees(row, "latitude", 90, place), _degrees(row, "longitude", 180, place)
                if known.setdefault("/".join([*parent, Path(name).stem]), position) != position:
                    raise LNTrustError(f"{place}: a second position for {row['file']}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LNTrustError(f"{table}: not a readable CSV file: {error}") from None
    found = [known.get(f"{p.parent.name}/{p.stem}", known.get(p.stem)) for p in paths]
    for path, there in zip(paths, found, strict=True):
        if there is None:
            raise LNTrustError(f"{table}: no row for {path.parent.name}/{path.name}")
    return np.array(found, dtype=np.float32)


def _degrees(row: dict[str, str | None], name: str, limit: int, place: str) -> float:
    try:
        value = float(row[name] or "")
    except ValueError:
        value = math.nan
    if not abs(value) <= limit:
        raise LNTrustError(f"{place}: {name} = {row[name]!r}; must be degrees, −{limit}…{limit}")
    return value


# --- UCI HAR ---------------------------------------------------------------------------------

_SIGNALS = tuple(f"{s}_{axis}" for s in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
_WINDOW = 128


def read_windows(directory: Path) -> dict[str, ndarray]:
    """UCI HAR's text files, found anywhere under a folder: x [N, 9, 128], y, subject and classes.

    The training people's windows come first; subjects and classes count from 0.
    """
    folder = _folder_of("activity_labels.txt", directory)
    names = folder / "activity_labels.txt"
    rows = [line.split() for line in names.read_text(errors="replace").splitlines() if line.strip()]
    if not rows or [row[0] for row in rows] != [str(i + 1) for i in range(len(rows))]:
        raise LNTrustError(f'{names}: must be lines "1 NAME", "2 NAME" and so on')
    sides = [_har_side(folder, side, len(rows)) for side in ("train", "test")]
    x, y, subject = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    classes = np.array([" ".join(row[1:]).lower() for row in rows])
    return {"x": x, "y": y, "subject": subject, "classes": classes}


def _har_side(root: Path, side: str, classes: int) -> tuple[ndarray, ndarray, ndarray]:
    """Windows, labels and subjects of the training or the test people."""
    y = _numbers(root / side / f"y_{side}.txt", rows=None, limit=classes)
    subject = _numbers(root / side / f"subject_{side}.txt", rows=len(y), limit=256)
    x = np.empty((len(y), len(_SIGNALS), _WINDOW), dtype=np.float16)
    for channel, signal in enumerate(_SIGNALS):
        path = root / side / "Inertial Signals" / f"{signal}_{side}.txt"
        values = _text(path)
        if values.shape != (len(y), _WINDOW):
            raise LNTrustError(f"{path}: has shape {values.shape}; must be {(len(y), _WINDOW)}")
        if not (np.abs(values) < np.finfo(np.float16).max).all():
            raise LNTrustError(f"{path}: has values that are NaN, infinite or beyond float16")
        x[:, channel] = values
    return x, y, subject


def _numbers(path: Path, rows: int | None, limit: int) -> UInt8[ndarray, "N"]:
    """One number from 1 per line, made to count from 0."""
    values = _text(path)
    if values.shape[1] != 1 or (rows is not None and len(values) != rows):
        raise LNTrustError(f"{path}: has shape {values.shape}; must be one number for each window")
    valid = (values >= 1) & (values <= limit) & (values == np.rint(values))
    if not valid.all():
        raise LNTrustError(f"{path}: has {values[~valid][0]}; must be whole numbers, 1…{limit}")
    return (values[:, 0] - 1).astype(np.uint8)


def _text(path: Path) -> Float64[ndarray, "n k"]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of an empty file, which is an error here
            values = np.loadtxt(path, dtype=np.float64, ndmin=2)
    except (OSError, ValueError) as error:
        raise LNTrustError(f"{path}: not a readable table of numbers: {error}") from None
    if not values.size:
        raise LNTrustError(f"{path}: is empty")
    return values
