"""What a run folder holds beside its checkpoint."""

import os
import platform
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from lntrust.core.files import clear, write_json, write_whole
from lntrust.experiment.metrics import finite
from lntrust.experiment.store.identity import revision
from lntrust.study.settings import Study


def clear_run(folder: Path) -> None:
    """Take away what a run has left in its folder."""
    clear(folder, "summary.json", "*.parquet", "checkpoint.safetensors", "evaluations/round-*")


def evaluated_rounds(study: Study) -> list[int]:
    """The rounds after which what nodes answer is stored."""
    rounds, every = study.training.rounds, study.evaluation.every
    return sorted({*range(every, rounds + 1, every), study.training.stage1_rounds, rounds} - {0})


def evaluation_file(folder: Path, number: int) -> Path:
    return folder / "evaluations" / f"round-{number:05d}.safetensors"


def rounds_table(history: list[tuple[float, int]], rows: list[dict[str, Any]]) -> pa.Table:
    """Loss (NaN: not taken) and bytes of every round, and the scores of those that were evaluated."""
    scored = {row["round"]: row for row in rows}
    table = [
        {**scored.get(number, {}), "round": number, "loss": finite(loss), "bytes": total}
        for number, (loss, total) in enumerate(history, 1)
    ]
    whole, real = pa.int64(), pa.float64()
    scores = [(name, real) for name in ("test", "self", "test_pooled", "self_pooled")]
    schema = pa.schema([("round", whole), ("loss", real), ("bytes", whole), *scores])
    return pa.Table.from_pylist(table, schema=schema)


def write_results(folder: Path, summary: dict[str, Any], tables: dict[str, Any]) -> None:
    """What a finished run leaves; its summary last, since that says so."""
    for name, columns in tables.items():
        write_whole(folder / f"{name}.parquet", partial(pq.write_table, pa.table(columns)))
    write_json(folder / "summary.json", summary)


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
    found = re.search(r"^model name\s*:(.*)", info.read_text("utf-8") if info.is_file() else "", re.M)
    return found[1].strip() if found else platform.processor() or platform.machine()


def hardware(device: torch.device) -> dict[str, Any]:
    """What a run or a measurement was made on. `gpu` is none where it ran on the CPU."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }
