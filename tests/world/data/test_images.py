"""Readers of raw images, on files the test writes."""

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray
from PIL import Image
from raw_files import ROWS, write_cifar, write_eurosat, write_positions

from lntrust.core.errors import LNTrustError
from lntrust.world.data.images import RawImages, read_images


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


def test_cifar_faults_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(LNTrustError, match=r"holds no test_batch\.bin"):
        read_images("cifar10", tmp_path)
    with pytest.raises(LNTrustError, match="not a folder"):
        read_images("cifar10", tmp_path / "absent")
    write_cifar(tmp_path / "a")
    with pytest.raises(LNTrustError, match="only eurosat"):
        read_images("cifar10", tmp_path, tmp_path / "c.csv")
    batch = tmp_path / "a" / "data_batch_3.bin"
    content = batch.read_bytes()
    for damaged in (content[:-1], b""):
        batch.write_bytes(damaged)
        with pytest.raises(LNTrustError, match=rf"data_batch_3\.bin: has {len(damaged)} bytes"):
            read_images("cifar10", tmp_path)
    batch.write_bytes(b"\x0a" + content[1:])
    with pytest.raises(LNTrustError, match=r"data_batch_3\.bin: label 10; must be 0…9"):
        read_images("cifar10", tmp_path)
    batch.unlink()
    with pytest.raises(LNTrustError, match=r"data_batch_3\.bin: is not there"):
        read_images("cifar10", tmp_path)


def test_cifar_class_names_and_two_copies(tmp_path: Path) -> None:
    write_cifar(tmp_path / "a")
    (tmp_path / "a" / "batches.meta.txt").write_text("one\ntwo\n")
    with pytest.raises(LNTrustError, match=r"batches\.meta\.txt: has 2 class names; must be 10"):
        read_images("cifar10", tmp_path)
    write_cifar(tmp_path / "b")
    with pytest.raises(LNTrustError, match="name one of them"):
        read_images("cifar10", tmp_path)


def test_eurosat(tmp_path: Path) -> None:
    expected = write_eurosat(tmp_path / "x" / "EuroSAT_RGB")
    (tmp_path / "x" / "EuroSAT_RGB" / "Forest" / "._Forest_2.png").write_bytes(b"junk")
    table = write_positions(tmp_path / "c.csv")
    raw = read_images("eurosat", tmp_path, table)
    assert {name: values.tolist() for name, values in raw.table.items()} == {
        "y": [0, 0, 1], "classes": ["Forest", "River"],
        "files": ["Forest/Forest_10.png", "Forest/Forest_2.png", "River/River_1.jpg"],
        "latitude": [51.0, 50.5, -40.0], "longitude": [9.0, 8.25, -3.0],
    }  # fmt: skip
    assert (raw.table["y"].dtype, raw.table["latitude"].dtype) == (np.uint8, np.float32)
    assert (all_pixels(raw, 2) == np.stack([expected[file] for file in raw.table["files"]])).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:2], r"c\.csv: no row for River/River_1\.jpg"),
        ((*ROWS, "Forest_10.tif,52,9"), r"c\.csv, line 5: a second position for Forest_10"),
        (("a,nan,1",), r"c\.csv, line 2: latitude = 'nan'"),
        (("a,91,1",), r"c\.csv, line 2: latitude = '91'"),
        (("a,1,x",), r"c\.csv, line 2: longitude = 'x'"),
        (("a,1",), r"c\.csv, line 2: longitude = None"),
    ],
)
def test_eurosat_positions_faults(tmp_path: Path, rows: tuple[str, ...], message: str) -> None:
    write_eurosat(tmp_path / "i")
    with pytest.raises(LNTrustError, match=message):
        read_images("eurosat", tmp_path / "i", write_positions(tmp_path / "c.csv", *rows))


def test_eurosat_table_faults(tmp_path: Path) -> None:
    write_eurosat(tmp_path / "i")
    table = tmp_path / "c.csv"
    with pytest.raises(LNTrustError, match="--coordinates"):
        read_images("eurosat", tmp_path / "i")
    with pytest.raises(LNTrustError, match=r"c\.csv: not a readable CSV"):
        read_images("eurosat", tmp_path / "i", table)
    table.write_text("file,lat,lon\n")
    with pytest.raises(LNTrustError, match=r"c\.csv: has no column latitude, longitude"):
        read_images("eurosat", tmp_path / "i", table)


def test_eurosat_image_faults(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    table = write_positions(tmp_path / "c.csv")
    folder.mkdir()
    with pytest.raises(LNTrustError, match=r"i: holds no \.jpg"):
        read_images("eurosat", folder, table)
    write_eurosat(folder)
    river = folder / "River" / "River_1.jpg"
    whole = river.read_bytes()
    for damaged in (b"not an image", whole[: len(whole) // 2]):
        river.write_bytes(damaged)
        with pytest.raises(LNTrustError, match=r"River_1\.jpg: not a readable image"):
            list(read_images("eurosat", folder, table).batches(8))
    Image.new("RGB", (32, 64)).save(river)
    with pytest.raises(LNTrustError, match=r"River_1\.jpg: is 32×64; must be 64×64"):
        list(read_images("eurosat", folder, table).batches(8))
    with pytest.raises(LNTrustError, match="only folder of images"):
        read_images("eurosat", folder / "River", table)
    write_eurosat(folder / "copy" / "again")
    with pytest.raises(LNTrustError, match="class folders in"):
        read_images("eurosat", folder, table)


def test_a_dataset_without_images(tmp_path: Path) -> None:
    with pytest.raises(LNTrustError, match="one of cifar10, cifar100, eurosat"):
        read_images("uci_har", tmp_path)
