"""A peer: gossip averaging of 100 linear heads, here and in gossipy, on the same data and graph.

One update is one merge of an arrived model and two SGD steps of 50 examples. Both sides are counted, not
assumed. gossipy is never imported: an interpreter that has it runs `benchmarks/peer_gossipy.py` with the
data in a file, and answers in JSON.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.clock import timed_stretch
from benchmarks.speed.data import random_dataset
from lntrust.core.errors import LNTrustError
from lntrust.experiment.driver import Run
from lntrust.learners.views import Views
from lntrust.study.settings import Study

SCRIPT = Path(__file__).parents[1] / "peer_gossipy.py"
LABELS, BATCH, STEPS = 100, 50, 2  # of a node: its examples, and how an update goes through them
NOTES = (
    "Same examples, graph, linear model, plain SGD and sample gradients per update; no evaluation is timed.",
    "gossipy: PUSH, MERGE_UPDATE, no delay, nothing dropped; a round of one time step, for the least "
    "bookkeeping. "
    "A node that receives two models merges and trains twice, one that receives none does neither.",
    "lntrust: gossip_fedavg, synchronous; every node trains once a round, after merging all that arrived.",
    "gossipy merges by the plain mean, lntrust by age; gossipy shuffles once per update, lntrust deals from "
    "one endless sequence of shuffles; lntrust also books every byte.",
    "Each side runs with 1 thread and with as many as are allowed, and its best counts. gossipy has no GPU "
    "mode here: with --device cuda only lntrust's side is on the GPU.",
)


def peer_study(nodes: int = 100, rounds: int = 50) -> Study:
    """Linear heads that gossip from the first round on; 100 examples each to train on."""
    return Study.model_validate(
        {
            "name": "peer",
            "data": {"dataset": "cifar10"},
            "graph": {"nodes": nodes, "kind": "gnm", "density": 0.1},
            "partition": {
                "labelled": 120 * nodes, "sizes": "equal", "test_fraction": 1 / 6, "skew": 1.0, "pool": 0,
                "shard": 0,
            },
            "population": {
                "learners": [
                    {"name": "linear", "kind": "linear", "view": "codes", "options": {"dropout": 0.0}}
                ]
            },
            "training": {
                "stage1_rounds": 0, "stage2_rounds": rounds, "steps": STEPS, "batch": BATCH, "lr": 0.01,
                "momentum": 0.0, "l2": 0.0,
            },
            "evaluation": {"every": 1_000_000},
        }
    )  # fmt: skip


def peer_views(study: Study, device: torch.device, features: int | None = None) -> Views:
    rows = study.partition.labelled * 5 // 4
    return Views(random_dataset(study, rows, features), device, torch.float32)


def ours(study: Study, views: Views, rounds: int) -> dict[str, Any]:
    """Rounds of gossip, the first two as a warm-up. The study must have more than that."""
    run = Run(study, "gossip_fedavg", 0, views)

    def counts() -> tuple[int, int]:
        pushes = run.network.ledger.summary()["by_phase"].get("push", {}).get("messages", 0)
        return int(pushes), run.population.calls.get("supervised", 0) * run.world.n

    seconds, before, after = timed_stretch(run, 2, rounds + 2, counts)
    merges, steps = (late - early for early, late in zip(before, after, strict=True))
    return {
        "threads": torch.get_num_threads(), "seconds": seconds, "rounds": rounds, "merges": merges,
        "updates": steps // STEPS, "steps": steps, "samples": steps * BATCH,
    }  # fmt: skip


def pack(study: Study, views: Views, path: Path) -> None:
    """What gossipy is given: the examples of every node in turn, and who knows whom."""
    run = Run(study, "gossip_fedavg", 0, views)
    ids = run.labelled.lists
    if set(ids.lengths.tolist()) != {LABELS}:
        raise RuntimeError(f"every node must hold {LABELS} examples, not {sorted(set(ids.lengths.tolist()))}")
    rows = torch.from_numpy(ids.values)
    x = views["codes"].cpu()[rows].view(run.world.n, LABELS, -1).numpy()
    y = run.world.labels[ids.values].reshape(run.world.n, LABELS)
    classes, lr = np.array(len(run.world.classes)), np.array(study.training.lr)
    with path.open("wb") as file:
        np.savez(file, x=x, y=y, edges=run.world.edges, classes=classes, batch=np.array(BATCH), lr=lr)


def theirs(python: Path, study: Study, views: Views, rounds: int, threads: list[int]) -> dict[str, Any]:
    """gossipy's versions and measurements, one for each entry of `threads`."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "peer.npz"
        pack(study, views, data)
        wanted = [part for count in threads for part in ("--threads", str(count))]
        command = [str(python), str(SCRIPT), str(data), "--rounds", str(rounds), *wanted]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise LNTrustError(f"--python {python}: cannot be run: {error}") from None
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise LNTrustError(
            f"--python {python}: cannot run gossipy: {last}\nGive the interpreter of an environment with "
            "gossipy and torch: python -m venv ENV, then ENV/bin/pip install gossipy-dfl"
        )
    out: dict[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
    return out


def compare(
    device: torch.device, python: Path | None, rounds: int, threads: int, repeats: int
) -> dict[str, Any]:
    """Both sides, each at its best; the peer's is none where there is no interpreter for it."""
    study = peer_study(rounds=rounds + 3)
    views = peer_views(study, device)
    tried = [count for count in sorted({1, threads}) for _ in range(repeats)]
    peer = None if python is None else theirs(python, study, views, rounds, tried)
    own = []
    for count in tried:
        torch.set_num_threads(count)
        own.append(ours(study, views, rounds))
    torch.set_num_threads(threads)
    sides = {"lntrust": own} | ({} if peer is None else {"gossipy": peer["measured"]})
    best = {name: max(side, key=rate) for name, side in sides.items()}
    rates = {name: rate(one) for name, one in best.items()}
    return {
        "nodes": study.graph.nodes,
        "update": f"one merge, {STEPS} SGD steps of {BATCH} examples",
        "best": best,
        "measured": sides,
        "updates_per_second": rates,
        "ratio": rates["lntrust"] / rates["gossipy"] if peer else None,
        "peer_versions": peer["versions"] if peer else None,
        "notes": list(NOTES),
    }


def rate(measured: dict[str, Any]) -> float:
    """Updates per second."""
    return float(measured["updates"] / measured["seconds"])
