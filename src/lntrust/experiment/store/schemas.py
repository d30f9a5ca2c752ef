"""Runs that earlier versions recorded: one table brings what they wrote to what is written today.

The schema is a number in `run.json`, under `content`. It goes up whenever a run of the same settings gets
another result, or its record another form. Only runs that a correction speaks of bear its number: the
others keep the one they had, and with it their name. An older record of what was corrected is another
run's; it stays readable, with "(superseded)" behind the name of what was corrected. A setting that only has
another name now is no other run: the table of names stands beside the settings.
"""

from typing import Any, NamedTuple

from lntrust.core.errors import LNTrustError
from lntrust.methods.lntrust.settings import RENAMED

SCHEMA = 3
Identity = dict[str, Any]
_PARTS = ("settings", "answerer")  # where a run's identity has settings of methods
_SUPERSEDED = " (superseded)"


class Correction(NamedTuple):
    """From this schema on, runs with this value have another result."""

    schema: int
    path: tuple[str, ...]  # where in a run's identity it stands
    value: str
    what: str


CORRECTIONS = (
    *(Correction(2, (p, "weighting"), "weighted_majority", "weights were not normalised") for p in _PARTS),
    *(Correction(3, (p, "weighting"), "linucb", "it learned from arms that were not played") for p in _PARTS),
    Correction(3, ("method",), "fedmd", "one step a round, its slope divided by C, and no transfer phase"),
    Correction(3, ("method",), "mean_teacher", "the decay stayed as it is during the ramp"),
    Correction(3, ("study", "reading"), "paper", "overlapping draws and the best round only"),
    Correction(3, ("study", "partition", "split"), "per_class_rounded", "down; now per_class_nearest"),
)


def corrected_in(identity: Identity) -> int | None:
    """The schema in which the results of runs like this one last changed; none: they never did."""
    return max((each.schema for each in CORRECTIONS if _speaks_of(each, identity)), default=None)


def schema_of(identity: Identity) -> int:
    """What a run like this bears today: content came with the second."""
    return corrected_in(identity) or 2


def shared_content(identity: Identity) -> dict[str, Any]:
    """The content of a run as far as all methods share it: worlds and Stage 1 are not another method's."""
    content: dict[str, Any] = identity["content"]
    return {**content, "schema": 2} if "schema" in content else content


def upgrade(identity: Identity) -> Identity:
    """What a stored run would be called today."""
    schema = identity.get("content", {}).get("schema", 1)
    if schema not in range(1, SCHEMA + 1):
        raise LNTrustError(f"schema {schema}: recorded by a newer lntrust; this one knows up to {SCHEMA}")
    if schema == 1:  # which said nothing of content
        identity = {**identity, "content": {"schema": 2}}
    return _renamed(superseded(identity, schema), RENAMED)


def superseded(identity: Identity, schema: int = 1) -> Identity:
    """How a run like this stands in tables if it was recorded under this schema."""
    for each in CORRECTIONS:
        if schema < each.schema and _speaks_of(each, identity):
            identity = _with(identity, each.path, each.value + _SUPERSEDED)
    return identity


def is_superseded(identity: Identity) -> bool:
    """Whether a stored run, as `upgrade` reads it, has a result that was corrected since."""
    return any(_at(identity, each.path) == each.value + _SUPERSEDED for each in CORRECTIONS)


def without_mark(name: str) -> str:
    """What is called so today."""
    return name.removesuffix(_SUPERSEDED)


def _speaks_of(correction: Correction, identity: Identity) -> bool:
    return bool(_at(identity, correction.path) == correction.value)


def _at(table: Any, path: tuple[str, ...]) -> Any:
    """What stands there; none, where nothing does."""
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return table


def _with(table: dict[str, Any], path: tuple[str, ...], value: str) -> dict[str, Any]:
    first, *rest = path
    return {**table, first: _with(table[first], tuple(rest), value) if rest else value}


def under_old_names(identity: Identity) -> Identity:
    """The same with every setting under the name that it had first."""
    return _renamed(identity, {new: old for old, new in RENAMED.items()})


def _renamed(identity: Identity, names: dict[str, str]) -> Identity:
    parts = {part: identity[part] for part in _PARTS if part in identity}
    return identity | {part: {names.get(k, k): v for k, v in table.items()} for part, table in parts.items()}
