"""Result files: what was measured, on which hardware, with which versions, at which revision."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_json
from lntrust.experiment.store import hardware, versions

FOLDER = Path("benchmarks/results")


def revision() -> str | None:
    """The commit this code is at, with `-dirty` where files have been changed; none without git."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def file_name(theme: str, device: torch.device, date: str) -> str:
    """`<theme>_<hardware>_<date>.json`; the hardware is the GPU, or the machine and its cores."""
    name = f"{platform.machine()}-{os.cpu_count()}-cores"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return f"{theme}_{re.sub(r'[^a-z0-9_]+', '-', name.lower()).strip('-')}_{date}.json"


def write_result(
    theme: str, device: torch.device, study: dict[str, Any] | str | None, body: dict[str, Any], folder: Path
) -> Path:
    """Write a result with all that it depends on; returns the file."""
    if folder.is_file():
        raise LNTrustError(f"--out {folder}: is a file; must be a folder, or a name for a new one")
    date = datetime.now(UTC).date().isoformat()
    path = folder / file_name(theme, device, date)
    frame = {
        "theme": theme, "date": date, "hardware": hardware(device), "versions": versions(),
        "revision": revision(), "study": study,
    }  # fmt: skip
    write_json(path, frame | body)
    return path
