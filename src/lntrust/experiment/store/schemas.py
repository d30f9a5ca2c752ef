"""Runs that earlier versions recorded: one table brings what they wrote to what is written today.

The schema is a number in `run.json`, under `content`: of the latest correction that gave a run of these
settings another result. So a run that no correction concerns keeps its name. A record of before is another
run's, stays readable, and is marked as superseded.
A setting that only has another name now is no other run: the table of names stands beside the settings.
"""

from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.methods.lntrust.settings import RENAMED

SCHEMA = 3
_FIRST = 2  # what runs have that nothing concerned since they tell their content
Identity = dict[str, Any]
_PARTS = ("settings", "answerer")  # where a run's identity has settings of methods
# What was corrected: since which schema, where in the identity, and the value that means something else now.
CORRECTED: tuple[tuple[int, tuple[str, ...], str], ...] = (
    (2, ("settings", "weighting"), "weighted_majority"),  # its weights were not normalised
    (2, ("answerer", "weighting"), "weighted_majority"),
    (3, ("study", "reading"), "paper"),  # was overlapping draws and the best round only
    (3, ("study", "partition", "split"), "per_class_rounded"),  # rounded down; is now per_class_nearest
)
SUPERSEDED = " (superseded)"


def upgrade(identity: Identity) -> Identity:
    """What a stored run would be called today."""
    schema = identity.get("content", {}).get("schema", 1)
    if schema not in range(1, SCHEMA + 1):
        raise LNTrustError(f"schema {schema}: recorded by a newer lntrust; this one knows up to {SCHEMA}")
    if schema == 1:  # said nothing of content
        identity = {**identity, "content": {"schema": _FIRST}}
    for since, path, value in CORRECTED:
        if schema < since and _at(identity, path) == value:
            identity = _with(identity, path, value + SUPERSEDED)
    return _renamed(identity, RENAMED)


def corrected(identity: Identity) -> int | None:
    """The latest schema that gave a run like this another result; none: all of them left it as it was."""
    return max((since for since, path, value in CORRECTED if _at(identity, path) == value), default=None)


def schema_of(identity: Identity) -> int:
    """What a run that is made today is recorded under."""
    return corrected(identity) or _FIRST


def under_old_names(identity: Identity) -> Identity:
    """The same with every setting under the name that it had first."""
    return _renamed(identity, {new: old for old, new in RENAMED.items()})


def _renamed(identity: Identity, names: dict[str, str]) -> Identity:
    parts = {part: identity[part] for part in _PARTS if part in identity}
    return identity | {part: {names.get(k, k): v for k, v in table.items()} for part, table in parts.items()}


def _at(table: Any, path: tuple[str, ...]) -> Any:
    """What stands there; none, where nothing does."""
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return table


def _with(table: dict[str, Any], path: tuple[str, ...], value: str) -> dict[str, Any]:
    first, *rest = path
    return {**table, first: _with(table[first], tuple(rest), value) if rest else value}
