"""Sweeps: methods × seeds × settings as tasks that do not know of each other.

On a CPU a task is one run. On a GPU it is one method at one setting with all its seeds in one stack, and has
the whole GPU. Processes of this machine (`local.py`) or of many (`ray.py`) carry tasks out (`attempts.py`).
What crosses to them and back is JSON; what remains are ordinary run folders.
"""

import itertools
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from lntrust.core.errors import LNTrustError
from lntrust.core.files import clear, read_json
from lntrust.core.text import seeds_text
from lntrust.experiment.store.identity import checkpoint, data_digest, fingerprint, identities, slug
from lntrust.experiment.store.records import clear_run
from lntrust.experiment.store.worlds import world_file
from lntrust.learners.inference import Backend
from lntrust.study.loading import load_study
from lntrust.study.settings import Study, once_each
from lntrust.world import Dataset, load_dataset

Setting = dict[str, str]  # path of a field → its value, as the command line has it
Summary = dict[str, Any]


class Task(BaseModel):
    """What one worker does at a time: one method at one setting, with one seed or a stack of them."""

    model_config = ConfigDict(frozen=True)

    study: Study
    method: str
    seeds: list[int]
    device: str
    setting: Setting
    data: str | None = None  # the digest of the dataset, as far as the study's learners see it
    backend: Backend = "batched"
    certify: bool = False
    share_stage1: bool = False  # take Stage 1 from another task's run where it is the same, or leave it there

    def __str__(self) -> str:
        setting = [f"{path}={value}" for path, value in self.setting.items()]
        return ", ".join([self.method, seeds_text(self.seeds), *setting])

    @property
    def identities(self) -> list[dict[str, Any]]:
        """What each seed's run is."""
        made = (self.device, self.data, self.backend, self.certify)
        return identities(self.study, self.method, self.seeds, *made)

    def on(self, dataset: Dataset) -> "Task":
        """The same task on this very content of its dataset."""
        return self.model_copy(update={"data": data_digest(self.study, dataset)})

    @property
    def folders(self) -> list[Path]:
        """The run folder of each seed, below the folder of all runs."""
        return [slug(each) for each in self.identities]

    def finished(self, below: Path) -> list[Summary] | None:
        """The summaries, when all of them are there, and their worlds are described."""
        done = all(is_finished(below, of) for of in self.identities)
        return [read_json(below / folder / "summary.json") for folder in self.folders] if done else None


def is_finished(below: Path, of: dict[str, Any]) -> bool:
    """An earlier version left no world; the run itself need not be made again for that."""
    return (below / slug(of) / "summary.json").is_file() and (below / world_file(of)).is_file()


class Answer(BaseModel):
    """What became of a task: a summary for each seed, or why there are none."""

    summaries: list[Summary] = []
    notices: list[str] = []
    error: str | None = None
    superseded: bool = False  # another process has taken the run over


class Work(BaseModel):
    """What all tasks of a sweep share. Paths are absolute: a worker may stand elsewhere."""

    folder: Path
    here: Path  # where the command was given: a study's own files and modules are found from there
    data: Path | None = None
    threads: int = 1


def axes(grids: Sequence[str]) -> dict[str, list[str]]:
    """Paths and their values, as `path=value,value,…` has them.

    >>> axes(["graph.nodes=5,10", 'graph.kind="ring"'])
    {'graph.nodes': ['5', '10'], 'graph.kind': ['"ring"']}
    """
    found: dict[str, list[str]] = {}
    for grid in grids:
        path, sign, text = grid.partition("=")
        path = path.strip()
        if not sign or not path:
            raise LNTrustError(f"--grid {grid}: must look like path.to.field=value,value,…")
        values = _values(text)
        if path in found or len(set(values)) < len(values):
            raise LNTrustError(f"--grid {grid}: each path, and each of its values, can be given once")
        if not all(values):
            raise LNTrustError(f"--grid {grid}: a value is empty, or its brackets or quotes do not close")
        found[path] = values
    return found


def _values(text: str) -> list[str]:
    """The values between commas; a comma inside brackets or quotes is part of a value."""
    values, begun = [], ""
    for piece in text.split(","):
        begun += piece
        if _whole(begun):
            values.append(begun.strip())
            begun = ""
        else:
            begun += ","
    return values + [""] * bool(begun)


def _whole(text: str) -> bool:
    """Whether this is a TOML value, or a bare word."""
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return not any(mark in text for mark in "[]{}\"'")
    return True


def plan(
    study: str, sets: Sequence[str], grids: Sequence[str], methods: Sequence[str], seeds: Sequence[int],
    device: str,
) -> list[Task]:  # fmt: skip
    """Every task of a sweep. All settings are read and checked here, before any work.

    A method is run once for all settings that make no difference to it, so that a grid over
    `methods.lntrust.…` does not multiply the others. A grid that makes no difference at all is refused.
    """
    grid = axes(grids)
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    studies = [load_study(study, [*sets, *(f"{k}={v}" for k, v in one.items())]) for one in settings]
    methods = list(dict.fromkeys(methods or studies[0].compare))
    seeds = once_each(seeds or studies[0].seeds, "--seed")
    stacks = [sorted(seeds)] if device == "cuda" else [[seed] for seed in seeds]
    tasks: list[Task] = []
    idle = {path for path, values in grid.items() if len(values) > 1}
    for method in methods:
        prints = [fingerprint(*identities(each, method, [0], device, None)) for each in studies]
        felt = [path for path in grid if _matters(path, settings, prints)]
        idle -= set(felt)
        for k, one in enumerate(settings):
            if prints[k] not in prints[:k]:
                of = {"study": studies[k], "method": method, "device": device}
                own = {path: one[path] for path in felt}
                tasks += [Task(seeds=some, setting=own, **of) for some in stacks]
    if idle:
        raise LNTrustError(f"--grid {min(idle)}: makes no difference to {', '.join(methods)}")
    return tasks


def _matters(path: str, settings: Sequence[Setting], prints: Sequence[str]) -> bool:
    """Whether two settings that differ in this field alone are different runs."""
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for setting, made in zip(settings, prints, strict=True):
        alike[tuple(value for key, value in setting.items() if key != path)].add(made)
    return any(len(different) > 1 for different in alike.values())


def datasets_of(tasks: Sequence[Task], data: Path | None) -> dict[str, Dataset]:
    """The datasets of a sweep by name. What is missing is found here, and not by every task."""
    found: dict[str, Dataset] = {}
    for task in tasks:
        name = task.study.data.dataset
        if name not in found:
            found[name] = load_dataset(name, data)
        for learner in task.study.population.learners:
            if learner.view not in found[name].views:
                found[name].view(learner.view)  # says which views there are
    return found


def forget(tasks: Sequence[Task], folder: Path) -> None:
    """Take away what earlier runs of these tasks have left, so that all of it is made anew."""
    for task in tasks:
        runs = task.identities
        for place in {*map(slug, runs), checkpoint(runs).parent}:
            clear_run(folder / place)
        clear(folder / task.study.name / "stage1", "*.safetensors")
