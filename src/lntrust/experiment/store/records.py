"""What a run folder holds beside its checkpoint."""

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from lntrust.core.files import clear, read_tensors, write_tensors, write_whole
from lntrust.experiment.metrics import Predictions, finite
from lntrust.experiment.store.identity import revision


def clear_run(folder: Path) -> None:
    """Take away what a run has left in its folder."""
    clear(folder, "summary.json", "*.parquet", "checkpoint.safetensors", "evaluations/round-*")


class History:
    """What every round left behind, of each world: a mean loss, where one was taken, and all bytes so far."""

    def __init__(self, worlds: int) -> None:
        self._worlds = worlds
        self.rounds: dict[int, tuple[Tensor | None, list[int]]] = {}  # by number

    def latest_loss(self) -> float | None:
        """The latest that was noted down, over all worlds."""
        losses = (loss for loss, _ in reversed(self.rounds.values()) if loss is not None)
        return next((float(loss.nanmean()) for loss in losses), None)

    def of(self, world: int) -> list[tuple[float | None, int]]:
        noted = self.rounds.values()
        return [(None if loss is None else float(loss[world]), sent[world]) for loss, sent in noted]

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint: [round, world] each; not a number where no loss was noted down."""
        nothing = torch.full((self._worlds,), torch.nan, dtype=torch.float64)
        noted = self.rounds.values()
        losses = [nothing if loss is None else loss.double().cpu() for loss, _ in noted]
        totals = torch.tensor([sent for _, sent in noted])
        return {"history/loss": torch.stack(losses), "history/bytes": totals}

    def load(self, state: dict[str, Tensor]) -> None:
        losses = [None if bool(loss.isnan().all()) else loss for loss in state["history/loss"]]
        noted = zip(losses, state["history/bytes"].tolist(), strict=True)
        self.rounds = dict(enumerate(noted, 1))


Evaluations = dict[int, Predictions]  # by round


def evaluation_file(folder: Path, number: int) -> Path:
    return folder / "evaluations" / f"round-{number:05d}.safetensors"


def write_evaluation(folder: Path, number: int, predicted: Predictions) -> None:
    tensors = {way: torch.from_numpy(classes) for way, classes in predicted.items()}
    write_tensors(evaluation_file(folder, number), tensors)


def read_evaluation(folder: Path, number: int) -> Predictions:
    return {way: classes.numpy() for way, classes in read_tensors(evaluation_file(folder, number))[0].items()}


def write_rounds(folder: Path, history: list[tuple[float | None, int]], rows: list[dict[str, Any]]) -> None:
    """rounds.parquet: loss and bytes of every round, and the scores of those that were evaluated."""
    scored = {row["round"]: row for row in rows}
    table = [
        {**scored.get(number, {}), "round": number, "loss": finite(loss), "bytes": total}
        for number, (loss, total) in enumerate(history, 1)
    ]
    whole, real = pa.int64(), pa.float64()
    scores = [(name, real) for name in ("test", "self", "test_pooled", "self_pooled")]
    schema = pa.schema([("round", whole), ("loss", real), ("bytes", whole), *scores])
    arrow = pa.Table.from_pylist(table, schema=schema)
    write_whole(folder / "rounds.parquet", lambda temporary: pq.write_table(arrow, temporary))


def versions() -> dict[str, str]:
    """What the result may depend on besides the study."""
    from lntrust import __version__

    return {
        "lntrust": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "machine": platform.machine(), **revision(),
    }  # fmt: skip


def processor() -> str:
    """The CPU's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def hardware(device: torch.device) -> dict[str, Any]:
    """What a run or a measurement was made on. `gpu` is none where it ran on the CPU."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }
