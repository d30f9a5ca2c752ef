"""Views on the device."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import CPU, DATASET

from lntrust.core.errors import LNTrustError
from lntrust.learners.views import Views, pick_device
from lntrust.world.data.datasets import Coded

RNG = np.random.default_rng(0)
CODED = Coded(
    RNG.integers(0, 256, (10_000, 5), dtype=np.uint8),  # more than are decoded at once
    RNG.uniform(0.01, 0.1, 5).astype(np.float32),
    RNG.normal(size=5).astype(np.float32),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coded_features_are_decoded(dtype: torch.dtype) -> None:
    view = Views(replace(DATASET, views={"coded": lambda: CODED}), CPU, dtype)["coded"]
    expected = CODED.codes.astype(np.float64) * CODED.step + CODED.offset
    assert view.dtype == dtype
    np.testing.assert_allclose(view.numpy(), expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_is_made_once_in_the_runs_precision(dtype: torch.dtype) -> None:
    views = Views(DATASET, CPU, dtype)
    assert views["series"].dtype == dtype
    assert views["series"].shape == (120, 2, 16)
    assert views["series"] is views["series"]
    with pytest.raises(LNTrustError, match="no such view; it has flat, series, image"):
        views["smell"]
    np.testing.assert_array_equal(views["series"].numpy(), DATASET.view("series"))


def test_devices_are_picked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("cpu").type == pick_device("auto").type == "cpu"
    with pytest.raises(LNTrustError, match="torch sees no GPU here; use --device cpu, or auto"):
        pick_device("cuda")
    with pytest.raises(LNTrustError, match="--device tpu: must be cpu, cuda or auto"):
        pick_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("cuda").type == pick_device("auto").type == "cuda"
    assert pick_device("cpu").type == "cpu"
