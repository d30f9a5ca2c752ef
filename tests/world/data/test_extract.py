"""Extraction, from small raw files to archives that load_dataset reads."""

import sys
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import helper, numpy_helper
from PIL import Image
from raw_files import chain, random_pixels, write_cifar, write_eurosat, write_har, write_positions

from lntrust.core.errors import LNTrustError
from lntrust.world.data import extract as extraction
from lntrust.world.data.datasets import BACKBONES, Coded, load_dataset
from lntrust.world.data.images import read_images

FEATURES = 5


def write_onnx(
    path: Path,
    channels_last: bool = False,
    pooled: bool = True,
    batch: int | str = "b",
    side: int | str = 224,
) -> Path:
    """A strided convolution and, where `pooled`, a global average; weights from a fixed seed."""
    weights = (np.random.default_rng(7).normal(size=(FEATURES, 3, 32, 32)) / 32).astype(np.float32)
    shape = f"{batch}, {side}, {side}, 3" if channels_last else f"{batch}, 3, {side}, {side}"
    order = "0, 2, 3, 1" if channels_last else "0, 1, 2, 3"
    ends = "pool = GlobalAveragePool (map) y = Flatten (pool)"
    graph = onnx.parser.parse_graph(f"""
        small (float[{shape}] x) => (float y) {{
            nchw = Transpose <perm = [{"0, 3, 1, 2" if channels_last else order}]> (x)
            map = Conv <strides = [32, 32]> (nchw, w)
            {ends if pooled else f"y = Transpose <perm = [{order}]> (map)"}
        }}""")
    graph.output[0].type.Clear()
    graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check_features(name: str, out: Path, images: Path, model: Path, table: Path | None) -> None:
    """Both views of the written dataset are within half a step of the features themselves."""
    pixels = np.concatenate(list(read_images(name, images, table).batches(4)))
    direct, dataset = extraction.OnnxBackbone(model).embed(pixels), load_dataset(name, out)
    for backbone in BACKBONES:
        view = dataset.view(backbone)
        assert isinstance(view, Coded)
        features = view.codes * view.step + view.offset
        assert (np.abs(features - direct) <= view.step / 2 * 1.001).all()
        assert features.shape == (len(dataset.labels), FEATURES)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_to_archive(tmp_path: Path, name: str) -> None:
    images, out, model = tmp_path / "raw", tmp_path / "data", write_onnx(tmp_path / "m.onnx")
    _, labels = write_cifar(images / "inner", fine=name == "cifar100")
    seen: list[tuple[int, int]] = []
    for backbone in BACKBONES:
        path = extraction.extract(
            name, images, out, backbone, onnx=model, batch=4, progress=lambda *p: seen.append(p)
        )
        assert path == out / name / f"{backbone}.npz"
    check_features(name, out, images, model, None)
    assert seen[-1] == (len(labels), len(labels))
    dataset = load_dataset(name, out)
    assert dataset.labels.tolist() == labels.tolist()
    with np.load(out / name / "labels.npz") as stored:
        for key, values in read_images(name, images).table.items():
            assert (stored[key].dtype, stored[key].tolist()) == (values.dtype, values.tolist())
    with np.load(path) as table:
        kinds = {key: table[key].dtype for key in table.files}
    assert kinds == {"codes": np.uint8, "offset": np.float32, "step": np.float32}
    files = ["efficientnet_b0.npz", "labels.npz", "mobilenet_v2.npz"]
    assert sorted(file.name for file in (out / name).iterdir()) == files


def test_eurosat_to_archive(tmp_path: Path) -> None:
    images, out, model = tmp_path / "raw", tmp_path / "data", write_onnx(tmp_path / "m.onnx")
    write_eurosat(images)
    table = write_positions(tmp_path / "positions.csv")
    for backbone in BACKBONES:
        extraction.extract("eurosat", images, out, backbone, onnx=model, coordinates=table)
    check_features("eurosat", out, images, model, table)
    dataset = load_dataset("eurosat", out)
    assert dataset.classes == ("Forest", "River")
    assert dataset.latitude is not None
    assert dataset.latitude.tolist() == [51.0, 50.5, -40.0]
    with np.load(out / "eurosat" / "labels.npz") as stored:
        assert stored["files"][1] == "Forest/Forest_2.png"


def test_labels_that_disagree_are_kept(tmp_path: Path) -> None:
    out, model = tmp_path / "data", write_onnx(tmp_path / "m.onnx")
    for seed in (0, 1):
        write_cifar(tmp_path / f"raw{seed}", seed=seed)
    extraction.extract("cifar10", tmp_path / "raw0", out, "mobilenet_v2", onnx=model)
    labels = out / "cifar10" / "labels.npz"
    before = labels.read_bytes()
    with pytest.raises(LNTrustError, match=r"labels\.npz: y is not that of the images given"):
        extraction.extract("cifar10", tmp_path / "raw1", out, "efficientnet_b0", onnx=model)
    assert labels.read_bytes() == before
    assert not (out / "cifar10" / "efficientnet_b0.npz").exists()
    labels.write_bytes(before[:40])
    with pytest.raises(LNTrustError, match=r"labels\.npz: not a readable npz"):
        extraction.extract("cifar10", tmp_path / "raw0", out, "efficientnet_b0", onnx=model)


def test_a_failure_leaves_no_archive(tmp_path: Path) -> None:
    images, out, model = tmp_path / "raw", tmp_path / "data", write_onnx(tmp_path / "m.onnx")
    write_eurosat(images)
    (images / "River" / "River_1.jpg").write_bytes(b"damaged")
    table = write_positions(tmp_path / "positions.csv")
    with pytest.raises(LNTrustError, match=r"River_1\.jpg"):
        extraction.extract("eurosat", images, out, "mobilenet_v2", onnx=model, coordinates=table, batch=2)
    assert not out.exists()
    out.write_text("a file where the folder should be")
    write_cifar(tmp_path / "c")
    with pytest.raises(LNTrustError, match="cannot write"):
        extraction.extract("cifar10", tmp_path / "c", out, "mobilenet_v2", onnx=model)


@pytest.mark.parametrize("batch", [1, 4, "b"])
def test_onnx_layouts_and_batches_agree(tmp_path: Path, batch: int | str) -> None:
    pixels = random_pixels(6, 32)
    expected = extraction.OnnxBackbone(write_onnx(tmp_path / "plain.onnx")).embed(pixels)
    assert np.ptp(expected, axis=0).min() > 1e-3  # else agreement says nothing
    for channels_last, pooled in product([True, False], repeat=2):
        model = write_onnx(tmp_path / "m.onnx", channels_last=channels_last, pooled=pooled, batch=batch)
        features = extraction.OnnxBackbone(model).embed(pixels)
        assert (features.dtype, features.shape) == (np.float32, (6, FEATURES))
        np.testing.assert_allclose(features, expected, atol=1e-4)


def test_onnx_side_comes_from_the_model(tmp_path: Path) -> None:
    assert extraction.OnnxBackbone(write_onnx(tmp_path / "a.onnx", side=96)).side == 96
    assert extraction.OnnxBackbone(write_onnx(tmp_path / "b.onnx", side="s")).side == 224


def test_onnx_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    good = write_onnx(tmp_path / "good.onnx")
    model = onnx.load(good)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "c"
    onnx.save(model, tmp_path / "open.onnx")
    others = {"location": "node.key", "size_threshold": 0}
    onnx.save(onnx.load(good), tmp_path / "other.onnx", save_as_external_data=True, **others)
    for name, device, message in (
        ("absent", "cpu", r"absent\.onnx: is not there"),
        ("junk", "cpu", r"junk\.onnx: not a readable ONNX model"),
        ("good", "tpu", "device = 'tpu'"),
        ("open", "cpu", r"open\.onnx: input shape is"),
        ("other", "cpu", r"other\.onnx: would read the file 'node\.key'"),
    ):
        with pytest.raises(LNTrustError, match=message):
            extraction.OnnxBackbone(tmp_path / f"{name}.onnx", device)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(LNTrustError, match=r"lntrust\[extract\]"):
        extraction.OnnxBackbone(good)


def test_torchvision_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(LNTrustError, match=r'pip install "lntrust\[torchvision\]".*--onnx'):
        extraction.TorchvisionBackbone("mobilenet_v2")


def test_torchvision_features_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in with torchvision's interface, which is not always installed."""
    network = torch.nn.Conv2d(3, FEATURES, 32, stride=32)
    asked: list[tuple[str, str]] = []

    def get_model(name: str, weights: str) -> SimpleNamespace:
        asked.append((name, weights))
        return SimpleNamespace(features=network)

    fake = ModuleType("torchvision")
    fake.models = SimpleNamespace(get_model=get_model)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    pixels = random_pixels(2, 64)
    features = extraction.TorchvisionBackbone("efficientnet_b0").embed(pixels)
    expected = network(extraction.preprocess(pixels)).mean((2, 3)).detach().numpy()
    np.testing.assert_allclose(features, expected, atol=1e-6)
    assert asked == [("efficientnet_b0", "IMAGENET1K_V1")]
    with pytest.raises(LNTrustError, match="device 'nonsense'"):
        extraction.TorchvisionBackbone("efficientnet_b0", "nonsense")


@pytest.mark.parametrize(("height", "width"), [(32, 32), (64, 48), (300, 500)])
def test_preprocess_is_pillows_resize_and_crop(height: int, width: int) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (1, height, width, 3), dtype=np.uint8)
    scale = 256 / min(height, width)
    size = (round(width * scale), round(height * scale))
    image = np.array(Image.fromarray(pixels[0]).resize(size, Image.Resampling.BILINEAR))
    top, left = (size[1] - 224) // 2, (size[0] - 224) // 2
    crop = image[top : top + 224, left : left + 224].astype(np.float32) / 255
    expected = (crop - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    given = extraction.preprocess(pixels)[0].permute(1, 2, 0).numpy()
    assert np.abs(given - expected).max() < 1.5 / 255 / 0.224  # Pillow rounds to bytes, twice


def test_quantise() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3000, 70)).astype(np.float32) * 3 - 1
    x[:, 1] = 0.1  # constant
    x[0, 2] = 1000.0  # an outlier beyond what quarter deviations can reach
    codes, step, offset = extraction.quantise(x)
    assert codes.dtype == np.uint8
    assert (np.abs(codes * step + offset - x) <= step / 2 * 1.001).all()
    np.testing.assert_allclose(step[3:], x[:, 3:].std(axis=0) / 4, rtol=1e-4)
    assert step[1] == 1
    assert not codes[:, 1].any()
    np.testing.assert_array_equal(offset, x.min(axis=0))


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(LNTrustError, match="backbone = 'resnet'"):
        extraction.extract("cifar10", tmp_path, tmp_path, "resnet")
    with pytest.raises(LNTrustError, match="batch = 0"):
        extraction.extract("cifar10", tmp_path, tmp_path, "mobilenet_v2", batch=0)


def test_not_finite_features_are_refused(tmp_path: Path) -> None:
    model = onnx.load(write_onnx(tmp_path / "m.onnx"))
    weights = np.full((FEATURES, 3, 32, 32), np.nan, dtype=np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    write_cifar(tmp_path / "a", each=5)
    with pytest.raises(LNTrustError, match="images 0…4: the backbone gives NaN"):
        extraction.extract(
            "cifar10", tmp_path / "a", tmp_path / "out", "mobilenet_v2", onnx=tmp_path / "m.onnx"
        )


# --- UCI HAR ---------------------------------------------------------------------------------


def test_har_round_trip(tmp_path: Path) -> None:
    x, y, subject = write_har(tmp_path / "raw" / "UCI HAR Dataset")
    path = extraction.extract_windows(tmp_path / "raw", tmp_path / "data")
    assert path == tmp_path / "data" / "uci_har" / "windows.npz"
    with np.load(path) as table:
        assert table["x"].dtype == np.float16
        np.testing.assert_allclose(table["x"], x, rtol=1e-3, atol=1e-6)
        assert table["y"].dtype == table["subject"].dtype == np.uint8
        assert table["segment"].dtype == np.int16
    dataset = load_dataset("uci_har", tmp_path / "data")
    assert dataset.labels.tolist() == y
    assert dataset.classes[:2] == ("walking", "walking_upstairs")
    assert dataset.subject is not None
    assert dataset.segment is not None
    assert dataset.subject.tolist() == subject
    assert dataset.segment.tolist() == [0, 1, 1, 0, 1, 2, 3, 3]


def test_segments_do_not_cross_subjects_or_classes() -> None:
    x = chain(4, 0).astype(np.float16)
    same = np.zeros(4, dtype=np.uint8)
    split = np.array([0, 0, 1, 1], dtype=np.uint8)
    assert extraction.segments(x, same, same).tolist() == [0, 0, 0, 0]
    assert extraction.segments(x, split, same).tolist() == [0, 0, 1, 1]
    assert extraction.segments(x, same, split).tolist() == [0, 0, 1, 1]
    apart = np.concatenate([chain(1, seed) for seed in range(3)]).astype(np.float16)
    assert extraction.segments(apart, same[:3], same[:3]).tolist() == [0, 1, 2]
