"""All that a restart needs, in one file that is whole or not there: tensors, and JSON beside them."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from lntrust.errors import LNTrustError
from lntrust.experiment.files import read_tensors, write_tensors

SCHEMA = 1
FILE = "node.safetensors"


@dataclass(frozen=True)
class Kept:
    """What is not a tensor."""

    name: str
    done: int  # rounds
    version: int  # of the model
    neighbours: list[str]  # the columns of the method's state, after the node itself
    probed: dict[str, int]  # at which version of its model each neighbour was probed
    data: str  # fingerprint of the data: fits and pseudo-labels name examples of it
    counters: dict[str, Any] = field(default_factory=dict)
    saved_at: str = ""
    replaced: bool = False  # whether the model is one that the owner put in, and not NODE.toml's
    weighting: str = "trust"  # what made the weights


def write_state(folder: Path, kept: Kept, tensors: dict[str, Tensor]) -> None:
    """Replaces the last state by one rename; if it fails, that one is still there."""
    text = json.dumps({"schema": SCHEMA, **asdict(kept)})
    write_tensors(folder / FILE, tensors, {"node": text}, mode=0o600)


def clear_leftovers(folder: Path) -> None:
    """Take away what a node that was killed while it wrote has left: at every kill a file, else, for ever."""
    for file in folder.glob(f".{FILE}.*"):
        with suppress(OSError):
            file.unlink()


def read_state(folder: Path, name: str) -> tuple[Kept, dict[str, Tensor]] | None:
    """The last state, if there is one."""
    path = folder / FILE
    if not path.is_file():
        return None
    tensors, metadata = read_tensors(path)
    try:
        table = json.loads(metadata["node"])
        schema = table.pop("schema")
        if schema != SCHEMA:
            raise LNTrustError(f"{path}: has schema {schema}; this lntrust reads {SCHEMA}")
        kept = Kept(**table)
    except (KeyError, TypeError, ValueError) as error:
        raise LNTrustError(f"{path}: is no node's state: {error}; remove it to start over") from None
    if kept.name != name:
        raise LNTrustError(f"{path}: is the state of {kept.name}, not of {name}; life.state names the folder")
    return kept, tensors
