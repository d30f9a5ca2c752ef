"""Files that appear whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lntrust.core.errors import LNTrustError


def write_whole(path: Path, write: Callable[[Path], object], mode: int = 0o644) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place by one rename.

    The temporary can be read by its owner only; the file gets `mode`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:  # safetensors wraps what the disk says
        why = error.strerror if isinstance(error, OSError) else None  # its text has a temporary name in it
        raise LNTrustError(f"cannot write {path}: {why or error}; nothing was left behind") from None


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    write_whole(path, lambda temporary: temporary.write_bytes(data), mode)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, "utf-8"))


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, mode: int = 0o644
) -> None:
    held: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous()
        where = flat.untyped_storage().data_ptr()
        held[name] = flat.clone() if where in memory else flat  # safetensors refuses shared memory
        memory.add(where)
    write_whole(path, lambda temporary: save_file(held, temporary, metadata), mode)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        why = f"not a readable safetensors file: {error}; remove it to start over"
        raise LNTrustError(f"{path}: {why}") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise LNTrustError(f"{path}: not a readable JSON file: {error}; remove it to start over") from None


def clear(folder: Path, *patterns: str) -> None:
    """Take these files away, for a fresh run."""
    try:
        for file in [file for pattern in patterns for file in folder.glob(pattern)]:
            file.unlink()
    except OSError as error:
        raise LNTrustError(f"cannot clear {folder} for a fresh run: {error}") from None
