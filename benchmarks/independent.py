"""How fast the plain schedule runs: `sparse-cifar10`, Independent, 250 rounds, one seed, on this machine.

    python benchmarks/independent.py

Prints seconds after the data is loaded, steps per second and peak memory, and writes them with hardware
and versions to benchmarks/results/. A benchmark, not a test: machines are shared and noisy.
"""

import json
import os
import platform
import resource
from datetime import UTC, datetime
from pathlib import Path

import torch

from lntrust import load_study
from lntrust.experiment.run import Run, versions
from lntrust.learners.views import Views, pick_device
from lntrust.world import load_dataset


def processor() -> str:
    """The CPU's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    study = load_study("sparse-cifar10")
    views = Views(load_dataset(study.data.dataset), pick_device("cpu"), torch.float32)
    for learner in study.population.learners:  # decoded once, before the clock starts
        _ = views[learner.view]
    summary = Run(study, "independent", 0, views)()
    steps = study.training.steps * (study.training.stage1_rounds + study.training.stage2_rounds)
    result = {
        "benchmark": "sparse-cifar10, independent, 250 rounds, seed 0",
        "seconds": summary["seconds"],
        "node_steps_per_second": round(steps * study.graph.nodes / summary["seconds"]),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "test": summary["test"],
        "hardware": {"cpu": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    name = f"independent_{platform.machine()}-{os.cpu_count()}-cores_{result['date']}.json"
    target = Path(__file__).parent / "results" / name
    target.parent.mkdir(exist_ok=True)
    target.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
