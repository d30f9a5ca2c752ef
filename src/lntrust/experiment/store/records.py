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

from lntrust.core.files import clear, write_whole
from lntrust.experiment.metrics import Predictions
from lntrust.experiment.store.identity import revision


def clear_run(folder: Path) -> None:
    """Take away what a run has left in its folder."""
    clear(folder, "summary.json", "*.parquet", "checkpoint.safetensors", "evaluations/round-*")


class History:
    """What every round left behind, of each world: a mean loss, where one was taken, and all bytes so far."""

    def __init__(self, worlds: int) -> None:
        self._worlds = worlds
        self._rounds: list[tuple[Tensor | None, list[int]]] = []

    def note(self, losses: Tensor | None, totals: list[int]) -> None:
        self._rounds.append((losses, totals))

    def drop_last(self) -> Tensor | None:
        """Forget the last round; its losses."""
        return self._rounds.pop()[0]

    def copy(self) -> "History":
        out = History(self._worlds)
        out._rounds = list(self._rounds)
        return out

    def latest_loss(self) -> float | None:
        """The latest that was noted down, over all worlds."""
        return next((float(loss.nanmean()) for loss, _ in reversed(self._rounds) if loss is not None), None)

    def of(self, world: int) -> list[tuple[float | None, int]]:
        return [(None if loss is None else float(loss[world]), sent[world]) for loss, sent in self._rounds]

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint: [round, world] each; not a number where no loss was noted down."""
        nothing = torch.full((self._worlds,), torch.nan, dtype=torch.float64)
        losses = [nothing if loss is None else loss.double().cpu() for loss, _ in self._rounds]
        return {
            "history/loss": torch.stack(losses),
            "history/bytes": torch.tensor([totals for _, totals in self._rounds]),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        noted = [None if bool(loss.isnan().all()) else loss for loss in state["history/loss"]]
        self._rounds = list(zip(noted, state["history/bytes"].tolist(), strict=True))


Evaluations = dict[int, Predictions]  # by round


def packed(worlds: list[Evaluations]) -> dict[str, Tensor]:
    """The evaluations of several worlds as named tensors."""
    return {
        f"{world}/{done}/{way}": torch.from_numpy(predicted)
        for world, evaluations in enumerate(worlds)
        for done, ways in evaluations.items()
        for way, predicted in ways.items()
    }


def unpacked(tensors: dict[str, Tensor], worlds: int) -> list[Evaluations]:
    """And back."""
    out: list[Evaluations] = [{} for _ in range(worlds)]
    for name, predicted in tensors.items():
        world, done, way = name.split("/", 2)  # a variant's name has a slash of its own
        out[int(world)].setdefault(int(done), {})[way] = predicted.numpy()
    return out


def evaluation_file(folder: Path, number: int) -> Path:
    return folder / "evaluations" / f"round-{number:05d}.safetensors"


def write_rounds(folder: Path, history: list[tuple[float | None, int]], rows: list[dict[str, Any]]) -> None:
    """rounds.parquet: loss and bytes of every round, and the scores of those that were evaluated."""
    scored = {row["round"]: row for row in rows}
    table = []
    for number, (loss, total) in enumerate(history, 1):
        known = loss is not None and np.isfinite(loss)
        row = {"round": number, "loss": loss if known else None, "bytes": total}
        table.append(scored.get(number, {}) | row)
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
