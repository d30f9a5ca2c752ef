"""Speed: whole runs, after the data is on the device; and how much faster than one node at a time."""

from typing import Any

from benchmarks.speed.clock import PeakMemory, now, timed_run
from benchmarks.speed.roofline import shortened
from benchmarks.speed.rounds import timed_kinds
from lntrust.experiment.driver import Run, Runs
from lntrust.learners.views import Views
from lntrust.study.settings import Study


def measure(
    study: Study, method: str, seeds: list[int], views: Views, loop_rounds: int = 10
) -> dict[str, Any]:
    """Runs of one method: a warm-up, then all seeds; on a GPU stacked on the node axis."""
    timed_kinds(study, method, seeds[0], views)
    memory = PeakMemory(views.device)
    stacked = views.device.type == "cuda" and len(seeds) > 1
    build, train = (
        all_at_once(study, method, seeds, views) if stacked else in_turn(study, method, seeds, views)
    )
    count = len(seeds)
    training = study.training
    steps = training.steps * (training.stage1_rounds + training.stage2_rounds) * study.graph.nodes
    out = {
        "study": study.name,
        "method": method,
        "seeds": seeds,
        "stacked": stacked,
        "seconds_per_run": (build + train) / count,
        "build_seconds_per_run": build / count,
        "node_steps_per_second": steps * count / (build + train),
        "peak_memory_gb": memory.peak,
        "memory_before_gb": memory.before,
    }
    if loop_rounds:
        out["loop"] = against_loop(study, method, seeds[0], views, loop_rounds)
    return out


def in_turn(study: Study, method: str, seeds: list[int], views: Views) -> tuple[float, float]:
    """Seconds to build, and to carry out, one run after another."""
    build = train = 0.0
    for seed in seeds:
        start = now(views.device)
        run = Run(study, method, seed, views)
        built = now(views.device)
        run()
        build, train = build + built - start, train + now(views.device) - built
    return build, train


def all_at_once(study: Study, method: str, seeds: list[int], views: Views) -> tuple[float, float]:
    """The same for all seeds at once."""
    start = now(views.device)
    runs = Runs(study, method, seeds, views)
    built = now(views.device)
    runs()
    return built - start, now(views.device) - built


def against_loop(study: Study, method: str, seed: int, views: Views, rounds: int) -> dict[str, Any]:
    """Both backends on the study, shortened: seconds, and how often `batched` goes into `loop`."""
    short = shortened(study, rounds)
    batched = min(timed_run(short, method, seed, views) for _ in range(2))
    loop = timed_run(short, method, seed, views, "loop")
    done = short.training.stage1_rounds + short.training.stage2_rounds
    return {"rounds": done, "batched_seconds": batched, "loop_seconds": loop, "ratio": loop / batched}
