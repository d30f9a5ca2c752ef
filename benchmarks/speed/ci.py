"""The one-minute version: ratios, which travel between machines better than seconds do.

All smaller is better: a run to its roofline, and all nodes at once to one at a time. Every time is the
shortest of three, so that a neighbour on the machine does not decide. A ratio fails where it is worse than
the committed one by a factor of 2.
"""

from pathlib import Path
from typing import Any

import torch

from benchmarks.speed import roofline
from benchmarks.speed.clock import timed_run
from benchmarks.speed.data import random_views
from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json, write_json
from lntrust.experiment.driver import Run
from lntrust.experiment.store import versions
from lntrust.learners.views import Views
from lntrust.study.loading import load_study
from lntrust.study.settings import Study

BASELINE = Path("benchmarks/ci_baseline.json")
FACTOR = 2.0
METHODS = ("lntrust", "independent")
_TRIES = 3
_ROWS, _FEATURES = 10_000, 512
_SETS = (
    "graph.nodes=30", "graph.density=0.15", "partition.labelled=4000", "partition.pool=2000",
    "partition.shard=500",
    "training.stage1_rounds=5", "training.stage2_rounds=20", "methods.lntrust.budget=250",
    "methods.lntrust.warmup=1",
)  # fmt: skip
_LOOP_ROUNDS = 5


def small_study() -> Study:
    """sparse-cifar10 in small: fewer nodes, examples and rounds, and narrower codes."""
    return load_study("sparse-cifar10", _SETS)


def measure(study: Study | None = None, views: Views | None = None) -> dict[str, float]:
    """The ratios of this machine, on one thread: two would mostly measure who else is there."""
    study = study or small_study()
    views = views or random_views(study, rows=_ROWS, features=_FEATURES)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        out: dict[str, float] = {}
        for method in METHODS:
            out |= _ratios(study, method, views)
        return out
    finally:
        torch.set_num_threads(before)


def _ratios(study: Study, method: str, views: Views) -> dict[str, float]:
    run = Run(study, method, 0, views)
    works, plan = roofline.work(run), roofline.schedule(study, method, run.method.settings)
    short = roofline.shortened(study, _LOOP_ROUNDS)
    roof, ran, batched, loop = ([] for _ in range(4))
    for _ in range(_TRIES):  # in turn, so that a busy minute is everybody's
        parts = [roofline.measure(each, views.device, views.dtype, seconds=0.05) for each in works]
        roof.append(roofline.total(parts, plan)["run"])
        ran.append(timed_run(study, method, 0, views))
        batched.append(timed_run(short, method, 0, views))
        loop.append(timed_run(short, method, 0, views, "loop"))
    return {
        f"{method}: run to roofline": min(ran) / min(roof),
        f"{method}: batched to loop": min(batched) / min(loop),
    }


def read_baseline(path: Path) -> dict[str, float]:
    """The committed ratios."""
    if not path.is_file():
        raise LNTrustError(f"--baseline {path}: is not there; --update writes it")
    table = read_json(path)
    ratios = table.get("ratios") if isinstance(table, dict) else None
    if not isinstance(ratios, dict) or not all(isinstance(v, int | float) and v > 0 for v in ratios.values()):
        raise LNTrustError(f"--baseline {path}: must hold `ratios`, positive numbers by name")
    return {name: float(value) for name, value in ratios.items()}


def write_baseline(path: Path, ratios: dict[str, float], hardware: dict[str, Any]) -> None:
    rounded = {name: round(ratio, 4) for name, ratio in ratios.items()}
    write_json(path, {"ratios": rounded, "hardware": hardware, "versions": versions()})


def worse(ratios: dict[str, float], committed: dict[str, float]) -> list[str]:
    """What has become worse than the committed ratio by a factor of 2 or more; and what nobody measures."""
    slower = [
        f"{name}: {ratios[name]:.3g}, and {was:.3g} is committed; {ratios[name] / was:.2f} times as much"
        for name, was in committed.items()
        if name in ratios and ratios[name] >= FACTOR * was
    ]
    return slower + [
        f"{name}: is committed, and was not measured" for name in committed if name not in ratios
    ]
