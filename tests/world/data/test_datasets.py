"""Datasets: the embedded one, archives of codes and windows, and what is said where files are missing."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lntrust import LNTrustError
from lntrust.learners.views import Views
from lntrust.world import load_dataset
from lntrust.world.data.datasets import BACKBONES, FILES, Coded, data_directory, missing_files


def test_digits() -> None:
    digits = load_dataset("digits")
    pixels, image = np.asarray(digits.view("pixels")), np.asarray(digits.view("image"))
    assert (digits.labels.shape, digits.labels.dtype) == ((1797,), np.int64)
    assert digits.classes == tuple("0123456789")
    assert (digits.input_shape, digits.input_dtype) == ((8, 8), "uint8")
    assert (pixels.shape, image.shape) == ((1797, 64), (1797, 1, 8, 8))
    assert pixels.dtype == image.dtype == np.float32
    assert (float(pixels.min()), float(pixels.max())) == (0.0, 1.0)
    assert (image.reshape(1797, 64) == pixels).all()
    with pytest.raises(LNTrustError) as refusal:
        digits.view("sound")
    assert str(refusal.value) == "view = 'sound': digits has no such view; it has pixels, image"


class TestMissing:
    @pytest.mark.parametrize(
        ("name", "hows"),
        [
            ("uci_har", [""]),
            ("cifar10", [f" --backbone {backbone}" for backbone in BACKBONES]),
            ("eurosat", [f" --backbone {b} --coordinates eurosat-positions.csv" for b in BACKBONES]),
        ],
    )
    def test_the_message_names_the_file_and_the_commands(
        self, name: str, hows: list[str], tmp_path: Path
    ) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "labels.npz").touch()
        missing = missing_files(name, tmp_path)
        assert [path.name for path in missing] == [each for each in FILES[name] if each != "labels.npz"]
        with pytest.raises(LNTrustError) as refusal:
            load_dataset(name, tmp_path)
        assert str(refusal.value).splitlines()[:-1] == [
            f"dataset {name}: {missing[0]} is not there.",
            "To get it, run:",
            f"  lntrust data download {name} --to {name}-raw",
            *(f"  lntrust data extract {name} --images {name}-raw{how} --data {tmp_path}" for how in hows),
        ]
        assert str(refusal.value).endswith("name their folder with --data or LNTRUST_DATA.")

    def test_where_it_is_looked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LNTRUST_DATA", str(tmp_path / "named"))
        assert data_directory(tmp_path / "given") == tmp_path / "given"
        assert data_directory() == tmp_path / "named"
        monkeypatch.delenv("LNTRUST_DATA")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert data_directory() == tmp_path / ".local" / "share" / "lntrust"


WINDOWS = {
    "x": np.ones((4, 9, 16), dtype=np.float16), "y": np.array([0, 1, 1, 0]),
    "subject": np.array([1, 1, 2, 2]), "segment": np.arange(4), "classes": np.array(["sit", "walk"]),
}  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A cifar10 and a eurosat of five examples with three features, and a uci_har of four windows."""
    step, offset = np.array([0.5, 1.0, 2.0], np.float16), np.array([-1.0, 0.0, 4.0], np.float16)
    coded = {"codes": np.arange(15, dtype=np.uint8).reshape(5, 3) * 17, "step": step, "offset": offset}
    labels = {"y": np.array([0, 9, 3, 3, 1], dtype=np.uint8)}
    places = {"latitude": np.linspace(40, 50, 5), "longitude": np.linspace(0, 9, 5)}
    tables = {"cifar10/labels": labels, "eurosat/labels": labels | places, "uci_har/windows": WINDOWS}
    tables |= {f"{name}/{backbone}": coded for name in ("cifar10", "eurosat") for backbone in BACKBONES}
    for file, table in tables.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / f"{file}.npz", **table)  # type: ignore[arg-type]
    return tmp_path


def test_codes_and_what_they_mean(archive: Path) -> None:
    dataset = load_dataset("cifar10", archive)
    view = dataset.view("mobilenet_v2")
    assert isinstance(view, Coded)
    assert (view.shape, view.codes.dtype) == ((5, 3), np.uint8)
    assert view.step.dtype == view.offset.dtype == np.float32
    assert dataset.labels.tolist() == [0, 9, 3, 3, 1]
    assert (dataset.input_shape, len(dataset.classes)) == ((32, 32, 3), 10)
    assert dataset.view("mobilenet_v2") is view  # read once


def test_the_official_training_set_or_a_fixed_draw_where_it_is_not_known(archive: Path) -> None:
    labels = archive / "cifar10" / "labels.npz"
    np.savez(labels, y=[0, 9, 3, 3, 1], official_test=np.array([False, True, False, False, True]))
    known = load_dataset("cifar10", archive).official_training
    assert known is not None
    assert known.tolist() == [True, False, True, True, False]
    y = np.arange(120) % 10
    np.savez(labels, y=y)
    drawn, again = (load_dataset("cifar10", archive).official_training for _ in range(2))
    assert drawn is not None
    assert np.array_equal(drawn, again)
    assert np.bincount(y[drawn]).tolist() == [10] * 10, "five in six of each class"
    assert load_dataset("eurosat", archive).official_training is None


def test_windows(archive: Path) -> None:
    dataset = load_dataset("uci_har", archive)
    view = np.asarray(dataset.view("windows"))
    assert view.dtype == np.float32
    assert view[0, :, 0].tolist() == pytest.approx([5.0] * 3 + [2.0] * 6)
    assert dataset.classes == ("sit", "walk")
    assert (dataset.input_shape, dataset.input_dtype) == ((9, 16), "float16")
    assert dataset.subject is not None
    assert dataset.subject.tolist() == [1, 1, 2, 2]


CODES, LABELS, WHERE, HAR = "cifar10/mobilenet_v2", "cifar10/labels", "eurosat/labels", "uci_har/windows"


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (CODES, {"codes": np.zeros((4, 3), np.uint8)}, r"codes is uint8\[4, 3\]; must be uint8\[5, d\]"),
        (CODES, {"codes": np.zeros((5, 3))}, r"codes is float64\[5, 3\]"),
        (CODES, {"step": np.ones(2)}, "one value for each of 3 features"),
        (CODES, {"offset": np.array([0, np.nan, np.inf])}, "view mobilenet_v2, offset: column 1 is nan"),
        (CODES, {"step": np.array([1, 1, 1e300])}, "view mobilenet_v2, step: column 2 is inf"),
        # Every step and offset is finite, and so are small codes times a large step.
        (CODES, {"step": np.array([1, 3e36, 1])}, "view mobilenet_v2, column 1: row 2 is inf"),
        (LABELS, {"y": np.array([0, 1, np.nan, 3, 4])}, r"labels\.npz: dataset cifar10, y: row 2 is nan"),
        (LABELS, {"y": np.array([0, 1, 10, 3, 4])}, r"y runs from 0 to 10; labels must be 0…9"),
        *(
            (
                WHERE,
                {axis: np.array([0, 1, np.nan, 3, 4])},
                rf"dataset eurosat, {axis}: row 2 is nan; all must",
            )
            for axis in ("latitude", "longitude")
        ),
        (HAR, {"x": np.ones((4, 8, 16))}, r"x has shape \(4, 8, 16\); must be \[N, 9, samples\]"),
        (HAR, {"segment": np.arange(3)}, r"segment has shape \(3,\); must be one number for each of 4 rows"),
        (HAR, {"y": np.zeros(3)}, r"y has shape \(3,\); must be one number for each of 4 rows"),
        (HAR, {"y": np.array([0, 1, 2, 0])}, r"y runs from 0 to 2; labels must be 0…1"),
        *(
            (
                HAR,
                {each: np.array([0, 1, 1, np.inf])},
                rf"windows\.npz: dataset uci_har, {each}: row 3 is inf",
            )
            for each in ("y", "subject", "segment")
        ),
    ],
)
def test_what_does_not_fit(archive: Path, file: str, changes: dict[str, np.ndarray], message: str) -> None:
    with np.load(archive / f"{file}.npz") as old:
        np.savez(archive / f"{file}.npz", **{**old, **changes})
    with pytest.raises(LNTrustError, match=message):
        load_dataset(file.partition("/")[0], archive).view("mobilenet_v2")


class TestNotFinite:
    """What is not finite is refused where it is loaded, and its place is said."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize(
        ("view", "place"), [("pixels", "row 1234, column 17"), ("image", "1234, column 0, 2, 1")]
    )
    def test_a_view(self, bad: float, view: str, place: str) -> None:
        digits = load_dataset("digits")
        x = np.array(digits.view("pixels"))
        x[1234, 17] = x[1500, 3] = bad
        spoilt = replace(digits, views={"pixels": lambda: x, "image": lambda: x.reshape(-1, 1, 8, 8)})
        with pytest.raises(LNTrustError) as refusal:
            Views(spoilt, torch.device("cpu"), torch.float32)[view]
        assert str(refusal.value).startswith(f"dataset digits, view {view}: row ")
        assert str(refusal.value).endswith(f"{place} is {bad}; all must be finite")

    def test_what_float32_cannot_hold(self) -> None:
        digits = load_dataset("digits")
        x = np.array(digits.view("pixels"), dtype=np.float64)
        x[7, 5] = 1e39
        large = replace(digits, views={"pixels": lambda: x})
        assert Views(large, torch.device("cpu"), torch.float64)["pixels"][7, 5] == 1e39
        with pytest.raises(LNTrustError, match="view pixels in float32: row 7, column 5 is inf; all must be"):
            Views(large, torch.device("cpu"), torch.float32)["pixels"]

    def test_a_view_is_looked_at_once_and_in_pieces(self) -> None:
        """Beside a large view there is no room for a second one."""
        digits, x = load_dataset("digits"), np.zeros((40_000, 1000), np.float32)
        large = replace(digits, views={"pixels": lambda: x})
        tracemalloc.start()
        large.view("pixels")
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        large.view("pixels")
        again = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < x.nbytes / 10
        assert again < most / 10
