"""All that a restart needs, in one file that is whole or not there: tensors, and JSON beside them."""

import json
from contextlib import suppress
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.fleet.logs import failed
from lntrust.fleet.training.data import Seen
from lntrust.methods.base import Tensors, below

SCHEMA = 1
FILE = "node.safetensors"
_REMOVE = "; remove it to start over"
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]  # a tensor holds it


class TornStateError(LNTrustError):
    """A state that nobody can read: half a file, or something else under its name."""


class NodeState(BaseModel):
    """What is not a tensor."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: str
    done: _Count  # rounds
    version: _Count  # of the model
    neighbours: list[str]  # the columns of the method's state, after the node itself
    probed: dict[str, int]  # at which version of its model each neighbour was probed
    data: str  # fingerprint of the data: fits and pseudo-labels name examples of it
    counters: dict[str, dict[str, int]] = {}
    saved_at: str = ""
    replaced: bool = False  # whether the model is one that the owner put in, and not NODE.toml's
    weighting: str = "trust"  # what made the weights


class Saved(NamedTuple):
    """A state as it was saved. Tensors by name: population/…, method/…, settled/…, ledger/…, seen/…"""

    node: NodeState
    tensors: Tensors

    @property
    def seen(self) -> Seen:
        """What the node used which inputs for; nothing, where an earlier version's state does not say."""
        parts = below("seen/", self.tensors)
        return Seen(**{each.name: parts[each.name].numpy() for each in fields(Seen) if each.name in parts})


def write_state(folder: Path, saved: Saved) -> None:
    """Replaces the last state by one rename; if it fails, that one is still there."""
    text = json.dumps({"schema": SCHEMA, **saved.node.model_dump()})
    write_tensors(folder / FILE, saved.tensors, {"node": text}, mode=0o600)


def load_state(folder: Path, name: str) -> tuple[Saved | None, str | None]:
    """The last state, for a node that starts; none, if there is none that can be read.

    A torn one is put aside, so that the node starts without it; the second is where it lies now.
    """
    with suppress(OSError):
        # A node that was killed while it wrote has left them, ours and safetensors' own.
        for unfinished in (*folder.glob(f".{FILE}.*"), *folder.glob(".tmp??????")):
            unfinished.unlink()
    try:
        return read_state(folder, name), None
    except TornStateError as error:
        aside = next(p for n in count(1) if not (p := folder / f"{FILE}.torn-{n}").exists())
        try:
            (folder / FILE).rename(aside)
        except OSError as stuck:
            raise LNTrustError(f"{error}; it cannot be put aside: {stuck.strerror}") from None
        why = TornStateError(str(error).removesuffix(_REMOVE))  # it is out of the way
        failed("state cannot be read", why, kept_as=str(aside), note="the node begins anew")
        return None, str(aside)


def read_state(folder: Path, name: str) -> Saved | None:
    """The last state, if there is one."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        path.open("rb").close()
    except OSError as error:  # one that we may not read is not torn
        raise LNTrustError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        tensors, metadata = read_tensors(path)
        table = json.loads(metadata["node"])
        schema = table.pop("schema")
    except LNTrustError as error:
        raise TornStateError(str(error)) from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TornStateError(f"{path}: is no node's state: {error}{_REMOVE}") from None
    if schema != SCHEMA:
        raise LNTrustError(f"{path}: has schema {schema}; this lntrust reads {SCHEMA}")
    if unknown := table.keys() - NodeState.model_fields.keys():
        raise LNTrustError(
            f"{path}: has {', '.join(sorted(unknown))}, which this lntrust does not know: another version's "
            "state; go on with that version, or set life.state to a new folder"
        )
    try:
        node = NodeState.model_validate(table)
    except ValidationError as error:
        wrong = error.errors()[0]
        why = f"{'.'.join(map(str, wrong['loc']))} = {wrong['input']!r}: {wrong['msg']}"
        raise TornStateError(f"{path}: is no node's state: {why}{_REMOVE}") from None
    if node.name != name:
        raise LNTrustError(f"{path}: is the state of {node.name}, not of {name}; life.state names the folder")
    return Saved(node, tensors)
