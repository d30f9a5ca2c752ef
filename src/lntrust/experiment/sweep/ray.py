"""A sweep's tasks on a Ray cluster.

Only JSON, numpy arrays and paths cross. A dataset's arrays go into Ray's object store once; every machine
gets one copy, which its workers read in place. A worker process keeps what it has decoded for later tasks.
Ray gives the task of a lost worker to another one, which finds the checkpoint in the folder of runs: that
folder lies on a file system which all machines share.
"""

import json
import logging
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.experiment.sweep.attempts import answer
from lntrust.experiment.sweep.plan import Answer, Task, Work
from lntrust.world.data.datasets import Coded, Dataset, View

RETRIES = 2  # a task whose worker or machine is lost so often, and then once more, is given up
_PLAIN = ("name", "classes", "input_shape", "input_dtype")
_ARRAYS = ("labels", "latitude", "longitude", "subject", "segment")
_CODED = ("codes", "step", "offset")
Arrays = dict[str, ndarray]


# -- a dataset as JSON and arrays -----------------------------------------------------------------


def packed(dataset: Dataset, views: Sequence[str]) -> tuple[str, Arrays]:
    """A dataset with some of its views, taken apart."""
    arrays = {name: array for name in _ARRAYS if (array := getattr(dataset, name)) is not None}
    for name in views:
        view = dataset.view(name)
        parts = {part: getattr(view, part) for part in _CODED} if isinstance(view, Coded) else {"": view}
        arrays |= {f"view/{name}/{part}": array for part, array in parts.items()}
    return json.dumps({"views": list(views), **{name: getattr(dataset, name) for name in _PLAIN}}), arrays


def unpacked(header: str, arrays: Arrays) -> Dataset:
    """The same dataset again, on the very memory of the arrays."""
    parts: dict[str, Any] = json.loads(header)

    def view(name: str) -> View:
        whole = arrays.get(f"view/{name}/")
        return Coded(*(arrays[f"view/{name}/{part}"] for part in _CODED)) if whole is None else whole

    parts |= {name: arrays[name] for name in _ARRAYS if name in arrays}
    parts |= {name: tuple(parts[name]) for name in ("classes", "input_shape")}
    return Dataset(**parts | {"views": {name: partial(view, name) for name in parts["views"]}})


# -- the worker's side ----------------------------------------------------------------------------


def _remote(task: str, shared: str, headers: dict[str, str], stored: dict[str, Any]) -> str:
    """A task on a worker. `stored` has references into the object store, by dataset."""
    import ray

    here = Work.model_validate_json(shared).here
    if here.is_dir():
        os.chdir(here)
    # What lies in the object store is everybody's. Nobody writes to views; torch would warn all the same.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    return answer(task, shared, lambda name: unpacked(headers[name], ray.get(stored[name])))


# -- the sweep's side -----------------------------------------------------------------------------


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Use the cluster at an address, or one on this machine that ends with the sweep."""
    if find_spec("ray") is None:
        raise LNTrustError("--on ray needs ray, which is not installed; pip install 'lntrust[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports to nobody what is done here
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do; it warns until then
    if address is None:  # Ray asks nobody who they are: one for this machine alone stays on loopback
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    own = {} if address else {"include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"--address {address}: no Ray cluster to be used" if address else "--on ray: cannot start"
        raise LNTrustError(f"{where}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def device_of_cluster(device: str) -> str:
    """`auto` is a GPU where the cluster has one, whatever this machine has."""
    import ray

    gpus = ray.cluster_resources().get("GPU", 0)
    if device == "cuda" and not gpus:
        raise LNTrustError("--device cuda: the Ray cluster has no GPU; use --device cpu or auto")
    if device == "auto":
        return "cuda" if gpus else "cpu"
    return device


def run_tasks(
    tasks: Sequence[Task], work: Work, datasets: Mapping[str, Dataset]
) -> Generator[tuple[Task, Answer], None, None]:
    """Every task with its answer, as they are done. Closing the iterator cancels the rest."""
    import ray

    most = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    if work.threads > most:
        raise LNTrustError(f"--threads {work.threads}: no machine of the Ray cluster offers more than {most}")
    headers, stored = {}, {}
    for name, dataset in datasets.items():
        studies = [task.study for task in tasks if task.study.data.dataset == name]
        seen = {learner.view for study in studies for learner in study.population.learners}
        headers[name], arrays = packed(dataset, sorted(seen))
        stored[name] = ray.put({part: np.ascontiguousarray(array) for part, array in arrays.items()})
    remote = ray.remote(_remote).options(
        num_cpus=work.threads,
        num_gpus=1 if any(task.device == "cuda" for task in tasks) else 0,
        max_retries=RETRIES,
        scheduling_strategy="SPREAD",
    )
    shared = work.model_dump_json()
    pending = {remote.remote(task.model_dump_json(), shared, headers, stored): task for task in tasks}
    try:
        while pending:
            (ready, *_), _ = ray.wait(list(pending), num_returns=1)
            task = pending.pop(ready)
            yield task, _receive(ready, task, work)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _receive(reference: Any, task: Task, work: Work) -> Answer:
    import ray

    try:
        answer = Answer.model_validate_json(ray.get(reference))
    except ray.exceptions.RayError as error:
        lost = f"its worker was lost {RETRIES + 1} times, or cannot be used"
        return Answer(error=f"{lost}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
    if answer.error is None and task.finished(work.folder) is None:
        where = work.folder / task.folders[0]
        return Answer(error=f"done, but {where} is not here: --out must be a folder that all machines share")
    return answer
