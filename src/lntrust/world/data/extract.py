"""From raw data to the archives that studies read (docs/data.md has the format).

A backbone is run once over each image; what it saw is kept as one byte per feature.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, Int, Int16, UInt8
from numpy import ndarray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.core.onnx_files import check_files
from lntrust.world.data.datasets import BACKBONES, read_archive
from lntrust.world.data.images import read_images, read_windows

Progress = Callable[[int, int], None]  # images so far, images in all

# The channel statistics that ImageNet models are trained with.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def extract(
    name: str,
    images: Path,
    out: Path,
    backbone: str,
    *,
    onnx: Path | None = None,
    coordinates: Path | None = None,
    batch: int = 64,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Write `<out>/<name>/labels.npz` and `<out>/<name>/<backbone>.npz`; the path of the latter."""
    if backbone not in BACKBONES:
        raise LNTrustError(f"backbone = {backbone!r}: must be one of {', '.join(BACKBONES)}")
    if batch < 1:
        raise LNTrustError(f"batch = {batch}: must be at least 1")
    raw = read_images(name, images, coordinates)
    folder = out / name
    new = not _agrees(folder / "labels.npz", raw.table)  # before the slow part
    network = TorchvisionBackbone(backbone, device) if onnx is None else OnnxBackbone(onnx, device)
    parts: list[ndarray] = []
    done = 0
    for pixels in raw.batches(batch):
        parts.append(network.embed(pixels))
        if not np.isfinite(parts[-1]).all():
            raise LNTrustError(f"images {done}…{done + len(pixels) - 1}: the backbone gives NaN or infinity")
        done += len(pixels)
        if progress is not None:
            progress(done, len(raw))
    codes, step, offset = quantise(np.concatenate(parts))
    if new:
        _save(folder / "labels.npz", raw.table)
    path = folder / f"{backbone}.npz"
    _save(path, {"codes": codes, "offset": offset, "step": step})
    return path


def preprocess(batch: UInt8[ndarray, "b h w 3"], side: int = 224) -> Float[Tensor, "b 3 side side"]:
    """The usual ImageNet evaluation: shorter side to 256/224 of the crop, crop the centre."""
    x = torch.tensor(batch).permute(0, 3, 1, 2).float() / 255
    height, width = x.shape[2:]
    scale = round(side * 256 / 224) / min(height, width)
    size = [round(height * scale), round(width * scale)]
    x = torch.nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=True)
    top, left = (size[0] - side) // 2, (size[1] - side) // 2
    x = x[:, :, top : top + side, left : left + side]
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (_MEAN, _STD))
    return (x - mean) / std


class TorchvisionBackbone:
    """torchvision's ImageNet weights; the last convolutional map, averaged."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        try:
            from torchvision import models
        except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
            remedy = 'pip install "lntrust[torchvision]", or give the network as a file with --onnx'
            raise LNTrustError(f"backbone {name} needs torchvision ({error}): {remedy}") from None
        try:
            self.device = torch.device(device)
            model = models.get_model(name, weights="IMAGENET1K_V1")
            self.features = model.features.eval().to(self.device)
        except (OSError, RuntimeError, AssertionError) as error:
            raise LNTrustError(f"backbone {name} on device {device!r}: {error}") from None

    def embed(self, batch: UInt8[ndarray, "b h w 3"]) -> Float32[ndarray, "b d"]:
        with torch.inference_mode():
            maps: Tensor = self.features(preprocess(batch).to(self.device))
            pooled: ndarray = maps.mean((2, 3)).float().cpu().numpy()
        return pooled


class OnnxBackbone:
    """A network in an ONNX file, whose input shape says how it wants its images."""

    def __init__(self, path: Path, device: str = "cpu") -> None:
        if not path.is_file():
            raise LNTrustError(f"onnx = {path}: is not there")
        self.path = path
        self.session = _onnx_session(path, device)
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1 or inputs[0].type != "tensor(float)":
            what = f"{', '.join(each.type for each in inputs)} and {len(outputs)} outputs"
            raise LNTrustError(f"{path}: has inputs {what}; must have one of each, the first a tensor(float)")
        self.input, (batch, *image) = inputs[0].name, inputs[0].shape
        self.channels_last = image[-1:] == [3]
        sides = {side for side in (image[:-1] if self.channels_last else image[1:]) if isinstance(side, int)}
        if len(image) != 3 or (image[0] == 3) == self.channels_last or len(sides) > 1:
            what = "must be [b, 3, side, side] or [b, side, side, 3]"
            raise LNTrustError(f"{path}: input shape is {inputs[0].shape}; {what}")
        self.side = sides.pop() if sides else 224
        self.fixed_batch = batch if isinstance(batch, int) else None

    def embed(self, batch: UInt8[ndarray, "b h w 3"]) -> Float32[ndarray, "b d"]:
        x = preprocess(batch, self.side).numpy()
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1) if self.channels_last else x)
        size = self.fixed_batch or len(x)
        return np.concatenate([self._run(x[i : i + size], size) for i in range(0, len(x), size)])

    def _run(self, x: Float32[ndarray, "b *s"], size: int) -> Float32[ndarray, "b d"]:
        """One call; a model exported for a fixed batch gets its last one filled up with zeros."""
        full = np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), dtype=np.float32)])
        try:
            (y,) = self.session.run(None, {self.input: full})
        except Exception as error:  # onnxruntime's own types derive from Exception alone
            raise LNTrustError(f"{self.path}: does not run on {full.shape}: {error}") from None
        if y.ndim not in (2, 4) or len(y) != size:
            what = "must be [b, d], or a feature map of four dimensions"
            raise LNTrustError(f"{self.path}: output has shape {list(y.shape)} for {size} images; {what}")
        if y.ndim == 4:
            # A square map tells its own layout, which converters do not always keep from the input's.
            first, last = y.shape[1] == y.shape[2], y.shape[2] == y.shape[3]
            y = y.mean(axis=(1, 2) if (first if first != last else self.channels_last) else (2, 3))
        return np.asarray(y[: len(x)], dtype=np.float32)


def _onnx_session(path: Path, device: str) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise LNTrustError(f'onnx = {path}: needs onnxruntime: pip install "lntrust[extract]"') from None
    provider = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}.get(device.split(":")[0])
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise LNTrustError(f"device = {device!r}: this onnxruntime runs on {', '.join(available)} only")
    number = device.partition(":")[2]
    options = {"device_id": number} if number and device.startswith("cuda") else {}
    check_files(path, str(path))
    try:
        return onnxruntime.InferenceSession(str(path), providers=[(provider, options)])
    except Exception as error:  # onnxruntime's own types derive from Exception alone
        raise LNTrustError(f"{path}: not a readable ONNX model: {error}") from None


def quantise(
    features: Float32[ndarray, "N d"],
) -> tuple[UInt8[ndarray, "N d"], Float32[ndarray, "d"], Float32[ndarray, "d"]]:
    """Codes, step and offset: a quarter of a standard deviation per step, from the least value.

    A byte then spans 64 deviations. Where a rare outlier lies beyond, the step is widened rather
    than the outlier cut, so that every value is within half a step of its code.
    """
    x = features.astype(np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    step = np.maximum(x.std(axis=0) / 4, (high - low) / 255).astype(np.float32)
    step[(step == 0) | (high == low)] = 1  # constant: all codes 0
    return np.clip(np.rint((x - low) / step), 0, 255).astype(np.uint8), step, low.astype(np.float32)


# --- Archives --------------------------------------------------------------------------------


def _agrees(path: Path, table: dict[str, ndarray]) -> bool:
    """Whether labels are there already, and are these; other ones are an error.

    Backbones share one labels file: features in another order would be those of other examples.
    """
    if not path.exists():
        return False
    for name, stored in read_archive(path, "y").items():
        given, kind = table.get(name, stored), stored.dtype.kind
        same = (stored.shape, kind) == (given.shape, given.dtype.kind)
        # Tables round positions, and a tile is six times as wide.
        if not same or not (abs(stored - given) < 1e-3 if kind == "f" else stored == given).all():
            what = "other images, or another order. Give another folder with --data, or remove the old one"
            raise LNTrustError(f"{path}: {name} is not that of the images given: {what}")
    return True


def _save(path: Path, table: dict[str, Any]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **table)

    write_whole(path, write)


# --- UCI HAR ---------------------------------------------------------------------------------


def extract_windows(images: Path, out: Path) -> Path:
    """Write `<out>/uci_har/windows.npz` from UCI HAR's text files, found under `images`."""
    table, path = read_windows(images), out / "uci_har" / "windows.npz"
    segment = segments(table["x"], table["y"], table["subject"])
    _save(path, table | {"segment": segment, "classes": table.pop("classes")})
    return path


def segments(
    x: Float16[ndarray, "N c 128"], y: Int[ndarray, "N"], subject: Int[ndarray, "N"]
) -> Int16[ndarray, "N"]:
    """Chains of windows that share half their samples, numbered as they first appear.

    Windows overlap by half, and the raw files do not say which follow each other; but one that
    follows another begins, bit for bit, with the other's second half.
    """
    half = x.shape[2] // 2
    who = list(zip(subject.tolist(), y.tolist(), strict=True))
    begins: dict[tuple[tuple[int, int], bytes], list[int]] = {}
    for i, key in enumerate(who):
        begins.setdefault((key, x[i, :, :half].tobytes()), []).append(i)
    pairs = [(i, j) for i, key in enumerate(who) for j in begins.get((key, x[i, :, half:].tobytes()), ())]
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs)), (ends[0], ends[1])), shape=(len(x), len(x)))
    return connected_components(graph, directed=False)[1].astype(np.int16)
