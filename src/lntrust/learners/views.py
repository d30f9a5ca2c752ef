"""Views on the device: decoded once, shared by every run of a process."""

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import fold, normal, stream_key
from lntrust.study.settings import LearnerSettings, Study
from lntrust.world.data.datasets import Coded, Dataset, check_finite, load_dataset

_AT_ONCE = 4096


@dataclass(eq=False)
class Views:
    """The views of one dataset as tensors of one precision on one device."""

    dataset: Dataset
    device: torch.device
    dtype: torch.dtype
    _tensors: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _noisy: dict[tuple[str, float], Tensor] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, name: str) -> Float[Tensor, "N *s"]:
        if name not in self._tensors:
            view = self.dataset.view(name)
            if isinstance(view, Coded):
                self._tensors[name] = self._decode(view)
            else:
                self._tensors[name] = torch.from_numpy(self._narrowed(view, name)).to(self.device, self.dtype)
        return self._tensors[name]

    def seen_by(self, learner: LearnerSettings) -> Float[Tensor, "N *s"]:
        """The learner's view, under the noise that its settings ask for."""
        if learner.noise == 0:
            return self[learner.view]
        key = learner.view, learner.noise
        if key not in self._noisy:  # of several the last is kept: each is as large as the view
            self._noisy = {key: self._with_noise(*key)}
        return self._noisy[key]

    def _with_noise(self, name: str, noise: float) -> Float[Tensor, "N *s"]:
        """x + noise·σ·ε: σ each feature's deviation over all examples, ε ~ N(0, 1) by the example's id."""
        view = self[name]
        root = fold(stream_key(0, "noise", self.device), zlib.crc32(name.encode()))  # no matter which run
        scale, out = noise * view.std(0, correction=0), torch.empty_like(view)
        for start in range(0, len(view), _AT_ONCE):
            piece = view[start : start + _AT_ONCE]
            ids = torch.arange(start, start + len(piece), device=self.device)
            drawn = normal(fold(root, ids), scale.numel()).to(self.dtype).view_as(piece)
            torch.addcmul(piece, drawn, scale, out=out[start : start + _AT_ONCE])
        return out

    def _narrowed(self, view: Float[ndarray, "N *s"], name: str) -> Float[ndarray, "N *s"]:
        """What float64 holds may be too much for float32; it would be infinite."""
        if view.dtype != np.float64 or self.dtype != torch.float32:
            return view
        with np.errstate(over="ignore"):
            narrow = view.astype(np.float32)
        check_finite(f"dataset {self.dataset.name}, view {name} in float32", narrow)
        return narrow

    def _decode(self, view: Coded) -> Float[Tensor, "N d"]:
        """feature = codes·step + offset, a piece at a time: the bytes cross to the device as bytes."""
        step = torch.from_numpy(view.step).to(self.device, self.dtype)
        offset = torch.from_numpy(view.offset).to(self.device, self.dtype)
        out = torch.empty(view.shape, device=self.device, dtype=self.dtype)
        for start in range(0, len(out), _AT_ONCE):
            piece = slice(start, start + _AT_ONCE)
            codes = torch.from_numpy(np.ascontiguousarray(view.codes[piece])).to(self.device)
            torch.addcmul(offset, codes.to(self.dtype), step, out=out[piece])
        return out


def load_views(study: Study, device: str = "auto", data: Path | None = None) -> Views:
    dtype = getattr(torch, study.training.precision)
    return Views(load_dataset(study.data.dataset, data), pick_device(device), dtype)


def numbers_in_a_step(study: Study, views: Views, nodes: int) -> int:
    """How many input numbers one step of so many nodes is on, if all had the largest inputs."""
    largest = max(views[each.view][0].numel() for each in study.population.learners)
    return nodes * study.training.batch * largest


def pick_device(name: str) -> torch.device:
    """`cpu`, `cuda` or `auto`."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", found, "auto"):
        wrong = "must be cpu, cuda or auto"
        if name == "cuda":
            wrong = "torch sees no GPU here; use --device cpu, or auto to take one where there is one"
        raise LNTrustError(f"--device {name}: {wrong}")
    return torch.device(found if name == "auto" else name)
