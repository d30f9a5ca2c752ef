"""Scale: rounds of LNTrust as the number of nodes grows at the same mean degree.

Random graphs of mean degree 4.88, 100 labels per node by overlapping draws, random codes of CIFAR's shape:
time, memory and bytes do not depend on what the codes mean, and no accuracy is reported.
"""

from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.clock import PeakMemory, now
from benchmarks.speed.rounds import for_timing, rounds_by_kind
from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.experiment.driver import Run
from lntrust.learners.views import Views
from lntrust.study.loading import load_study
from lntrust.study.settings import Study
from lntrust.world import Dataset, World, build_world

DEGREE = 4.88  # of sparse-cifar10: 122 edges on 50 nodes
LABELS = 100  # per node
NODES = (50, 500, 5_000)
MORE_NODES = (10_000,)  # on a GPU
FEWEST = 6  # mean degree 4.88 needs as many


def scale_study(nodes: int, overrides: list[str]) -> Study:
    """sparse-cifar10 on a random graph of any size, made for timing rounds."""
    if nodes < FEWEST:
        raise LNTrustError(f"--nodes {nodes}: must be at least {FEWEST}, for a mean degree of {DEGREE}")
    grown = [
        f"graph.nodes={nodes}",
        "graph.kind=gnm",
        f"graph.density={DEGREE / (nodes - 1)}",
        "graph.connected=false",
        "partition.draws=overlapping",
        "partition.sizes=equal",
        f"partition.labelled={LABELS * nodes}",
        f"partition.minimum={LABELS}",
    ]
    return for_timing(load_study("sparse-cifar10", [*grown, *overrides]), "lntrust")


def measure(nodes: int, views: Views, overrides: list[str], seed: int = 0) -> dict[str, Any]:
    """Build and time one size."""
    study = scale_study(nodes, overrides)
    memory = PeakMemory(views.device)
    world_seconds = 0.0

    def make_world(study: Study, dataset: Dataset, seed: int, _: bool) -> World:
        nonlocal world_seconds
        start = now(views.device)
        world = build_world(study, dataset, seed)
        world_seconds = now(views.device) - start
        return world

    try:
        start = now(views.device)
        run = Run(study, "lntrust", seed, views, make_world=make_world)
        built = now(views.device)
        rounds = rounds_by_kind(run)
    except torch.cuda.OutOfMemoryError:
        raise LNTrustError(
            f"--nodes {nodes}: does not fit into the GPU's memory ({memory.peak:.1f} GB were in use)"
        ) from None
    return {
        "nodes": nodes,
        "edges": run.world.graph.number_of_edges(),
        "seconds": rounds.seconds,
        "bytes": rounds.bytes,
        "build_seconds": {"world": world_seconds, "rest": built - start - world_seconds},
        "peak_memory_gb": memory.peak,
        "memory_before_gb": memory.before,
    }


def plot(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Seconds, memory and bytes against nodes and against edges, both axes logarithmic."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    beyond = [max(1e-3, row["peak_memory_gb"] - row["memory_before_gb"]) for row in rows]
    # What is drawn, line by line; the guide starts where the first line does.
    panels: dict[str, dict[str, list[float]]] = {
        "seconds": {
            "distilling round": [row["seconds"]["distilling"] for row in rows],
            "supervised round": [row["seconds"]["supervised"] for row in rows],
            "refresh of trust": [max(1e-6, row["seconds"]["refresh"]) for row in rows],
        },
        "memory (GB)": {"beyond the data": beyond, "peak": [row["peak_memory_gb"] for row in rows]},
        "bytes": {kind: [row["bytes"][kind] for row in rows] for kind in ("distilling", "refresh")},
    }
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.color": "0.9", "axes.axisbelow": True}):
        figure = Figure(figsize=(10.5, 6), layout="constrained")
        axes = figure.subplots(2, len(panels))
        for row, across in enumerate(("nodes", "edges")):
            x = [each[across] for each in rows]
            for ax, (label, lines) in zip(axes[row], panels.items(), strict=True):
                for name, values in lines.items():
                    ax.plot(x, values, marker="o", markersize=4, label=name)
                start = next(iter(lines.values()))[0]
                ax.plot(x, [start * a / x[0] for a in x], ":", color="0.4", label="in proportion (slope 1)")
                ax.set(xscale="log", yscale="log", xlabel=across, ylabel=label)
                ax.set_xticks(x, [f"{a:,}" for a in x], rotation=25)
                ax.minorticks_off()
                if row == 0:
                    ax.legend(frameon=False, fontsize=8)
        figure.suptitle(title)
        write_whole(path, lambda temporary: figure.savefig(temporary, format="png", dpi=130))
