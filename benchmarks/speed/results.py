"""Result files: what was measured, on which hardware, with which versions, at which revision."""

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lntrust.core.files import write_json
from lntrust.experiment.store import hardware, versions


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
    date, made_with = datetime.now(UTC).date().isoformat(), versions()
    path = folder / file_name(theme, device, date)
    frame = {
        "theme": theme, "date": date, "hardware": hardware(device), "versions": made_with,
        "revision": made_with.get("revision"), "study": study,
    }  # fmt: skip
    write_json(path, frame | body)
    return path
