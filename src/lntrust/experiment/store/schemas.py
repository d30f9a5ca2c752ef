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
    field: str  # method, or a setting of methods
    value: str
    what: str


CORRECTIONS = (
    Correction(2, "weighting", "weighted_majority", "weights were not normalised"),
    Correction(3, "weighting", "linucb", "it learned from arms that were not played"),
    Correction(3, "method", "fedmd", "one step a round, its slope divided by C, and no transfer phase"),
    Correction(3, "method", "mean_teacher", "the decay stayed as it is during the ramp"),
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
            identity = _marked(each, identity)
    return identity


def is_superseded(identity: Identity) -> bool:
    """Whether a stored run, as `upgrade` reads it, has a result that was corrected since."""
    tables = (identity.get(part, {}) for part in _PARTS)
    named = [identity["method"], *(value for table in tables for value in table.values())]
    return any(isinstance(name, str) and name.endswith(_SUPERSEDED) for name in named)


def without_mark(name: str) -> str:
    """What is called so today."""
    return name.removesuffix(_SUPERSEDED)


def _tables(correction: Correction, identity: Identity) -> list[str]:
    """Which of an identity's tables of settings hold what was corrected."""
    wanted = (correction.field, correction.value)
    return [part for part in _PARTS if wanted in identity.get(part, {}).items()]


def _speaks_of(correction: Correction, identity: Identity) -> bool:
    if correction.field == "method":
        return bool(identity["method"] == correction.value)
    return bool(_tables(correction, identity))


def _marked(correction: Correction, identity: Identity) -> Identity:
    mark = {correction.field: correction.value + _SUPERSEDED}
    if correction.field == "method":
        return identity | mark
    return identity | {part: identity[part] | mark for part in _tables(correction, identity)}


def under_old_names(identity: Identity) -> Identity:
    """The same with every setting under the name that it had first."""
    return _renamed(identity, {new: old for old, new in RENAMED.items()})


def _renamed(identity: Identity, names: dict[str, str]) -> Identity:
    parts = {part: identity[part] for part in _PARTS if part in identity}
    return identity | {part: {names.get(k, k): v for k, v in table.items()} for part, table in parts.items()}
