"""Readers of raw images and windows, on files the test writes."""

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray
from PIL import Image
from raw_files import ROWS, write_cifar, write_eurosat, write_har, write_positions

from lntrust.core.errors import LNTrustError
from lntrust.world.data.images import RawImages, read_images, read_windows


def all_pixels(raw: RawImages, size: int) -> ndarray:
    batches = list(raw.batches(size))
    assert all(batch.dtype == np.uint8 and len(batch) <= size for batch in batches)
    return np.concatenate(batches)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar(tmp_path: Path, name: str) -> None:
    pixels, labels = write_cifar(tmp_path / "deep" / "batches-bin", fine=name == "cifar100")
    raw = read_images(name, tmp_path)
    assert raw.table["y"].tolist() == labels.tolist()
    assert raw.table["y"].dtype == np.uint8
    assert raw.table["classes"].tolist() == [f"kind{i}" for i in range(10 if name == "cifar10" else 100)]
    assert np.flatnonzero(raw.table["official_test"]).tolist() == [*range(len(pixels) - 3, len(pixels))]
    for size in (1, 2, 100):
        assert (all_pixels(raw, size) == pixels).all()
    assert len(raw) == len(pixels)


def test_eurosat(tmp_path: Path) -> None:
    expected = write_eurosat(tmp_path / "x" / "EuroSAT_RGB")
    (tmp_path / "x" / "EuroSAT_RGB" / "Forest" / "._Forest_2.png").write_bytes(b"junk")
    raw = read_images("eurosat", tmp_path, write_positions(tmp_path / "c.csv"))
    assert {name: values.tolist() for name, values in raw.table.items()} == {
        "y": [0, 0, 1], "classes": ["Forest", "River"],
        "files": ["Forest/Forest_10.png", "Forest/Forest_2.png", "River/River_1.jpg"],
        "latitude": [51.0, 50.5, -40.0], "longitude": [9.0, 8.25, -3.0],
    }  # fmt: skip
    assert (raw.table["y"].dtype, raw.table["latitude"].dtype) == (np.uint8, np.float32)
    assert (all_pixels(raw, 2) == np.stack([expected[file] for file in raw.table["files"]])).all()


BATCH, NAMES, RIVER = "r/data_batch_3.bin", "r/batches.meta.txt", "r/River/River_1.jpg"
SIGNAL, LABELS, TEST = "r/train/Inertial Signals/body_gyro_y_train.txt", "r/activity_labels.txt", "r/test"
HEADER = "file,latitude,longitude\n"


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("cifar10", BATCH, b"\0" * 3073 * 3 + b"\0", r"data_batch_3\.bin: has 9220 bytes"),
        ("cifar10", BATCH, b"", r"data_batch_3\.bin: has 0 bytes"),
        ("cifar10", BATCH, b"\x0a" * 3073, r"data_batch_3\.bin: label 10; must be 0…9"),
        ("cifar10", BATCH, None, r"data_batch_3\.bin: is not there"),
        ("cifar10", NAMES, b"one\ntwo\n", r"batches\.meta\.txt: has 2 class names; must be 10"),
        ("cifar10", "r/test_batch.bin", None, r"test_batch\.bin is in no folder of it"),
        ("cifar10", "again/test_batch.bin", b"", r"test_batch\.bin is in .*again and in .*name one of them"),
        ("eurosat", "c.csv", "file,lat,lon\n", r"c\.csv: has no column latitude, longitude"),
        ("eurosat", "c.csv", HEADER + "\n".join(ROWS[:2]), r"c\.csv: no row for River/River_1\.jpg"),
        ("eurosat", "c.csv", HEADER + "a,5,5\na,5,6", r"c\.csv, line 3: a second position for a"),
        ("eurosat", "c.csv", HEADER + "a,nan,1", r"c\.csv, line 2: latitude = 'nan'"),
        ("eurosat", "c.csv", HEADER + "a,91,1", r"c\.csv, line 2: latitude = '91'"),
        ("eurosat", "c.csv", HEADER + "a,1,x", r"c\.csv, line 2: longitude = 'x'"),
        ("eurosat", "c.csv", HEADER + "a,1", r"c\.csv, line 2: longitude = None"),
        ("eurosat", "c.csv", None, r"c\.csv: not a readable CSV"),
        ("eurosat", RIVER, b"not an image", r"River_1\.jpg: not a readable image"),
        ("eurosat", RIVER, b"\xff\xd8\xff\xe0", r"River_1\.jpg: not a readable image"),
        ("eurosat", "more/copy/Sea/Sea_1.jpg", b"", "class folders in"),
        ("uci_har", LABELS, None, r"activity_labels\.txt is in no folder of it"),
        ("uci_har", LABELS, "2 A\n1 B\n", r"activity_labels\.txt: must be lines"),
        ("uci_har", SIGNAL, None, r"body_gyro_y_train\.txt: not a readable table"),
        ("uci_har", SIGNAL, "a b\n", r"body_gyro_y_train\.txt: not a readable table"),
        ("uci_har", SIGNAL, "", r"body_gyro_y_train\.txt: is empty"),
        ("uci_har", SIGNAL, "1 2\n3 4\n", r"body_gyro_y_train\.txt: .*\(2, 2\); must be \(6, 128\)"),
        ("uci_har", SIGNAL, ("nan " * 128 + "\n") * 6, r"body_gyro_y_train\.txt: has values that are NaN"),
        ("uci_har", SIGNAL, ("1e9 " * 128 + "\n") * 6, r"body_gyro_y_train\.txt: .* beyond float16"),
        ("uci_har", f"{TEST}/y_test.txt", "2\n7\n", r"y_test\.txt: has 7\.0; must be whole .* 1…6"),
        ("uci_har", f"{TEST}/y_test.txt", "0\n1\n", r"y_test\.txt: has 0\.0"),
        ("uci_har", f"{TEST}/subject_test.txt", "2\n", r"subject_test\.txt: has shape \(1, 1\)"),
    ],
)
def test_faults_name_the_file(
    tmp_path: Path, name: str, file: str, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / file
    {"cifar10": write_cifar, "eurosat": write_eurosat, "uci_har": write_har}[name](tmp_path / "r")
    table = write_positions(tmp_path / "c.csv") if name == "eurosat" else None
    if content is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(LNTrustError, match=message):
        read_windows(tmp_path) if name == "uci_har" else list(read_images(name, tmp_path, table).batches(8))


def test_folders_and_tables_that_do_not_fit(tmp_path: Path) -> None:
    write_eurosat(tmp_path / "i")
    table, sea = write_positions(tmp_path / "c.csv"), tmp_path / "sea"
    sea.mkdir()
    for name, folder, positions, message in (
        ("eurosat", tmp_path / "i", None, "--coordinates"),
        ("eurosat", tmp_path / "i" / "River", table, "only folder of images"),
        ("eurosat", sea, table, r"sea: holds no \.jpg"),
        ("cifar10", tmp_path / "absent", None, "not a folder"),
        ("cifar10", tmp_path / "i", table, "only eurosat"),
        ("uci_har", tmp_path / "i", None, "one of cifar10, cifar100, eurosat"),
    ):
        with pytest.raises(LNTrustError, match=message):
            read_images(name, folder, positions)
    Image.new("RGB", (32, 64)).save(tmp_path / "i" / "River" / "River_1.jpg")
    with pytest.raises(LNTrustError, match=r"River_1\.jpg: is 32×64; must be 64×64"):
        list(read_images("eurosat", tmp_path / "i", table).batches(8))
