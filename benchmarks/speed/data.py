"""Data for benchmarks: the study's own or, where it is not there, random codes of the same shape.

The time of a product does not depend on what is multiplied. Accuracy does, so none is reported.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from lntrust.core.errors import LNTrustError
from lntrust.core.threads import fit_threads
from lntrust.learners.views import Views, load_views, numbers_in_a_step, pick_device
from lntrust.study.settings import Study
from lntrust.world.data.datasets import Coded, Dataset, data_directory, missing_files

ROWS, FEATURES = 60_000, 1280  # of CIFAR through either backbone
CLASSES = {"cifar10": 10, "cifar100": 100}


def random_dataset(study: Study, rows: int | None = None, features: int | None = None) -> Dataset:
    """Uniformly random codes under the name of the study's dataset, every class equally often."""
    name = study.data.dataset
    if name not in CLASSES:
        raise LNTrustError(
            f"--random-data: stands in for {' and '.join(CLASSES)}; study {study.name} uses {name}"
        )
    shape = (rows or ROWS, features or FEATURES)

    def view(number: int) -> Coded:
        codes = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
        step = np.full(shape[1], 1 / 255, dtype=np.float32)
        return Coded(codes, step, np.zeros(shape[1], dtype=np.float32))

    names = dict.fromkeys(learner.view for learner in study.population.learners)
    return Dataset(
        name=name,
        labels=np.arange(shape[0], dtype=np.int64) % CLASSES[name],
        classes=tuple(f"class {c}" for c in range(CLASSES[name])),
        input_shape=(32, 32, 3),
        input_dtype="uint8",
        views={each: partial(view, k) for k, each in enumerate(names)},
    )


def random_views(
    study: Study, device: str = "cpu", rows: int | None = None, features: int | None = None
) -> Views:
    """Random codes on the device, decoded before anybody's clock starts."""
    dtype = getattr(torch, study.training.precision)
    views = Views(random_dataset(study, rows, features), pick_device(device), dtype)
    fit_threads(numbers_in_a_step(study, views, study.graph.nodes))
    return views


def bench_views(study: Study, device: str, data: Path | None, random: bool) -> tuple[Views, bool]:
    """The study's views and whether they are random: because it was wished, or the data is not there."""
    pick_device(device)
    absent = bool(missing_files(study.data.dataset, data_directory(data)))
    if random or (absent and study.data.dataset in CLASSES):
        return random_views(study, device), True
    views = load_views(study, device, data)
    fit_threads(numbers_in_a_step(study, views, study.graph.nodes))  # also decodes all of them
    return views, False
