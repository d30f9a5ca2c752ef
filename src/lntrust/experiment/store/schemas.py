"""Runs that earlier versions recorded: one table brings what they wrote to what is written today.

The schema is a number in `run.json`, under `content`. It goes up whenever a run of the same settings gets
another result, or its record another form. An older record is then another run's, and stays readable.
A setting that only has another name now is no other run: the table of names stands beside the settings.
"""

from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.methods.lntrust.settings import RENAMED

SCHEMA = 2
Identity = dict[str, Any]
_PARTS = ("settings", "answerer")  # where a run's identity has settings of methods


def upgrade(identity: Identity) -> Identity:
    """What a stored run would be called today."""
    schema = identity.get("content", {}).get("schema", 1)
    if schema not in range(1, SCHEMA + 1):
        raise LNTrustError(f"schema {schema}: recorded by a newer lntrust; this one knows up to {SCHEMA}")
    return _renamed(_from_1(identity) if schema == 1 else identity, RENAMED)


def under_old_names(identity: Identity) -> Identity:
    """The same with every setting under the name that it had first."""
    return _renamed(identity, {new: old for old, new in RENAMED.items()})


def _renamed(identity: Identity, names: dict[str, str]) -> Identity:
    parts = {part: identity[part] for part in _PARTS if part in identity}
    return identity | {part: {names.get(k, k): v for k, v in table.items()} for part, table in parts.items()}


def _from_1(identity: Identity) -> Identity:
    """Schema 1 said nothing of content, and Weighted Majority's weights were not normalised."""
    out = {**identity, "content": {"schema": 2}}
    for part in _PARTS:
        if out.get(part, {}).get("weighting") == "weighted_majority":
            out[part] = {**out[part], "weighting": "weighted_majority (superseded)"}
    return out
