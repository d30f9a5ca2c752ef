"""Small raw datasets, as their authors pack them."""

from pathlib import Path

import numpy as np
from numpy import ndarray
from PIL import Image


def random_pixels(count: int, side: int, seed: int = 0) -> ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def write_cifar(folder: Path, fine: bool = False, each: int = 3, seed: int = 0) -> tuple[ndarray, ndarray]:
    """CIFAR-10, or CIFAR-100 with its coarse labels, with so many images a file; their pixels and labels."""
    folder.mkdir(parents=True)
    files = ["train", "test"] if fine else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    classes = 100 if fine else 10
    pixels = random_pixels(len(files) * each, 32, seed)
    labels = ((np.arange(len(pixels)) + seed) * 7 % classes).astype(np.uint8)
    columns = [labels // 5, labels] if fine else [labels]
    rows = np.hstack([np.stack(columns, axis=1), pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)])
    for i, name in enumerate(files):
        rows[i * each : (i + 1) * each].tofile(folder / f"{name}.bin")
    names = "\n".join(f"kind{i}" for i in range(classes))
    (folder / ("fine_label_names.txt" if fine else "batches.meta.txt")).write_text(f"{names}\n\n")
    return pixels, labels


TILES = ("Forest/Forest_2.png", "Forest/Forest_10.png", "River/River_1.jpg")
ROWS = ("Forest/Forest_2.png,50.5,8.25", "Forest_10.tif,51,9", "River/River_1.jpg,-40.0,-3")


def write_eurosat(folder: Path) -> dict[str, ndarray]:
    """Two classes; PNG and JPEG; the pixels as a reader gets them."""
    for name in TILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random_pixels(1, 64, seed=len(name))[0]).save(folder / name)
    return {name: np.array(Image.open(folder / name)) for name in TILES}


def write_positions(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["file,latitude,longitude", *(rows or ROWS)]) + "\n")
    return path


SIGNALS = [f"{s}_{axis}" for s in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]
ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "DOWN", "SITTING", "STANDING", "LAYING")


def chain(windows: int, seed: int) -> ndarray:
    """Half-overlapping windows of one recording, [windows, 9, 128]."""
    signal = np.random.default_rng(seed).normal(size=(9, 64 * (windows + 1)))
    return np.stack([signal[:, 64 * i : 64 * i + 128] for i in range(windows)])


def write_har(folder: Path) -> tuple[ndarray, list[int], list[int]]:
    """Two recordings of subject 1 shuffled together, one of 2; one of 30 on the test side."""
    one, two, three, four = chain(3, 0), chain(2, 1), chain(1, 2), chain(2, 3)
    train = np.stack([two[1], one[0], one[2], two[0], one[1], three[0]])
    sides = {"train": (train, [1, 5, 5, 1, 5, 6], [1, 1, 1, 1, 1, 2]), "test": (four, [2, 2], [30, 30])}
    for side, (x, y, subject) in sides.items():
        (folder / side / "Inertial Signals").mkdir(parents=True)
        for channel, signal in enumerate(SIGNALS):
            path = folder / side / "Inertial Signals" / f"{signal}_{side}.txt"
            np.savetxt(path, x[:, channel], fmt="%16.7e")
        np.savetxt(folder / side / f"y_{side}.txt", y, fmt="%d")
        np.savetxt(folder / side / f"subject_{side}.txt", subject, fmt="%d")
    lines = [f"{i} {name}\n" for i, name in enumerate(ACTIVITIES, 1)]
    (folder / "activity_labels.txt").write_text("".join(lines))
    return np.concatenate([train, four]), [0, 4, 4, 0, 4, 5, 1, 1], [0, 0, 0, 0, 0, 1, 29, 29]
